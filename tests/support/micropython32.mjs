// Runs one job, read from stdin as JSON {package, heap, files, args, parts, calls}, under MicroPython compiled to 32-bit
// WebAssembly. `files`: path to base64. The parts of the code run one after another; before the last one, its function
// step() is called `calls` times. This build collects garbage only between them, and enlarges its heap when it is full.
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
const mp = await loadMicroPython({ heapsize: job.heap, pystack: 1 << 14 });
for (const [path, content] of Object.entries(job.files)) {
    mp.FS.mkdirTree(path.slice(0, path.lastIndexOf('/')) || '/');
    mp.FS.writeFile(path, Buffer.from(content, 'base64'));
}
mp.registerJsModule('_node', { random_hex: (n) => randomBytes(n).toString('hex') });
mp.FS.mkdirTree('/scratch');
mp.FS.chdir('/scratch');
try {
    mp.runPython(`import sys\nsys.argv[:] = ${JSON.stringify(['job', ...job.args])}\n`);
    mp.runPython(LIKE_A_BOARD);
    const last = job.calls ? job.parts.pop() : '';
    for (const part of job.parts) mp.runPython(part);
    if (job.calls) {
        const step = mp.globals.get('step');
        for (let i = 0; i < job.calls; i++) step();
    }
    mp.runPython(last);
} catch (error) {
    if (error.type !== 'SystemExit') {
        process.stderr.write(`${error.message}\n`);
        process.exitCode = 1;
    }
}
