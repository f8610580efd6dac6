// Runs one job, read from stdin as JSON {package, heap, files, args, parts, port}, under MicroPython compiled to 32-bit
// WebAssembly. `files`: path to base64. The parts of the code run one after another; this build collects garbage only
// between them, and enlarges its heap when it is full. With a `port`, opening /dev/net connects to it on loopback, and
// before the last part the function step() is called until it returns None instead of milliseconds to wait.
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { LIKE_A_BOARD, Network } from './board32_parts.mjs';

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
