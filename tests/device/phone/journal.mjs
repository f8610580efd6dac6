// The journal of the phone's app over files in memory that lose power: node journal.mjs. It prints what it has tried.
import { Damaged, Journal } from '../../../device/phone/journal.js';

const HEADER = 12;

class PowerCut extends Error {}

// A file whose writes are certain once they are flushed. After `power.left` operations that change or flush a file
// (-1: never), the power fails for good. With `power.lasts`, only so many operations fail; the next `power.later`
// operations work (-1: all), and then the power fails for good.
class File {
    constructor(power, content = new Uint8Array(0)) {
        this.power = power;
        this.content = content;
        this.flushed = content;
    }
    use(change) {
        if (this.power.left === 0) {
            if (this.power.lasts && --this.power.lasts === 0) this.power.left = this.power.later;
            throw new PowerCut();
        }
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
const CHANGES = Array.from({ length: 60 }, (_, i) => [`name-${i % 3}`, i % 7 === 6 ? null : `<${i}>`.repeat(1 + (i % 9))]);

// Throws if the files still have a content that was replaced or deleted.
function clean(journal, files, when) {
    const disk = files.map(({ content }) => new TextDecoder('latin1').decode(content)).join('');
    const live = journal.names.map((name) => text(journal.read(name)));
    for (const [, content] of CHANGES) {
        if (content && !live.includes(content) && disk.includes(content)) throw new Error(`${when}: ${content} is left`);
    }
    if (files.every((file) => file.content.length)) throw new Error(`${when}: both files have content`);
    erased++;
}

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
let erased = 0;
for (let left = 0; ; left++) {
    const power = { left };
    const files = [new File(power), new File(power)];
    const states = ['[]'];
    try {
        const journal = new Journal(files, LARGE);
        apply(journal, states);
        copies = journal.generation - 1;
    } catch (error) {
        // A journal that cannot tell what is on its disk closes itself.
        if (!(error instanceof PowerCut) && power.left) throw error;
    }
    if (power.left > 0) break;
    cuts++;
    // The journal must be opened in the last state that was complete, or in the one that the cut interrupted.
    const done = states.length - 1;
    const all = ['[]'];
    apply(new Journal([new File({ left: -1 }), new File({ left: -1 })], LARGE), all);
    for (const first of survivors(files[0])) {
        for (const second of survivors(files[1])) {
            openings++;
            const survived = [new File({ left: -1 }, first), new File({ left: -1 }, second)];
            const again = new Journal(survived, LARGE);
            clean(again, survived, `opened after ${left} steps`);
            const found = state(again);
            if (found !== all[done] && found !== all[done + 1]) {
                throw new Error(`after ${left} steps: ${found}, expected ${all[done]} or ${all[done + 1]}`);
            }
            again.write('after', bytes('x'));
        }
    }
}

// A deletion erases the content, and `erase` also erases what other writes have replaced.
{
    const files = [new File({ left: -1 }), new File({ left: -1 })];
    const journal = new Journal(files);
    for (const [i, [name, content]] of CHANGES.entries()) {
        if (content) journal.write(name, bytes(content));
        else journal.delete(name);
        if (i % 5 === 4) journal.erase();
        if (content === null || i % 5 === 4) clean(journal, files, `change ${i}`);
    }
}

// If some operations of the disk fail and later ones work, the journal reads what it has accepted, also when it is
// opened again after a power cut, and erases what was removed.
let failures = 0;
for (const [lasts, later] of [1, 2].flatMap((lasts) => [-1, 1, 2, 3].map((later) => [lasts, later]))) {
    for (let left = 0; ; left++) {
        const power = { left, lasts, later };
        const files = [new File(power), new File(power)];
        let journal = null;
        const kept = () => state(new Journal(files.map(({ content }) => new File({ left: -1 }, content)), LARGE));
        for (const [name, content] of CHANGES) {
            const before = journal ? state(journal) : '[]';
            let refused = false;
            try {
                journal ??= new Journal(files, LARGE);
                if (content === null) journal.delete(name);
                else journal.write(name, bytes(content));
            } catch (error) {
                refused = true;
                if (journal && state(journal) !== before) throw new Error(`failure ${left}: a refused change is kept`);
                if (!(error instanceof PowerCut) && !journal.broken) throw error;
            }
            if (!journal) continue;
            // A journal that cannot undo a write or a copy closes itself. Then the next opening may find that write.
            const after = new Map(JSON.parse(before)).set(name, content);
            if (content === null) after.delete(name);
            const right = [state(journal), ...(journal.broken ? [JSON.stringify([...after].sort())] : [])];
            if (!right.includes(kept())) throw new Error(`failure ${left}, ${lasts}: ${kept()}, expected ${right}`);
            if (journal.broken) break;
            if (content === null && !refused && !journal.due) clean(journal, files, `after failure ${left}`);
        }
        if (power.lasts) break;
        failures++;
        power.left = -1;
        if (journal?.due && !journal.broken) {
            journal.write('last', bytes('x'));
            clean(journal, files, `after failure ${left}`);
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
console.log(JSON.stringify({ cuts, openings, copies, erased, failures, refused, damaged: last, full: text(reread.read('ledger')) }));
