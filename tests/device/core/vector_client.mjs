// A client's draw and report in JavaScript, written from docs/wire.md: it plays the vectors in the files that are its
// arguments, and prints the names of those that it answers otherwise than expected. Without a difference it exits with 0.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

const SMALL = 2 ** 30;
const INVALID = { refused: 'invalid' };

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();
const isWhole = (value, low, high) => Number.isInteger(value) && low <= value && value <= high;

class Refused extends Error {}

function demand(condition) {
    if (!condition) throw new Refused();
}

// Words of the 256 random bytes of one draw: block i is sha256(seed + i), words are 4 bytes, little-endian.
class Words {
    constructor(seed) {
        this.bytes = Buffer.concat([1, 2, 3, 4, 5, 6, 7, 8].map((i) => sha256(seed, String(i))));
        this.used = 0;
    }

    below(n) {
        const mask = n === 1 ? 0 : 2 ** Math.ceil(Math.log2(n)) - 1;
        for (;;) {
            const word = (this.bytes.readUInt32LE(4 * this.used++) & mask) >>> 0;
            if (word < n) return word;
        }
    }
}

// Integer weight a in a window of w cells that moves by s cells for each level, b outside.
class Window {
    constructor(a, b, window, stride, levels, edges = null, first = 0) {
        demand([b, window, stride, levels].every((value) => isWhole(value, 1, SMALL - 1)) && isWhole(a, b + 1, SMALL - 1));
        const cells = stride * levels + window;
        const total = (a - b) * window + b * cells;
        demand(total < SMALL);
        demand(edges === null || (edges.length === levels + 2 && edges.every((edge, i) => i === 0 || edges[i - 1] < edge)));
        Object.assign(this, { a, b, window, stride, levels, cells, total, edges, first, symbols: first + cells });
    }

    choose() {
        return this;
    }

    level(x, theta, words) {
        if (this.edges !== null) return this.edges.slice(1, -1).filter((edge) => x >= edge).length;
        demand(isWhole(x, 0, theta) && theta >= 1 && theta * this.levels < SMALL);
        const level = Math.floor((x * this.levels) / theta);
        return level + (words.below(theta) < x * this.levels - level * theta ? 1 : 0);
    }

    draw(level, words) {
        const u = words.below(this.total);
        const inside = this.a * this.window;
        const start = this.stride * level;
        if (u < inside) return this.first + start + Math.floor(u / this.a);
        const cell = Math.floor((u - inside) / this.b);
        return this.first + (cell < start ? cell : cell + this.window);
    }

    at(level, inside, outside) {
        const start = this.stride * level;
        return Array.from({ length: this.cells }, (_, j) => (start <= j && j < start + this.window ? inside : outside));
    }

    weights(level) {
        return this.at(level, this.a, this.b);
    }

    certificate() {
        return [this.a, this.b];
    }
}

// A public coin between stochastic rounding and the piecewise mechanism.
class Hybrid {
    constructor(coin, rounding, piecewise) {
        demand(isWhole(coin, 0, 65536));
        const { levels, symbols } = piecewise;
        const total = 65536 * rounding.total * piecewise.total * levels;
        Object.assign(this, { coin, rounding, piecewise, levels, symbols, total });
    }

    choose(words) {
        return words.below(65536) < this.coin ? this.piecewise : this.rounding;
    }

    weights(level) {
        const { coin, rounding: r, piecewise: p, levels } = this;
        const [low, high] = [r.weights(0), r.weights(1)];
        const scale = coin * r.total * levels;
        const rounded = low.map((weight, j) => (65536 - coin) * p.total * ((levels - level) * weight + level * high[j]));
        return rounded.concat(p.at(level, scale * p.a, scale * p.b));
    }

    certificate() {
        const { rounding: r, piecewise: p } = this;
        return p.a * r.b >= r.a * p.b ? [p.a, p.b] : [r.a, r.b];
    }
}

// Rows of 3-byte weights, each with the sum 2^bits; the levels are integers in reading units times 2^shift.
class Table {
    constructor(bits, shift, values, encoded) {
        demand(isWhole(bits, 8, 24) && isWhole(shift, 0, 20) && values[0] <= 0 && encoded.length === values.length);
        demand(values.every((value, i) => i === 0 || values[i - 1] < value));
        const rows = encoded.map((text) => {
            const row = Buffer.from(text, 'base64');
            demand(row.length && row.toString('base64') === text);
            return Array.from({ length: row.length / 3 }, (_, j) => row.readUIntBE(3 * j, 3));
        });
        demand(rows.every((row) => row.length === rows[0].length && row.every((weight) => weight >= 1)));
        demand(rows.every((row) => row.reduce((sum, weight) => sum + weight, 0) === 2 ** bits));
        const reach = Math.floor(values.at(-1) / 2 ** shift);
        Object.assign(this, { shift, values, rows, reach, total: 2 ** bits });
        Object.assign(this, { levels: rows.length - 1, symbols: rows[0].length });
    }

    choose() {
        return this;
    }

    level(x, theta, words) {
        demand(isWhole(x, 0, theta) && (theta === this.reach || this.reach * theta < SMALL));
        if (theta !== this.reach) {
            const scaled = x * this.reach;
            x = Math.floor(scaled / theta);
            x += words.below(theta) < scaled - x * theta ? 1 : 0;
        }
        x *= 2 ** this.shift;
        const k = this.values.slice(1, -1).filter((value) => value <= x).length;
        const low = this.values[k];
        return k + (words.below(this.values[k + 1] - low) < x - low ? 1 : 0);
    }

