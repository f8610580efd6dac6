// The life of a device: the campaigns that it accepts, its ledger, and the rules before a draw.
import { campaignDigest, packReport, parseCampaign, splitMessage } from './campaign.mjs';
import { drawSymbol, units } from './mechanisms.mjs';
import { checkCampaign, checkSignature, streamCap } from './policy.mjs';
import { Slots } from './slots.mjs';
import { LARGEST_RHO } from './stream.mjs';
import { DAY, demand, inTicks } from './values.mjs';

const BUILT = 1793491200;
const MOST_WAITING = 96;
const NEW = {
    spentUntil: 0,
    lastEpoch: 0,
    uptime: 0,
    sequence: 0,
    day: 0,
    boots: 0,
    current: null,
    next: null,
    units: 0n,
    rho: 0n,
    rhoPeriod: 0,
    rhoSince: 0,
    everRho: 0n,
    window: 0,
    windowUntil: 0,
    reports: 0,
    chains: 0,
    waiting: [],
    cap: null,
};

const isClose = (now, then) => now >= BUILT && Math.abs(now - then) <= DAY;

// The cap of k draws in any period, in groups: [start of the slot, uptime] of the last draw of each, the newest last.
class Cap {
    constructor(most, kept, until, uptime) {
        this.size = Math.ceil(most / 48);
        this.most = Math.floor(most / this.size);
        this.groups = [];
        this.count = this.size;
        if (kept?.size === this.size && kept.most === this.most) Object.assign(this, structuredClone(kept));
        else if (kept) this.fill(until, uptime, 0);
    }

    fill(start, uptime, seconds) {
        this.count = this.size;
        this.groups = Array.from({ length: this.most }, (_, g) => {
            const back = ((this.most - 1 - g) * this.size + 1) * seconds;
            return [Math.max(start - back, 1), Math.max(uptime - Math.floor((9 * back) / 10), 0)];
        });
    }

    permits(start, uptime, seconds, ticks) {
        if (this.count < this.size || this.groups.length < this.most) return true;
        const [last, drew] = this.groups[0];
        return start - last >= seconds && uptime - drew >= ticks;
    }

    add(start, uptime) {
        if (this.count < this.size) this.groups.pop();
        else this.count = 0;
        this.count += 1;
        this.groups.push([start, uptime]);
        this.groups.splice(0, this.groups.length - this.most);
    }
}

export class Device {
    // `files`: read(name), write(name, value), remove(name); `ticks`: milliseconds that the counter shows.
    constructor(name, policy, files, words, ticks) {
        Object.assign(this, { name, policy, files, words, ticks, paused: null, slots: new Slots(), chain: new Map() });
        const kept = files.read('ledger');
        this.isLost = kept === undefined;
        this.ledger = structuredClone({ ...NEW, ...kept?.ledger });
        const { ledger } = this;
        ledger.cap = new Cap(policy.reports_per_period, kept?.ledger.cap, ledger.spentUntil, ledger.uptime);
        for (let i = 0; i < (kept?.reserved ?? 0); i++) ledger.cap.add(ledger.spentUntil, ledger.uptime);
        Object.assign(this, { fileUntil: ledger.spentUntil, reserved: 0, isUrgent: false, priced: null });
        Object.assign(this, { drewAt: null, restFrom: ledger.uptime + 1, countedAt: ticks(), issuedAt: 0, heardAt: 0 });
        [this.current, this.next] = [ledger.current, ledger.next].map((fingerprint) => this.load(fingerprint));
    }

    load(fingerprint) {
        const body = fingerprint && this.files.read(`campaign-${fingerprint}`);
        if (!body) return null;
        const campaign = parseCampaign(body);
        checkCampaign(this.policy, campaign);
        return campaign;
    }

    countTicks() {
        const seconds = Math.floor((this.ticks() - this.countedAt) / 1000);
        this.countedAt += 1000 * seconds;
        this.ledger.uptime += seconds;
    }

    // --- Campaigns ---

    accept(message, now, topic) {
        const { issuedAt, body, fingerprint, signature } = splitMessage(message);
        this.countTicks();
        for (const known of [this.current, this.next]) {
            if (known?.fingerprint !== fingerprint) continue;
            demand(topic === undefined || topic === known.name, 'topic');
            this.hear(issuedAt, now);
            return false;
        }
        checkSignature(this.policy, campaignDigest(body), signature);
        const campaign = parseCampaign(body);
        demand(topic === undefined || topic === campaign.name, 'topic');
        checkCampaign(this.policy, campaign);
        demand(isClose(now, issuedAt), 'clock');
        const hadNone = this.current === null;
        if (fingerprint === this.ledger.current || fingerprint === this.ledger.next) this.restore(campaign);
        else this.keep(campaign, now);
        this.hear(issuedAt, now);
        if (hadNone) this.paused = null;
        return true;
    }

