// The open slot, its value from samples, and the last finished slot.
import { demandWhole, SMALL } from './values.mjs';

// The value of one coordinate; its state goes on from slot to slot.
class Value {
    constructor(measure) {
        this.measure = measure;
        this.base = null;
        this.since = null;
        this.samples = [];
        this.milliseconds = 0;
    }

    add(sample, ticks) {
        demandWhole(sample, 1 - SMALL, SMALL - 1);
        this.count(ticks);
        if (this.measure === 'duration') this.since = sample ? ticks : null;
        this.samples.push(sample);
    }

    count(ticks) {
        if (this.since === null) return;
        this.milliseconds += ticks - this.since;
        this.since = ticks;
    }

    close(ticks) {
        this.count(ticks);
        const value = VALUES[this.measure](this);
        this.samples = [];
        this.milliseconds = 0;
        return value;
    }
}

const sum = (samples) => samples.reduce((total, sample) => total + sample, 0);
const orNull =
    (value) =>
    ({ samples }) =>
        samples.length ? value(samples) : null;

const VALUES = {
    sum: orNull(sum),
    mean: orNull((samples) => Math.floor((2 * sum(samples) + samples.length) / (2 * samples.length))),
    max: orNull((samples) => Math.max(...samples)),
    last: orNull((samples) => samples.at(-1)),
    duration: ({ samples, since, milliseconds }) =>
        samples.length || since !== null ? Math.floor(milliseconds / 1000) : null,
    counter(state) {
        const before = state.base;
        state.base = state.samples.length ? state.samples.at(-1) : null;
        return before === null || state.base === null ? null : state.base - before;
    },
};

export class Slots {
    constructor() {
        this.open = null;
        this.finished = null;
        this.values = null;
        this.seconds = 0;
        this.openedAt = 0;
    }

    contains(now) {
        return this.open !== null && Math.floor(now / this.open.campaign.seconds) === this.open.slot;
    }

    // End the open slot; return the second of its end, null without one.
    end(ticks) {
        if (this.open === null) return null;
        const { campaign, slot, since, isWhole, opened } = this.open;
        const until = Math.min(ticks, since + 1000 * campaign.seconds);
        const values = this.values.map((value) => value.close(until));
        const value = values.includes(null) ? null : values;
        if (isWhole) this.finished = { campaign, slot, value, opened };
        this.open = null;
        return (slot + 1) * campaign.seconds;
    }

    // Open the slot that contains now; `end`: the end of the slot before.
    begin(campaign, now, end, uptime, ticks) {
        const { measure, seconds } = campaign;
        const slot = Math.floor(now / seconds);
        const opened = measure === 'counter' ? this.openedAt : uptime;
        this.openedAt = uptime;
        this.open = { campaign, slot, since: ticks, isWhole: slot * seconds === end, opened };
        const { dimension } = campaign.rule;
        const isStale = measure === 'counter' && this.seconds > seconds;
        this.seconds = seconds;
        if (this.values?.length !== dimension || this.values[0].measure !== measure || isStale) {
            this.values = Array.from({ length: dimension }, () => new Value(measure));
        }
    }

    observe(sample, ticks) {
        const coordinates = Array.isArray(sample) ? sample : [sample];
        coordinates.forEach((coordinate, i) => this.values?.[i].add(coordinate, ticks));
    }
}
