// Runs one job, read from stdin as JSON {package, heap, files, args, parts, port}, under MicroPython compiled to 32-bit
// WebAssembly. `files`: path to base64. The parts of the code run one after another; this build collects garbage only
// between them, and enlarges its heap when it is full. With a `port`, opening /dev/net connects to it on loopback, and
// before the last part the function step() is called until it returns None instead of milliseconds to wait.
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

// What every board that may run a device has and this build has not: os.urandom, and a binascii in C, which takes text
// and raises ValueError where the frozen one in Python takes bytes alone and raises Exception.
const LIKE_A_BOARD = `
import binascii, os

os.urandom = open('/dev/urandom', 'rb').read

def _a2b_base64(data, decode=binascii.a2b_base64):
    try:
        return decode(data.encode() if isinstance(data, str) else data)
    except Exception as error:
        raise ValueError(str(error))

binascii.a2b_base64 = _a2b_base64
`;

// How long step() waits for the answer to what was written: only the last packet of an exchange has none.
const ANSWER_MILLISECONDS = 250;
const ECONNRESET = 15;

// /dev/net, whose reads and writes never block: a read gives nothing until there is something.
class Network {
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
                if (!this.arrived.length && this.ended) throw new FS.ErrnoError(ECONNRESET);
                const data = this.arrived.shift() ?? Buffer.alloc(0);
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

const job = JSON.parse(readFileSync(0, 'utf8'));
const { loadMicroPython } = await import(job.package);
const mp = await loadMicroPython({ heapsize: job.heap, pystack: 1 << 14 });
for (const [path, content] of Object.entries(job.files)) {
    mp.FS.mkdirTree(path.slice(0, path.lastIndexOf('/')) || '/');
    mp.FS.writeFile(path, Buffer.from(content, 'base64'));
}
mp.registerJsModule('_node', {
    files: () => mp.FS.streams.filter(Boolean).length,
    descriptors: () => readdirSync('/proc/self/fd').length,
});
mp.FS.mkdirTree('/scratch');
mp.FS.chdir('/scratch');
try {
    mp.runPython(`import sys\nsys.argv[:] = ${JSON.stringify(['job', ...job.args])}\n`);
    mp.runPython(LIKE_A_BOARD);
    const last = job.port ? job.parts.pop() : '';
    const network = new Network(mp.FS, job.port);
    for (const part of job.parts) mp.runPython(part);
    if (job.port) {
        const step = mp.globals.get('step');
        for (let wait = step(); wait !== null && wait !== undefined; wait = step()) {
            await network.answer();
            if (wait) await sleep(wait);
        }
        network.socket?.destroy();
    }
    mp.runPython(last);
} catch (error) {
    if (error.type !== 'SystemExit') {
        process.stderr.write(`${error.message}\n`);
        process.exitCode = 1;
    }
}
