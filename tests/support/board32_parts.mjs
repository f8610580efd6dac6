// What the 32-bit MicroPython, which is WebAssembly under node, needs to be like a board: modules, and a network.
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

// What every board that may run a device has and this build has not: os.urandom, and a binascii in C, which takes text
// and raises ValueError where the frozen one in Python takes bytes alone and raises Exception. The file system
// of this build has numbers of its own for errors: 20 is EEXIST.
export const LIKE_A_BOARD = `
import binascii, os

os.urandom = open('/dev/urandom', 'rb').read

def _a2b_base64(data, decode=binascii.a2b_base64):
    try:
        return decode(data.encode() if isinstance(data, str) else data)
    except Exception as error:
        raise ValueError(str(error))

binascii.a2b_base64 = _a2b_base64

def _mkdir(path, mkdir=os.mkdir):
    try:
        mkdir(path)
    except OSError as error:
        raise OSError({20: 17}.get(error.errno, error.errno))

os.mkdir = _mkdir
`;

// How many milliseconds to wait for the broker's answer. Only the last packet of an exchange gets no answer.
const ANSWER_MILLISECONDS = 250;
const ECONNRESET = 15;

// /dev/net, whose reads and writes never block: a read gives nothing until there is something.
export class Network {
    constructor(FS, port) {
        this.arrived = [];
        this.asked = false;
        this.tell = () => {};
        const device = FS.makedev(64, 0);
        FS.registerDevice(device, {
            open: () => {
                this.ended = false;
                this.arrived = [];
                this.socket = connect({ host: '127.0.0.1', port, noDelay: true });
                const end = () => this.take(() => (this.ended = true));
                this.socket.on('data', (data) => this.take(() => this.arrived.push(data)));
                this.socket.on('error', end).on('close', end);
            },
            close: () => this.socket.removeAllListeners('close').destroy(),
            read: (stream, buffer, offset, length) => {
                const data = this.arrived.shift() ?? Buffer.alloc(0);
                // What came before the end is handled before the end is told, as a socket does.
                if (!data.length && !this.unread && this.ended) throw new FS.ErrnoError(ECONNRESET);
                this.unread = data.length > 0;
                if (data.length > length) this.arrived.unshift(data.subarray(length));
                buffer.set(data.subarray(0, length), offset);
                return Math.min(length, data.length);
            },
            write: (stream, buffer, offset, length) => {
                this.socket.write(Buffer.from(buffer.subarray(offset, offset + length)));
                this.asked = true;
                return length;
            },
        });
        FS.mkdev('/dev/net', 0o666, device);
    }

    take(change) {
        change();
        this.tell();
    }

    async answer() {
        if (!this.asked) return sleep(0);
        this.asked = false;
        const timeout = new AbortController();
        const told = new Promise((resolve) => (this.tell = resolve));
        const late = sleep(ANSWER_MILLISECONDS, null, { signal: timeout.signal }).catch(() => {});
        await Promise.race([told, late]);
        timeout.abort();
    }
}
