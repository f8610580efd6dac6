// One device under a 32-bit MicroPython, called like the unix port, whose place it takes in docs/walk/field.sh:
//
//     node board32.mjs device/examples/unix_device.py CONFIG SLOTS READINGS
//
// The device gets the files of CONFIG's folder. When it ends, also by SIGINT, its state is written back.
import { readdirSync, readFileSync, writeFileSync, mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LIKE_A_BOARD, Network } from './board32_parts.mjs';

const [program, config, slots, readings] = process.argv.slice(2);
const sources = resolve(dirname(program), '../..');
const HEAP = 96 * 1024;
const STEP_MILLISECONDS = 20;

let interrupted = false;
process.on('SIGINT', () => (interrupted = true));

const packages = join(sources, '.tools/node/node_modules/@micropython/micropython-webassembly-pyscript');
const { loadMicroPython } = await import(join(packages, 'micropython.mjs'));
const mp = await loadMicroPython({ heapsize: HEAP, pystack: 1 << 14 });

function copyIn(from, to, wanted = () => true) {
    mp.FS.mkdirTree(to);
    for (const entry of readdirSync(from, { withFileTypes: true })) {
        const [source, target] = [join(from, entry.name), `${to}/${entry.name}`];
        if (entry.isDirectory()) copyIn(source, target, wanted);
        else if (wanted(entry.name)) mp.FS.writeFile(target, readFileSync(source));
    }
}

function copyOut(from, to) {
    mkdirSync(to, { recursive: true });
    for (const name of mp.FS.readdir(from)) {
        if (name === '.' || name === '..') continue;
        const [source, target] = [`${from}/${name}`, join(to, name)];
        if (mp.FS.isDir(mp.FS.stat(source).mode)) copyOut(source, target);
        else writeFileSync(target, mp.FS.readFile(source));
    }
}

const folder = dirname(resolve(config));
const isPython = (name) => name.endsWith('.py');
for (const name of ['shared/undertone_shared', 'device/undertone_device']) {
    copyIn(join(sources, name), `/lib/${name.split('/')[1]}`, isPython);
}
mp.FS.writeFile('/lib/heap_rig.py', readFileSync(join(sources, 'tests/device/board/heap_rig.py')));
mp.FS.writeFile('/lib/unix_device.py', readFileSync(program));
mp.FS.writeFile('/readings', readFileSync(readings));
copyIn(folder, '/device');
const { broker, state } = JSON.parse(readFileSync(config, 'utf8'));
const network = new Network(mp.FS, broker.port);
mp.FS.chdir('/device');

mp.runPython(LIKE_A_BOARD);
mp.runPython('import sys, heap_rig; sys.modules["select"] = sys.modules["socket"] = heap_rig');
mp.runPython('import undertone_device.core.reporter');
mp.runPython('import undertone_device.mqtt.client');
mp.runPython('import unix_device');
mp.runPython(`rounds = unix_device.rounds("device.json", ${Number(slots)}, unix_device.read_list("/readings"))
def step():
    return next(rounds, True) is None
def stop():
    rounds.close()
`);
const [step, stop] = [mp.globals.get('step'), mp.globals.get('stop')];
while (!interrupted && step()) {
    await network.answer();
    await sleep(STEP_MILLISECONDS);
}
stop();
network.socket?.destroy();
copyOut(`/device/${state}`, join(folder, state));
