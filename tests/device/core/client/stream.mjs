// Streams: their rule, their cost, and the draw of one report in integers.
import { demand, demandFields, demandWhole, isWhole, SMALL } from './values.mjs';

const FIELDS = 'kind law low theta levels slew shift reuse noise dimension lag reports chains restart renewal';
export const UNIT = 1n << 20n;
export const LARGEST_RHO = 2n ** 32n - 1n;
const LARGEST = 2 ** 31 - 1;

const up = (p, q) => (p + q - 1n) / q;

function root(n) {
    let [x, y] = [n, (n + 1n) / 2n];
    while (y < x) [x, y] = [y, (y + n / y) / 2n];
    return x;
}

function rootUp(n) {
    const x = Number(root(BigInt(n)));
    return x * x === n ? x : x + 1;
}

// Exact samplers of Canonne, Kamath, Steinke 2020; numbers are BigInt.
function expBelow1(p, q, words) {
    let k = 1n;
    while (words.uniform(q * k) < p) k += 1n;
    return k % 2n === 1n;
}

function exp(p, q, words) {
    let left = p;
    for (; left > q; left -= q) if (!expBelow1(1n, 1n, words)) return false;
    return expBelow1(left, q, words);
}

function laplace(t, words) {
    for (;;) {
        let u = words.uniform(t);
        if (!expBelow1(u, t, words)) continue;
        while (expBelow1(1n, 1n, words)) u += t;
        if (words.uniform(2n) === 0n) return u;
        if (u > 0n) return -u;
    }
}

function gaussian(variance, words) {
    const t = root(variance) + 1n;
    for (;;) {
        const y = laplace(t, words);
        const gap = (y < 0n ? -y : y) * t - variance;
        if (exp(gap * gap, 2n * variance * t * t, words)) return Number(y);
    }
}

export class Stream {
    constructor(fields) {
        Object.assign(this, demandFields(fields, FIELDS.split(' ')));
        const { low, theta, levels, shift, reuse } = this;
        demand(['gaussian', 'one-bit'].includes(this.law));
        demand(isWhole(low, 0, SMALL) && isWhole(theta, low + 1, SMALL - 1));
        demand(isWhole(levels, 2, 2 ** 20) && levels % 2 === 0 && levels * (theta - low) < SMALL);
        demand(isWhole(shift, 0, 12) && isWhole(reuse, 0, 2 ** shift - 1));
        demandWhole(this.slew, 1, reuse ? Math.max(levels / 2 - 1, 1) : levels);
        demandWhole(this.dimension, 1, this.law === 'one-bit' ? 1 : 8);
        demand(isWhole(this.reports, 1, 65535) && isWhole(this.lag, 1, 1024) && isWhole(this.chains, this.lag, 65535));
        demand(isWhole(this.restart, 0, 65535) && isWhole(this.renewal, 0, 2 ** 24));
        this.scale = 2 ** shift;
        this.swing = levels * (this.scale - reuse) + 2 * this.slew * reuse;
        demand(Array.isArray(this.noise) && this.noise.length === 2 && this.noise.every(Number.isInteger));
        [this.first, this.later] = this.noise.map(BigInt);
        this.ranges = [[0, low, theta]];
        this.mechanisms = [];
        this.law === 'gaussian' ? this.checkVariances() : this.checkSteps();
    }

    get kept() {
        return BigInt(this.scale) ** 2n - BigInt(this.reuse) ** 2n;
    }

    checkVariances() {
        const least = up(this.later - 4n, this.kept) + 4n;
        demand(this.later >= 16n && this.later <= 1n << 60n && this.first <= 1n << 60n);
        demand(this.first >= (least > 16n ? least : 16n));
    }

    checkSteps() {
        demandWhole(Number(this.later), Math.floor(this.swing / 2) + 1, SMALL / 2);
        demandWhole(Number(this.first), this.levels / 2 + 1, SMALL / 2);
        const [p, q] = this.variance(this.first, this.levels);
        const [later, under] = this.variance(this.later, this.swing);
        demand(p * under * this.kept >= later * q);
    }

    // The variance p/q that a noise of steps, or of a Gaussian, counts as.
    variance(noise, width) {
        if (this.law === 'gaussian') return [noise - 4n, 1n];
        const gap = 4n * noise * noise - BigInt(width) ** 2n;
        return [gap * gap, 16n * noise * noise];
    }

