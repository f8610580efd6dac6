// The journal of the phone's app over files in memory that lose power: node journal.mjs. It prints what it has tried.
import { Damaged, Journal } from '../../../device/phone/journal.js';

const HEADER = 12;

class PowerCut extends Error {}

// A file whose writes are certain once they are flushed. `power.left`: writes and flushes until the power fails.
class File {
    constructor(power, content = new Uint8Array(0)) {
        this.power = power;
        this.content = content;
        this.flushed = content;
    }
    use(change) {
        if (this.power.left === 0) throw new PowerCut();
        this.power.left--;
        change();
    }
    getSize() {
        return this.content.length;
    }
    read(bytes) {
        bytes.set(this.content);
        return bytes.length;
    }
    write(bytes, { at }) {
        this.use(() => {
            const grown = new Uint8Array(Math.max(this.content.length, at + bytes.length));
            grown.set(this.content);
            grown.set(bytes, at);
            this.content = grown;
        });
        return bytes.length;
    }
    truncate(size) {
        this.use(() => (this.content = this.content.slice(0, size)));
    }
    flush() {
        this.use(() => (this.flushed = this.content));
    }
    close() {}
}

function equal(one, other) {
    return one.length === other.length && one.every((byte, i) => byte === other[i]);
}

// What may be on the disk after a power cut: the old bytes, the new ones, the new length with zeros, a part of the new.
function* survivors({ content, flushed }) {
    yield flushed;
    if (equal(content, flushed)) return;
    yield content;
    const begun = flushed.findIndex((byte, i) => byte !== content[i]);
    const from = begun < 0 ? Math.min(flushed.length, content.length) : begun;
    // The header of a file with records is in one sector, which a disk writes completely or not at all.
    if (from < HEADER && flushed.length > HEADER) return;
    for (const share of [0, 1, 5, 9, Math.floor((content.length - from) / 2)]) {
        const cut = Math.min(from + share, content.length);
        yield content.slice(0, cut);
        if (content.length >= flushed.length) {
            const zeros = content.slice();
            zeros.fill(0, cut);
            yield zeros;
        }
    }
}

const bytes = (text) => new TextEncoder().encode(text);
const text = (content) => (content ? new TextDecoder().decode(content) : undefined);
const state = (journal) => JSON.stringify(journal.names.sort().map((name) => [name, text(journal.read(name))]));

// The same changes in every run: three names, contents of several sizes, deletions, and enough of them to copy a file.
const CHANGES = Array.from({ length: 60 }, (_, i) => [`name-${i % 3}`, i % 7 === 6 ? null : `${i} `.repeat(1 + (i % 9))]);

function apply(journal, states) {
    for (const [name, content] of CHANGES) {
        if (content === null) journal.delete(name);
        else journal.write(name, bytes(content));
        states.push(state(journal));
    }
}

const LARGE = 300;
let cuts = 0;
let openings = 0;
let copies = 0;
for (let left = 0; ; left++) {
    const power = { left };
    const files = [new File(power), new File(power)];
    const states = ['[]'];
    try {
        const journal = new Journal(files, LARGE);
        apply(journal, states);
        copies = journal.generation - 1;
    } catch (error) {
        if (!(error instanceof PowerCut)) throw error;
    }
    if (power.left > 0) break;
    cuts++;
    // The state that the cut interrupted is the last one or the one after it.
    const done = states.length - 1;
    const all = ['[]'];
    apply(new Journal([new File({ left: -1 }), new File({ left: -1 })], LARGE), all);
    for (const first of survivors(files[0])) {
        for (const second of survivors(files[1])) {
            openings++;
            const again = new Journal([new File({ left: -1 }, first), new File({ left: -1 }, second)], LARGE);
            const found = state(again);
            if (found !== all[done] && found !== all[done + 1]) {
                throw new Error(`after ${left} steps: ${found}, expected ${all[done]} or ${all[done + 1]}`);
            }
            again.write('after', bytes('x'));
        }
    }
}

// A change of any byte of a record that is not the last makes the journal refuse its whole content.
let refused = 0;
const file = new File({ left: -1 });
const other = new File({ left: -1 });
const journal = new Journal([file, other]);
journal.write('ledger', bytes('one'));
const last = file.content.length;
journal.write('ledger', bytes('two'));
for (let at = 0; at < last; at++) {
    const damaged = file.content.slice();
    damaged[at] ^= 1;
    try {
        const read = new Journal([new File({ left: -1 }, damaged), new File({ left: -1 })]);
        throw new Error(`byte ${at} changed: ${state(read)}`);
    } catch (error) {
        if (!(error instanceof Damaged)) throw error;
        refused++;
    }
}

// A disk that is full keeps the old content, and takes the next write when it has space again.
file.write = () => 3;
try {
    journal.write('ledger', bytes('three'));
    throw new Error('a short write was accepted');
} catch (error) {
    if (text(journal.read('ledger')) !== 'two' || !error.message.includes('3 of')) throw error;
}
delete file.write;
journal.write('ledger', bytes('four'));
const reread = new Journal([new File({ left: -1 }, file.content), new File({ left: -1 }, other.content)]);
console.log(JSON.stringify({ cuts, openings, copies, refused, damaged: last, full: text(reread.read('ledger')) }));
