// Checks of single values, hashes, and the uniform random numbers of the vectors (docs/wire.md, Randomness).
import { createHash } from 'node:crypto';

export const SMALL = 2 ** 30;
export const DAY = 86400;

// Why an input is refused: one word, `invalid` if no device may accept the input.
export class Refused extends Error {
    constructor(reason) {
        super(reason);
        this.reason = reason;
    }
}

export function demand(condition, reason = 'invalid') {
    if (!condition) throw new Refused(reason);
}

export const isWhole = (value, low, high) => Number.isInteger(value) && low <= value && value <= high;

export const demandWhole = (value, low, high) => demand(isWhole(value, low, high));

export const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

export function demandFields(value, names) {
    demand(isObject(value) && Object.keys(value).sort().join() === [...names].sort().join());
    return value;
}

export function demandName(name) {
    demand(typeof name === 'string' && /^[a-z0-9-]{1,32}$/.test(name));
    return name;
}

const INVISIBLE =
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/u;

export function demandText(text, most) {
    demand(typeof text === 'string' && [...text].length <= most && !INVISIBLE.test(text));
    return text;
}

export const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();

export const divisor = (a, b) => (b ? divisor(b, a % b) : a);

// The seconds that the ticks must count for an interval to have passed: their oscillator is not exact.
export const inTicks = (seconds) => seconds - Math.floor(seconds / 32);

// Blocks of 32 bytes: block i is sha256(seed + i). A draw takes 8 of them, as 64 words.
export class Words {
    constructor(seed) {
        this.seed = seed;
        this.block = 0;
    }

    refill() {
        const blocks = Array.from({ length: 8 }, () => sha256(this.seed, String(++this.block)));
        this.bytes = Buffer.concat(blocks);
        this.used = 0;
    }

    below(n) {
        const mask = 2 ** (32 - Math.clz32(n - 1)) - 1;
        for (;;) {
            const word = (this.bytes.readUInt32LE(4 * this.used++) & mask) >>> 0;
            if (word < n) return word;
        }
    }

    // True with probability p/q.
    chance(p, q) {
        return this.below(q) < p;
    }

    // A uniform BigInt below n, of any size; it takes new blocks where fewer than 32 words are left.
    uniform(n) {
        const digit = (size) => {
            if (this.used > 32) this.refill();
            return BigInt(this.below(size));
        };
        const count = n - 1n < 2n ** 30n ? 0 : Math.floor(((n - 1n).toString(2).length - 1) / 30);
        const first = Number((n - 1n) >> BigInt(30 * count)) + 1;
        for (;;) {
            let value = digit(first);
            for (let i = 0; i < count; i++) value = (value << 30n) | digit(SMALL);
            if (value < n) return value;
        }
    }
}
