// Mechanisms: from a reading to a level, from a level to a symbol; their weights, certificates and cost.
import { demand, demandFields, demandWhole, isWhole, SMALL } from './values.mjs';

// Weight a in a window of w cells that moves by s cells for each level, b outside.
class Window {
    constructor(a, b, window, stride, levels, edges = null, first = 0) {
        [b, window, stride, levels].forEach((value) => demandWhole(value, 1, SMALL - 1));
        demandWhole(a, b + 1, SMALL - 1);
        const cells = stride * levels + window;
        const total = (a - b) * window + b * cells;
        demand(total < SMALL);
        Object.assign(this, { a, b, window, stride, levels, cells, total, edges, first, symbols: first + cells });
    }

    covers(width) {
        return width * this.levels < SMALL;
    }

    choose() {
        return this;
    }

    level(x, width, words) {
        if (this.edges !== null) return this.edges.slice(1, -1).filter((edge) => x >= edge).length;
        const scaled = x * this.levels;
        return Math.floor(scaled / width) + words.chance(scaled % width, width);
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
        demandWhole(coin, 0, 65536);
        const { levels, symbols } = piecewise;
        const total = 65536 * rounding.total * piecewise.total * levels;
        Object.assign(this, { coin, rounding, piecewise, levels, symbols, total });
    }

    covers(width) {
        return this.piecewise.covers(width);
    }

    choose(words) {
        return words.chance(this.coin, 65536) ? this.piecewise : this.rounding;
    }

    weights(level) {
        const { coin, rounding: r, piecewise: p, levels } = this;
        const [low, high] = [r.weights(0), r.weights(1)];
        const scale = coin * r.total * levels;
        const rounded = low.map(
            (weight, j) => (65536 - coin) * p.total * ((levels - level) * weight + level * high[j]),
        );
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
        demandWhole(bits, 8, 24);
        demandWhole(shift, 0, 20);
        demand(values.every((value) => isWhole(value, -(2 ** 20), 2 ** 20)) && isRising(values) && values[0] <= 0);
        demand(Array.isArray(encoded) && encoded.length === values.length);
        const rows = encoded.map((text) => {
            const row = Buffer.from(text, 'base64');
            demand(row.length && row.length % 3 === 0 && row.toString('base64') === text);
            return Array.from({ length: row.length / 3 }, (_, j) => row.readUIntBE(3 * j, 3));
        });
        demand(rows.every((row) => row.length === rows[0].length && row.every((weight) => weight >= 1)));
        demand(rows.every((row) => row.reduce((sum, weight) => sum + weight, 0) === 2 ** bits));
        demand(3 * rows.length * rows[0].length <= 4950);
        const reach = Math.floor(values.at(-1) / 2 ** shift);
        Object.assign(this, { shift, values, rows, reach, total: 2 ** bits });
        Object.assign(this, { levels: rows.length - 1, symbols: rows[0].length, edges: null });
    }

    covers(width) {
        return width === this.reach || (this.reach >= 1 && this.reach * width < SMALL);
    }

    choose() {
        return this;
    }

    level(reading, width, words) {
        let x = reading;
        if (width !== this.reach) {
            const scaled = x * this.reach;
            x = Math.floor(scaled / width) + words.chance(scaled % width, width);
        }
        x *= 2 ** this.shift;
        const k = this.values.slice(1, -1).filter((value) => value <= x).length;
        const low = this.values[k];
        return k + words.chance(x - low, this.values[k + 1] - low);
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

const isRising = (values) => values.every((value, i) => i === 0 || values[i - 1] < value);

const KINDS = {
    window: [['a', 'b', 'window', 'stride', 'levels'], (f) => new Window(f.a, f.b, f.window, f.stride, f.levels)],
    'square-wave': [
        ['a', 'b', 'window', 'edges'],
        ({ a, b, window, edges }) => {
            demand(Array.isArray(edges) && isWhole(edges.length, 3, 257) && isRising(edges));
            edges.forEach((edge) => demandWhole(edge, 1 - SMALL, SMALL - 1));
            return new Window(a, b, window, 1, edges.length - 2, edges);
        },
    ],
    hybrid: [
        ['coin', 'rounding', 'piecewise'],
        ({ coin, rounding, piecewise }) => {
            demand(
                Array.isArray(rounding) && rounding.length === 2 && Array.isArray(piecewise) && piecewise.length === 5,
            );
            const first = new Window(...rounding, 1, 1, 1);
            return new Hybrid(coin, first, new Window(...piecewise, null, first.symbols));
        },
    ],
    table: [
        ['bits', 'shift', 'values', 'rows'],
        ({ bits, shift, values, rows }) => {
            demand(Array.isArray(values) && isWhole(values.length, 2, 257));
            return new Table(bits, shift, values, rows);
        },
    ],
};

export function parseMechanism(value) {
    const kind = value?.kind;
    demand(typeof kind === 'string' && Object.hasOwn(KINDS, kind));
    const [names, make] = KINDS[kind];
    return make(demandFields(value, ['kind', ...names]));
}

// A symbol for x in 0 to width.
export function drawSymbol(mechanism, x, width, words) {
    demand(isWhole(x, 0, width) && width >= 1 && mechanism.covers(width));
    const part = mechanism.choose(words);
    const level = part.level(x, width, words);
    return { level, symbol: part.draw(level, words) };
}

const ONE = 1n << 160n;

// 2 artanh(p/q) in multiples of 1/ONE: ln((q + p)/(q - p)).
function artanh2(p, q) {
    let [power, sum] = [(2n * ONE * p) / q, 0n];
    for (let i = 1n; power > 0n; i += 2n) {
        sum += power / i;
        power = (power * p * p) / (q * q);
    }
    return sum;
}

// Units of ε of a report with the certificate a/b: ⌈2^20 ln(a/b)⌉. ln is irrational, so 160 binary digits decide.
export function units(a, b) {
    if (a === b) return 0n;
    let [top, bottom, sum] = [BigInt(a), BigInt(b), 0n];
    for (; top >= 2n * bottom; bottom *= 2n) sum += artanh2(1n, 3n);
    sum += artanh2(top - bottom, top + bottom);
    return (sum >> 140n) + 1n;
}
