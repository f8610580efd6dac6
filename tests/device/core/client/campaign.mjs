// The bytes of reports and campaigns: parsing, limits of the fields, schedules, topics.
import { parseMechanism } from './mechanisms.mjs';
import { parseStream } from './stream.mjs';
import {
    demand,
    demandFields,
    demandName,
    demandText,
    demandWhole,
    divisor,
    isObject,
    isWhole,
    SMALL,
    sha256,
} from './values.mjs';

const U32 = 2 ** 32 - 1;
const MEASURES = ['sum', 'mean', 'last', 'max', 'duration', 'counter'];
const FIELDS =
    'version campaign sensor unit measure offset bound slot_seconds cycle epoch last_slot default cohort rule schedule';

export function packReport({ kind, fingerprint, slot, values, sequence, chain }) {
    const stream = kind === 2;
    demand([0, 1, 2].includes(kind) && /^[0-9a-f]{16}$/.test(fingerprint));
    demand(isWhole(slot, 0, U32) && isWhole(sequence, 1, U32));
    demand(stream ? isWhole(chain, 1, 65535) : chain === 0);
    demandWhole(values.length, 1, stream ? 8 : 1);
    demand(values.every((value) => (stream ? isWhole(value, -(2 ** 31), 2 ** 31 - 1) : isWhole(value, 0, U32))));
    const report = Buffer.alloc(20 + 4 * values.length);
    report.set([2, kind]);
    report.write(fingerprint, 2, 'hex');
    report.writeUInt32BE(slot, 10);
    report.writeUInt32BE(values[0] >>> 0, 14);
    report.writeUInt16BE(chain, 18);
    report.writeUInt32BE(sequence, 20);
    values.slice(1).forEach((value, i) => report.writeInt32BE(value, 24 + 4 * i));
    return report.toString('hex');
}

export function unpackReport(report) {
    demand(report.length >= 24 && report.length <= 52 && report.length % 4 === 0 && report[0] === 2 && report[1] <= 2);
    const stream = report[1] === 2;
    const [chain, sequence] = [report.readUInt16BE(18), report.readUInt32BE(20)];
    demand(sequence >= 1 && (stream ? chain >= 1 : chain === 0 && report.length === 24));
    const values = [stream ? report.readInt32BE(14) : report.readUInt32BE(14)];
    for (let at = 24; at < report.length; at += 4) values.push(report.readInt32BE(at));
    const fingerprint = report.toString('hex', 2, 10);
    return { kind: report[1], fingerprint, slot: report.readUInt32BE(10), values, chain, sequence };
}

export function topics({ prefix, campaign, device }) {
    [campaign, device].forEach(demandName);
    const shard = sha256(device)[0] % 64;
    return { config: `${prefix}/${campaign}/config`, report: `${prefix}/${campaign}/${shard}/${device}/report` };
}

export class Schedule {
    constructor(seed, stride, cohort) {
        demand(typeof seed === 'string' && /^[0-9a-fA-F]{32}$/.test(seed));
        demandWhole(stride, 1, 2 ** 20);
        demandWhole(cohort, 0, 2 ** 20);
        demand(!cohort || divisor(cohort, stride) === 1);
        Object.assign(this, { seed, stride, cohort });
    }

    place(device) {
        const digest = sha256(Buffer.from(this.seed, 'hex'), device);
        return (
            (digest.readUInt32BE(0) + this.stride * digest.readUInt32BE(4)) % (this.stride * this.cohort || this.stride)
        );
    }

    isTurn(place, slot) {
        return (slot + place) % this.stride === 0;
    }

    isCohort(place, slot) {
        return this.cohort > 0 && (slot + place) % (this.stride * this.cohort) === 0;
    }
}

// JSON with sorted keys, without white space and escapes; text that needs an escape gives other bytes.
function canonical(value) {
    if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
    if (isObject(value))
        return `{${Object.keys(value)
            .sort()
            .map((key) => `"${key}":${canonical(value[key])}`)
            .join()}}`;
    return typeof value === 'string' ? `"${value}"` : String(value);
}