    draw(level, words) {
        const u = words.below(this.total);
        let sum = 0;
        return this.rows[level].slice(0, -1).filter((weight) => u >= (sum += weight)).length;
    }

    weights(level) {
        return this.rows[level];
    }

    certificate() {
        const columns = this.rows[0].map((_, j) => this.rows.map((row) => row[j]));
        const ratios = columns.map((column) => [Math.max(...column), Math.min(...column)]);
        return ratios.reduce((worst, ratio) => (ratio[0] * worst[1] > worst[0] * ratio[1] ? ratio : worst), [1, 1]);
    }
}

function parseMechanism(given) {
    const { kind, a, b, window, stride, levels, edges, coin, rounding, piecewise, bits, shift, values, rows } = given;
    if (kind === 'window') return new Window(a, b, window, stride, levels);
    if (kind === 'square-wave') {
        demand(edges.length >= 3);
        return new Window(a, b, window, 1, edges.length - 2, edges);
    }
    if (kind === 'hybrid') {
        demand(rounding.length === 2 && piecewise.length === 5);
        const first = new Window(rounding[0], rounding[1], 1, 1, 1);
        return new Hybrid(coin, first, new Window(...piecewise, null, first.symbols));
    }
    demand(kind === 'table');
    return new Table(bits, shift, values, rows);
}

function pack({ kind, fingerprint, slot, values, sequence, chain }) {
    const stream = kind === 2;
    demand([0, 1, 2].includes(kind) && /^[0-9a-f]{16}$/.test(fingerprint));
    demand(isWhole(slot, 0, 2 ** 32 - 1) && isWhole(sequence, 1, 2 ** 32 - 1));
    demand(stream ? isWhole(chain, 1, 65535) : chain === 0);
    demand(isWhole(values.length, 1, stream ? 8 : 1));
    demand(values.every((value) => (stream ? isWhole(value, -(2 ** 31), 2 ** 31 - 1) : isWhole(value, 0, 2 ** 32 - 1))));
    const report = Buffer.alloc(20 + 4 * values.length);
    report.set([2, kind]);
    report.write(fingerprint, 2, 'hex');
    report.writeUInt32BE(slot, 10);
    report.writeUInt32BE(values[0] >>> 0, 14);
    report.writeUInt16BE(chain, 18);
    report.writeUInt32BE(sequence, 20);
    values.slice(1).forEach((value, i) => report.writeInt32BE(value, 24 + 4 * i));
    return report;
}

const checkName = (name) => demand(/^[a-z0-9-]{1,32}$/.test(name));
const divisor = (a, b) => (b ? divisor(b, a % b) : a);

const PLAYERS = {
    reports: (given) => ({ report: pack(given).toString('hex') }),
    topics({ prefix, campaign, device }) {
        [campaign, device].forEach(checkName);
        const shard = sha256(device)[0] % 64;
        return { config: `${prefix}/${campaign}/config`, report: `${prefix}/${campaign}/${shard}/${device}/report` };
    },
    mechanisms({ mechanism }) {
        const made = parseMechanism(mechanism);
        const weights = Array.from({ length: made.levels + 1 }, (_, level) => made.weights(level));
        return { symbols: made.symbols, certificate: made.certificate(), total: made.total, weights };
    },
    draws({ mechanism, theta, reading, seed }) {
        const words = new Words(seed);
        const part = parseMechanism(mechanism).choose(words);
        const level = part.level(reading, theta, words);
        const symbol = part.draw(level, words);
        return { level, symbol, words: words.used };
    },
    schedules({ seed, stride, cohort_stride: cohort, device, from, to }) {
        demand(isWhole(stride, 1, 2 ** 20) && isWhole(cohort, 0, 2 ** 20) && (!cohort || divisor(cohort, stride) === 1));
        const digest = sha256(Buffer.from(seed, 'hex'), device);
        const place = (digest.readUInt32BE(0) + stride * digest.readUInt32BE(4)) % (stride * cohort || stride);
        const slots = Array.from({ length: to - from }, (_, i) => from + i);
        const turns = slots.filter((slot) => (slot + place) % stride === 0);
        return { place, turns, cohort: turns.filter((slot) => cohort && (slot + place) % (stride * cohort) === 0) };
    },
};

function play(kind, given) {
    try {
        return PLAYERS[kind](given);
    } catch (error) {
        if (error instanceof Refused) return INVALID;
        throw error;
    }
}

const sorted = (value) =>
    Array.isArray(value) || Object(value) !== value ? value : Object.fromEntries(Object.entries(value).sort());

let differences = 0;
for (const path of process.argv.slice(2)) {
    const { kind, vectors } = JSON.parse(readFileSync(path, 'utf8'));
    for (const { name, given, expected } of vectors) {
        const made = play(kind, given);
        if (JSON.stringify(sorted(made)) !== JSON.stringify(sorted(expected))) {
            console.log(`${path}: ${name}: ${JSON.stringify(made)}`);
            differences += 1;
        }
    }
    console.log(`${path}: ${vectors.length} vectors`);
}
process.exit(differences ? 1 : 0);