    hear(issuedAt, now) {
        if (this.agrees(now) && !(issuedAt > this.issuedAt && isClose(now, issuedAt))) return;
        this.issuedAt = issuedAt;
        this.heardAt = this.ledger.uptime;
    }

    agrees(now) {
        const passed = this.ledger.uptime - this.heardAt;
        const late = Math.max(2 * DAY, 96 * (this.current?.seconds ?? 0));
        return passed <= DAY + late && isClose(now, this.issuedAt + passed);
    }

    restore(campaign) {
        this.store(`campaign-${campaign.fingerprint}`, campaign.body);
        if (campaign.fingerprint === this.ledger.current) this.current = campaign;
        else this.next = campaign;
    }

    keep(campaign, now) {
        const { ledger, policy } = this;
        this.begin(now);
        this.promote(now);
        const newest = this.next ?? this.current;
        demand(!newest || newest.name === campaign.name || now >= newest.end, 'sensor_busy');
        demand(campaign.end > now, 'ended');
        demand(campaign.epoch <= now + policy.lead_seconds, 'epoch_ahead');
        if (ledger.lastEpoch) {
            demand(campaign.epoch > ledger.lastEpoch, 'epoch_rollback');
            const least = policy.epoch_seconds || campaign.cycle * campaign.seconds;
            demand(campaign.epoch >= ledger.lastEpoch + least, 'epoch_too_soon');
        }
        demand(this.next === null, 'epoch_pending');
        const before = { ...ledger };
        if (campaign.rule.kind === 'stream') this.charge(campaign, now);
        ledger.lastEpoch = campaign.epoch;
        const place = this.current ? 'next' : 'current';
        ledger[place] = campaign.fingerprint;
        if (place === 'current') this.restartWindows();
        try {
            this.files.write(`campaign-${campaign.fingerprint}`, campaign.body);
            this.write(this.reserved);
        } catch {
            Object.assign(ledger, before);
            demand(false, 'storage');
        }
        this[place] = campaign;
    }

    store(name, value) {
        try {
            this.files.write(name, value);
        } catch {
            demand(false, 'storage');
        }
    }

    promote(now) {
        if (this.next === null || (this.current && now < this.next.epoch)) return;
        const { ledger } = this;
        this.files.remove(`campaign-${ledger.current}`);
        [this.current, this.next] = [this.next, null];
        [ledger.current, ledger.next] = [ledger.next, null];
        this.restartWindows();
    }

    restartWindows() {
        Object.assign(this.ledger, { window: 0, windowUntil: 0, reports: 0, chains: 0 });
        this.chain.clear();
    }

    charge(campaign, now) {
        const { ledger } = this;
        const { stream: limits, rest_by: restBy } = this.policy;
        const { rule } = campaign;
        const seconds = limits.period_seconds;
        const period = (second) => Math.floor(second / seconds);
        const isShort = restBy === 'ticks' && ledger.rho > 0n && ledger.uptime - ledger.rhoSince < inTicks(seconds);
        const goesOn = isShort || period(Math.max(campaign.epoch, now)) <= ledger.rhoPeriod;
        const total = rule.periodCharge(seconds, campaign) + (goesOn ? ledger.rho : 0n);
        demand(total <= streamCap(limits, rule), 'rho');
        const ever = ledger.everRho + rule.lifeCharge(campaign);
        demand(!limits.lifetime || ever <= limits.lifetime, 'rho');
        ledger.rho = total;
        ledger.everRho = ever;
        ledger.rhoPeriod = Math.max(period(campaign.end - 1), ledger.rhoPeriod);
        if (!goesOn) ledger.rhoSince = ledger.uptime;
    }

    // --- The ledger ---

    begin(now) {
        const { ledger, policy } = this;
        const wasBegun = this.files.read('begun') !== undefined;
        if (this.isLost) {
            this.isLost = false;
            ledger.spentUntil = this.fileUntil = now;
            if (wasBegun) {
                ledger.uptime += policy.period_seconds;
                this.restFrom += policy.period_seconds;
                ledger.cap.fill(now, ledger.uptime, policy.slot_seconds);
                ledger.units = BigInt(policy.lifetime);
                if (policy.stream) this.loseStreams(now);
            }
            try {
                this.write(0);
            } catch {
                demand(false, 'storage');
            }
        } else if (wasBegun) return;
        this.store('begun', true);
    }

    loseStreams(now) {
        const { ledger } = this;
        const { stream: limits } = this.policy;
        ledger.rho = LARGEST_RHO;
        ledger.rhoPeriod = Math.floor(now / limits.period_seconds);
        ledger.rhoSince = ledger.uptime;
        if (ledger.everRho < limits.lifetime) ledger.everRho = limits.lifetime;
    }

