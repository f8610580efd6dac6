// The policy of a device's owner, the checks of signatures and campaigns against it, and hand-overs.
import { createPublicKey, verify } from 'node:crypto';
import { parseJson } from './campaign.mjs';
import { LARGEST_RHO } from './stream.mjs';
import { DAY, demand, demandFields, demandName, demandText, demandWhole, isObject, SMALL, sha256 } from './values.mjs';

const NEEDED = ['version', 'sensor', 'measures', 'cap', 'slot_seconds', 'theta', 'duration_seconds'];
const DEFAULTS = {
    unit: '',
    until: 0,
    agreed: '',
    stream: false,
    period_seconds: DAY,
    reports_per_period: 48,
    rest_seconds: 0,
    rest_by: null,
    lifetime: 0,
    epoch_seconds: 0,
    boots_per_day: 4,
    write_seconds: 60,
    lead_seconds: DAY,
    one_shot: false,
    signers: [],
    insecure: false,
    handover: false,
};

export function parsePolicy(fields) {
    demand(NEEDED.every((name) => name in fields));
    const policy = { ...DEFAULTS, ...fields };
    demandFields(policy, [...NEEDED, ...Object.keys(DEFAULTS)]);
    demandWhole(policy.version, 1, 1);
    demandName(policy.sensor);
    demandWhole(policy.rest_seconds, 0, 518400);
    policy.rest_by ??= policy.one_shot ? 'clock' : 'ticks';
    demand(policy.rest_by === 'clock' || (policy.rest_by === 'ticks' && !policy.one_shot));
    demand(policy.signers.length ? policy.signers.length <= 4 : policy.insecure && !policy.handover);
    if (policy.stream) policy.stream = parseLimits(policy.stream);
    return policy;
}

function parseLimits(fields) {
    const limits = { laws: ['gaussian', 'one-bit'], dimension: 1, per_report: false, lifetime: 0, ...fields };
    const rho =
        'epsilon' in fields ? rhoBelow(fields.epsilon.map(BigInt), BigInt(fields.delta_bits)) : BigInt(fields.rho);
    demand(rho >= 1n && rho <= LARGEST_RHO);
    return { ...limits, rho, lifetime: BigInt(limits.lifetime) };
}

function rhoBelow([p, q], bits) {
    let [low, high] = [0n, LARGEST_RHO];
    while (low < high) {
        const rho = (low + high + 1n) / 2n;
        const rest = (p << 20n) - q * rho;
        if (rest >= 0n && 36n * rest * rest >= (100n * bits * rho * q * q) << 20n) low = rho;
        else high = rho - 1n;
    }
    return low;
}

// What Ed25519's public keys have before their 32 bytes in DER.
const DER = Buffer.from('302a300506032b6570032100', 'hex');

export function isSigned(key, digest, signature) {
    try {
        const parsed = createPublicKey({ key: Buffer.concat([DER, key]), format: 'der', type: 'spki' });
        return verify(null, digest, parsed, signature);
    } catch {
        return false;
    }
}

const signedByAny = (policy, digest, signature) =>
    policy.signers.some((key) => isSigned(Buffer.from(key, 'hex'), digest, signature));

export function checkSignature(policy, digest, signature) {
    demand(!policy.signers.length || signedByAny(policy, digest, signature), 'signature');
}

// A campaign by itself, under the owner's limits.
export function checkCampaign(policy, campaign) {
    const { rule } = campaign;
    const [p, q] = policy.cap.map(BigInt);
    demand(campaign.sensor === policy.sensor, 'sensor');
    demand(policy.measures.includes(campaign.measure), 'measure');
    demand(!policy.unit || campaign.unit === policy.unit, 'unit');
    demand(campaign.seconds >= policy.slot_seconds, 'slot_seconds');
    demand(campaign.end - campaign.epoch <= policy.duration_seconds, 'duration');
    demand(!policy.until || campaign.end <= policy.until, 'until');
    demand(rule.kind !== 'stream' || policy.stream, 'stream');
    demand(
        rule.ranges.every(([, , theta]) => policy.theta[0] <= theta && theta <= policy.theta[1]),
        'theta',
    );
    const isAllowed = ([a, b]) => BigInt(a) * q <= p * BigInt(b);
    demand(
        rule.mechanisms.every((mechanism) => isAllowed(mechanism.certificate())),
        'epsilon',
    );
    if (rule.kind === 'stream') checkStream(policy, campaign, rule);
}

