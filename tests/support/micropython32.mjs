// Runs one job, read from stdin as JSON {package, files, args, code}, under MicroPython compiled to 32-bit WebAssembly.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';

// What every board that may run a device has and this build has not: os.urandom, and a binascii in C, which takes text
// and raises ValueError where the frozen one in Python takes bytes alone and raises Exception.
const LIKE_A_BOARD = `
import binascii, os, _node

os.urandom = lambda n: bytes.fromhex(_node.random_hex(n))

def _a2b_base64(data, decode=binascii.a2b_base64):
    try:
        return decode(data.encode() if isinstance(data, str) else data)
    except Exception as error:
        raise ValueError(str(error))

binascii.a2b_base64 = _a2b_base64
`;

const job = JSON.parse(readFileSync(0, 'utf8'));
const { loadMicroPython } = await import(job.package);
const mp = await loadMicroPython({ heapsize: 1 << 20, pystack: 1 << 14 });
for (const [path, text] of Object.entries(job.files)) {
    mp.FS.mkdirTree(path.slice(0, path.lastIndexOf('/')) || '/');
    mp.FS.writeFile(path, text);
}
mp.registerJsModule('_node', { random_hex: (n) => randomBytes(n).toString('hex') });
mp.FS.mkdirTree('/scratch');
mp.FS.chdir('/scratch');
try {
    mp.runPython(`import sys\nsys.argv[:] = ${JSON.stringify(['job', ...job.args])}\n`);
    mp.runPython(LIKE_A_BOARD);
    mp.runPython(job.code);
} catch (error) {
    if (error.type !== 'SystemExit') {
        process.stderr.write(`${error.message}\n`);
        process.exitCode = 1;
    }
}