    // Write the ledger, in which `reserved` further reports count as drawn.
    write(reserved) {
        const { ledger } = this;
        const kept = structuredClone({ ...ledger, cap: { ...ledger.cap } });
        kept.spentUntil = Math.max(ledger.spentUntil, this.fileUntil);
        kept.sequence += reserved;
        kept.reports = Math.min(kept.reports + reserved, 65535);
        kept.units += BigInt(reserved) * (this.priced?.units ?? 0n);
        this.files.write('ledger', { ledger: kept, reserved });
        this.isUrgent = false;
    }

    cost(campaign) {
        if (this.priced?.campaign !== campaign) {
            const costs = campaign.rule.mechanisms.map((mechanism) => units(...mechanism.certificate()));
            this.priced = { campaign, units: costs.reduce((most, cost) => (cost > most ? cost : most), 0n) };
            this.reserved = 0;
        }
        return this.priced.units;
    }

    // --- Slots and reports ---

    observe(sample, now) {
        this.look(now);
        this.slots.observe(sample, this.ticks());
    }

    look(now) {
        this.countTicks();
        if (this.slots.contains(now)) return;
        const end = this.slots.end(this.ticks());
        this.promote(now);
        if (this.current === null) this.paused = 'no_campaign';
        else this.slots.begin(this.current, now, end, this.ledger.uptime, this.ticks());
    }

    closeSlot(now) {
        this.look(now);
        const { finished } = this.slots;
        if (finished === null) return null;
        this.paused = this.obstacle(finished, now);
        if (this.paused === 'rate') return null;
        this.slots.finished = null;
        return this.paused === null ? this.release(finished) : null;
    }

    obstacle(finished, now) {
        const { campaign, slot } = finished;
        if (!this.agrees(now)) return 'clock';
        const pause = this.pause(finished, now);
        if (!campaign.schedule.isTurn(campaign.schedule.place(this.name), slot)) return 'turn';
        return (
            this.spentWord(finished, now) ??
            (campaign.rule.kind === 'stream' ? this.streamWord(campaign, slot) : null) ??
            pause
        );
    }

    beginOf({ campaign, slot }) {
        return (campaign.measure === 'counter' ? slot - 1 : slot) * campaign.seconds;
    }

    spentWord(finished, now) {
        const { ledger, policy } = this;
        const { campaign, slot, opened } = finished;
        const { rest_seconds: rest, period_seconds: period, reports_per_period: most } = policy;
        const byTicks = policy.rest_by === 'ticks';
        const start = slot * campaign.seconds;
        if (slot < campaign.first) return 'waiting';
        if (slot > campaign.last) return 'ended';
        if (start + campaign.seconds > now) return 'ahead';
        if (start < ledger.spentUntil) {
            if (byTicks && !policy.stream && ledger.spentUntil > now + DAY + policy.write_seconds) this.correct(now);
            return 'spent';
        }
        const hasRested =
            this.beginOf(finished) >= ledger.spentUntil + rest && (!byTicks || opened - this.restFrom >= inTicks(rest));
        if (rest && !hasRested) return 'rest';
        if (this.drewAt === null) {
            const isDayOver = Math.floor(now / DAY) > ledger.day;
            if (!policy.one_shot && !isDayOver && ledger.boots >= policy.boots_per_day) return 'boots';
        } else if (policy.one_shot) return 'one_shot';
        else if (this.ticks() - this.drewAt < 900 * campaign.seconds) return 'rate';
        const byClock = most * policy.slot_seconds >= period ? 0 : period;
        if (!ledger.cap.permits(start, ledger.uptime, byClock, byTicks ? inTicks(period) : 0)) return 'period';
        const { lifetime } = policy;
        return lifetime && ledger.units + this.cost(campaign) > BigInt(lifetime) ? 'lifetime' : null;
    }

    // A clock that was far ahead has been corrected.
    correct(now) {
        const { ledger } = this;
        ledger.spentUntil = this.fileUntil = now;
        ledger.day = Math.min(ledger.day, Math.floor(now / DAY));
        for (const group of ledger.cap.groups) group[0] = Math.min(group[0], now);
        this.reserved = 0;
        this.drewAt = this.ticks();
        this.restFrom = ledger.uptime + 1;
    }

    pause(finished, now) {
        const pause = this.files.read('pause');
        if (!pause || pause[1] <= pause[0]) return null;
        const [from, until] = pause;
        const { uptime } = this.ledger;
        const end = (finished.slot + 1) * finished.campaign.seconds;
        const ahead = Math.max(from - now, 0);
        if (this.span === undefined) {
            const begins = ahead ? uptime + ahead + Math.floor(ahead / 32) + 1 : Math.min(uptime, uptime + from - end);
            this.span = { begins, ends: uptime + ahead + inTicks(until - from) };
        } else if (ahead) {
            this.span.begins = Math.min(this.span.begins, uptime + ahead + Math.floor(ahead / 32) + 1);
            this.span.ends = Math.max(this.span.ends, uptime + ahead + inTicks(until - from));
        }
        const byClock = this.beginOf(finished) < until && from < end;
        const byTicks =
            this.policy.rest_by === 'ticks' && finished.opened < this.span.ends && this.span.begins < uptime;
        return byClock || byTicks ? 'pause' : null;
    }