function checkStream(policy, campaign, rule) {
    const limits = policy.stream;
    demand(!policy.rest_seconds, 'rest');
    demand(limits.laws.includes(rule.law) && limits.dimension === rule.dimension, 'stream');
    if (limits.per_report) {
        demand(rule.reports <= Math.min(campaign.last - campaign.first + 1, rule.renewal || rule.reports), 'rho');
        demand(rule.reportCharge() <= limits.rho, 'rho');
    }
    demand(rule.periodCharge(limits.period_seconds, campaign) <= streamCap(limits, rule), 'rho');
}

// The largest charge of a period in which this stream reports.
export function streamCap(limits, rule) {
    const cap = limits.per_report ? limits.rho * BigInt(rule.reports) : limits.rho;
    return cap < LARGEST_RHO ? cap : LARGEST_RHO;
}

const ENTRY = ['host', 'port', 'campaigns', 'agreed'];

function checkEntry(entry) {
    demand(isObject(entry) && Object.keys(entry).every((name) => ENTRY.includes(name)));
    const { host, port, campaigns, agreed } = entry;
    demand((host === undefined) === (port === undefined));
    if (host !== undefined) {
        demandText(host, 255);
        demandWhole(port, 1, 65535);
    }
    if (campaigns !== undefined) {
        demand(Array.isArray(campaigns));
        demandWhole(campaigns.length, 1, 4);
        campaigns.forEach(demandName);
    }
    if (agreed !== undefined) {
        demand(campaigns !== undefined && Array.isArray(agreed));
        demandWhole(agreed.length, 1, 16);
        demand(agreed.every((text) => /^[0-9a-f]{32}$/.test(text)));
    }
}

// The state that follows from the hand-overs that a device has heard.
export class HandOvers {
    constructor(policy, campaign, device) {
        Object.assign(this, { policy, campaign, device, number: 0, kept: {} });
    }

    // Return the new state, null if nothing has changed.
    take(trailer, now) {
        const { policy } = this;
        demand(trailer.length > 64);
        const body = trailer.subarray(0, -64);
        const fields = demandFields(parseJson(body.toString()), ['all', 'campaign', 'devices', 'number']);
        demandName(fields.campaign);
        demandWhole(fields.number, 1, 4 * SMALL - 1);
        demand(isObject(fields.devices) && Object.keys(fields.devices).every((key) => /^[0-9a-f]{16}$/.test(key)));
        [fields.all, ...Object.values(fields.devices)].forEach(checkEntry);
        demand(fields.campaign === this.campaign, 'topic');
        if (fields.number <= this.number) return null;
        const digest = sha256('undertone hand-over 1\n', body);
        demand(signedByAny(policy, digest, trailer.subarray(-64)), 'signature');
        demand(fields.number <= now + policy.lead_seconds, 'ahead');
        const key = sha256(`undertone hand-over device 1\n${fields.campaign}\n${this.device}`).toString('hex', 0, 8);
        const { campaigns, agreed = [], ...place } = { ...fields.all, ...fields.devices[key] };
        const before = JSON.stringify(this.kept);
        this.kept = { ...this.kept, ...place };
        this.number = fields.number;
        if (campaigns) this.follow(campaigns, policy.agreed !== '' && agreed.includes(policy.agreed));
        return JSON.stringify(this.kept) === before ? null : this.kept;
    }

    follow(campaigns, isAgreed) {
        const { outside, ...kept } = this.kept;
        if (!isAgreed) {
            this.kept.outside = campaigns;
            return;
        }
        if (JSON.stringify(kept.campaigns) !== JSON.stringify(campaigns)) {
            kept.history = [...(kept.history ?? []), [this.number, campaigns]].slice(-8);
        }
        this.kept = { ...kept, campaigns };
    }
}