    // ρ of one window, in multiples of 2^-20.
    charge() {
        const [l, m, g, c, r] = [this.reports, this.chains, this.levels, this.slew, this.reuse].map(BigInt);
        const a = BigInt(this.scale);
        const moved = 4n * c * c * r * a;
        const start = 2n * r * (a - r) * g * g - moved;
        const top = l * ((a - r) ** 2n * g * g + moved) + (start > 0n ? m : 1n) * start;
        const [p, q] = this.variance(this.later, this.swing);
        return up(top * q * UNIT, 2n * p);
    }

    // ρ of the most expensive single report.
    reportCharge() {
        const costs = [
            [this.levels, this.first],
            [this.swing, this.later],
        ].map(([width, noise]) => {
            const [p, q] = this.variance(noise, width);
            return up(BigInt(width) ** 2n * q * UNIT, 2n * p);
        });
        return costs[0] > costs[1] ? costs[0] : costs[1];
    }

    periodCharge(period, { seconds, epoch }) {
        const length = this.renewal * seconds;
        if (!length) return this.charge();
        const whole = period % length === 0 && epoch % length === 0;
        return this.charge() * BigInt(whole ? period / length : Math.ceil(period / length) + 1);
    }

    lifeCharge({ first, last }) {
        return this.charge() * BigInt(this.renewal ? Math.ceil((last - first + 1) / this.renewal) : 1);
    }

    window(campaign, slot) {
        return this.renewal ? Math.floor((slot - campaign.first) / this.renewal) : 0;
    }

    // The report after `chain` (null: the first of a new one): { index, point, sent }.
    draw(reading, offset, chain, words) {
        const [first, later] = [this.first, this.later];
        const isGaussian = this.law === 'gaussian';
        const noise = isGaussian ? reading.map(() => gaussian(chain ? later : first, words)) : [];
        words.refill();
        const half = this.levels / 2;
        let point = this.intoBall(reading.map((value) => this.gridPoint(value - offset, words)));
        const step = (b, mean) => (words.chance(b + mean, 2 * b) ? b : -b);
        if (chain === null) {
            const sent = isGaussian ? point.map((n, i) => n + noise[i]) : [step(Number(first), point[0])];
            return { index: 1, point, sent: sent.map(bounded) };
        }
        point = limited(point, chain.point, this.slew, half);
        const moved = point.map((n, i) => this.scale * n - this.reuse * chain.point[i]);
        const drawn = isGaussian ? moved.map((y, i) => y + noise[i]) : [step(Number(later), moved[0])];
        const sent = drawn.map((y, i) => {
            const top = 2 * (y + this.reuse * chain.sent[i]) + this.scale;
            return bounded(Math.floor(top / (2 * this.scale)));
        });
        return { index: chain.index + 1, point, sent };
    }

    gridPoint(value, words) {
        const width = this.theta - this.low;
        const scaled = (Math.min(Math.max(value, this.low), this.theta) - this.low) * this.levels;
        return Math.floor(scaled / width) + words.chance(scaled % width, width) - this.levels / 2;
    }

    intoBall(point) {
        const half = this.levels / 2;
        if (square(point) <= half * half) return point;
        if (point.length === 1) return [point[0] > 0 ? half : -half];
        const norm = rootUp(square(point));
        return point.map((n) => towardsZero(n * half, norm));
    }
}

const bounded = (value) => Math.max(-LARGEST, Math.min(LARGEST, value));
const square = (point) => point.reduce((sum, n) => sum + n * n, 0);
const towardsZero = (p, q) => Math.trunc(p / q) + 0;

function limited(point, before, slew, half) {
    const move = point.map((n, i) => n - before[i]);
    if (square(move) <= slew * slew) return point;
    const norm = rootUp(square(move));
    for (let step = slew; ; step--) {
        const moved = before.map((n, i) => n + towardsZero(move[i] * step, norm));
        if (square(moved) <= half * half) return moved;
    }
}

export function parseStream(fields, schedule) {
    demand(fields.cohort === null && schedule.stride === 1 && schedule.cohort === 0);
    const rule = new Stream(fields.rule);
    demand(rule.theta <= fields.bound);
    return rule;
}