    streamWord(campaign, slot) {
        const { ledger } = this;
        const { rule } = campaign;
        if (campaign.fingerprint !== ledger.current) return 'ended';
        const window = rule.window(campaign, slot);
        const isLater = window > ledger.window;
        const [reports, chains] = isLater ? [0, 0] : [ledger.reports, ledger.chains];
        if (reports >= rule.reports) return 'reports';
        const length = inTicks(rule.renewal * campaign.seconds);
        if (this.policy.rest_by === 'ticks' && isLater && ledger.windowUntil > ledger.uptime + length) return 'window';
        return chains >= rule.chains && this.chainOf(rule, window, slot) === null ? 'chains' : null;
    }

    chainOf(rule, window, slot) {
        const chain = this.chain.get(slot % rule.lag);
        if (!chain || window !== this.ledger.window) return null;
        const missed = Math.floor((slot - chain.slot) / rule.lag) - 1;
        return rule.restart && missed >= rule.restart ? null : chain;
    }

    release({ campaign, slot, value }) {
        const { ledger, policy } = this;
        const { fingerprint, seconds, rule, schedule } = campaign;
        const isCohort = schedule.isCohort(schedule.place(this.name), slot);
        this.words.refill();
        const reading = value ?? Array(rule.dimension).fill(campaign.default);
        const drawn =
            rule.kind === 'stream'
                ? this.drawStream(campaign, slot, reading)
                : this.drawScalar(campaign, slot, reading[0], isCohort);
        const report = packReport({ ...drawn, fingerprint, slot, sequence: ledger.sequence + 1 });
        const start = slot * seconds;
        ledger.units += this.cost(campaign);
        ledger.spentUntil = start + seconds;
        ledger.sequence += 1;
        ledger.cap.add(start, ledger.uptime);
        if (this.drewAt === null) {
            const day = Math.floor(ledger.spentUntil / DAY);
            if (day > ledger.day) Object.assign(ledger, { day, boots: 0 });
            ledger.boots += 1;
        }
        this.drewAt = this.ticks();
        this.restFrom = ledger.uptime + 1;
        ledger.waiting = [...ledger.waiting, report].slice(-MOST_WAITING);
        if (this.commit(seconds + policy.rest_seconds)) return report;
        ledger.waiting.pop();
        this.paused = 'storage';
        return null;
    }

    commit(apart) {
        const { ledger } = this;
        if (ledger.spentUntil <= this.fileUntil && this.reserved && !this.isUrgent) {
            this.reserved -= 1;
            return true;
        }
        const ahead = Math.ceil(this.policy.write_seconds / apart) - 1;
        const before = this.fileUntil;
        this.fileUntil = ledger.spentUntil + ahead * apart;
        try {
            this.write(ahead);
        } catch {
            this.fileUntil = before;
            this.chain.clear();
            return false;
        }
        this.reserved = ahead;
        return true;
    }

    drawScalar(campaign, slot, reading, isCohort) {
        const { rule } = campaign;
        const at = slot % campaign.cycle;
        const [, low, high] = isCohort ? [0, 0, campaign.bound] : rule.ranges.findLast(([first]) => first <= at);
        const x = Math.min(Math.max(reading - campaign.offset, low), high) - low;
        const { symbol } = drawSymbol(isCohort ? rule.cohort : rule.report, x, high - low, this.words);
        return { kind: isCohort ? 0 : 1, values: [symbol], chain: 0 };
    }

    drawStream(campaign, slot, reading) {
        const { ledger } = this;
        const { rule } = campaign;
        const window = rule.window(campaign, slot);
        const chain = this.chainOf(rule, window, slot);
        const { index, point, sent } = rule.draw(reading, campaign.offset, chain, this.words);
        if (window !== ledger.window) {
            Object.assign(ledger, { window, reports: 0, chains: 0 });
            this.chain.clear();
        }
        if (!ledger.reports)
            ledger.windowUntil = Math.max(ledger.windowUntil, ledger.uptime) + rule.renewal * campaign.seconds;
        if (chain === null) {
            ledger.chains += 1;
            this.isUrgent = true;
        }
        ledger.reports += 1;
        this.chain.set(slot % rule.lag, { index, point, sent, slot });
        return { kind: 2, values: sent, chain: index };
    }

    acked(report) {
        this.ledger.waiting = this.ledger.waiting.filter((waiting) => waiting !== report);
    }
}