export function parseJson(text) {
    try {
        return JSON.parse(text);
    } catch {
        return demand(false);
    }
}

function parseScalar(fields, schedule) {
    const { kind, mechanism, ranges } = demandFields(fields.rule, ['kind', 'mechanism', 'ranges']);
    const cohort = parseMechanism(fields.cohort);
    demand(fields.cohort.kind === 'square-wave');
    demand(Array.isArray(ranges) && ranges.length <= 8 && ranges.length > 0 === (mechanism !== null));
    if (mechanism === null) {
        demand(schedule.cohort === 1);
        return { kind, cohort, ranges, report: null, mechanisms: [cohort], dimension: 1 };
    }
    const report = parseMechanism(mechanism);
    demand(mechanism.kind !== 'square-wave');
    ranges.forEach((block, i) => {
        demand(Array.isArray(block) && block.length === 3);
        const [first, low, theta] = block;
        demand(i ? isWhole(first, ranges[i - 1][0] + 1, fields.cycle - 1) : first === 0);
        demand(isWhole(low, 0, SMALL) && isWhole(theta, low + 1, fields.bound) && report.covers(theta - low));
    });
    return { kind, cohort, ranges, report, mechanisms: [cohort, report], dimension: 1 };
}

// A campaign from its body.
export function parseCampaign(body) {
    demand(body.length <= 12288);
    const fields = parseJson(body.toString('utf8'));
    demand(Buffer.from(canonical(fields)).equals(body));
    demandFields(fields, FIELDS.split(' '));
    const { campaign: name, slot_seconds: seconds, cycle, epoch, offset, bound, rule } = fields;
    demandWhole(fields.version, 2, 2);
    [name, fields.sensor].forEach(demandName);
    demandText(fields.unit, 16);
    demand(MEASURES.includes(fields.measure));
    demandWhole(offset, 1 - SMALL, SMALL - 1);
    demandWhole(bound, 1, SMALL - 1);
    demandWhole(seconds, 1, 604800);
    demandWhole(cycle, 1, 2 ** 20);
    demand(isWhole(epoch, 0, U32) && epoch % seconds === 0);
    const first = epoch / seconds;
    demandWhole(fields.last_slot, first, Math.floor(U32 / seconds) - 1);
    demandWhole(fields.default, offset, offset + bound);
    const {
        seed,
        stride,
        cohort_stride: cohortStride,
    } = demandFields(fields.schedule, ['seed', 'stride', 'cohort_stride']);
    const schedule = new Schedule(seed, stride, cohortStride);
    demand(divisor(stride, cycle) === 1 && (!cohortStride || divisor(cohortStride, cycle) === 1));
    const rules = { scalar: parseScalar, stream: parseStream };
    demand(typeof rule?.kind === 'string' && Object.hasOwn(rules, rule.kind));
    return {
        ...fields,
        name,
        seconds,
        first,
        last: fields.last_slot,
        end: (fields.last_slot + 1) * seconds,
        fingerprint: sha256(body).toString('hex', 0, 8),
        schedule,
        rule: rules[rule.kind](fields, schedule),
        body,
    };
}

export const campaignDigest = (body) => sha256('undertone campaign 2\n', body);

// The parts of a campaign's message; the body is not parsed.
export function splitMessage(message) {
    demandWhole(message.length, 77, 76 + 12288);
    demand(message.toString('latin1', 0, 4) === 'UTC2');
    const length = message.readUInt32BE(8);
    const after = message.length - 76 - length;
    demand(length > 0 && (after === 0 || after > 64));
    const body = message.subarray(12, 12 + length);
    return {
        issuedAt: message.readUInt32BE(4),
        body,
        fingerprint: sha256(body).toString('hex', 0, 8),
        signature: message.subarray(12 + length, 76 + length),
    };
}
