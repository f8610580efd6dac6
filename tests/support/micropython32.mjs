// Runs one job, read from stdin as JSON {package, files, args, code}, under MicroPython compiled to 32-bit WebAssembly.
// This port has no os.urandom, which every board that may run a device has: it gets node's.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';

const URANDOM = `
import os, _node
os.urandom = lambda n: bytes.fromhex(_node.random_hex(n))
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
    mp.runPython(URANDOM);
    mp.runPython(job.code);
} catch (error) {
    if (error.type !== 'SystemExit') {
        process.stderr.write(`${error.message}\n`);
        process.exitCode = 1;
    }
}
