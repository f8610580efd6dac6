// A client in JavaScript, written from docs/wire.md. Its arguments are files of vectors. It prints its
// answer to each vector whose expected answer is another one, and the number of vectors of each file. It exits with 0
// if no answer differs.
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import {
    campaignDigest,
    packReport,
    parseCampaign,
    Schedule,
    splitMessage,
    topics,
    unpackReport,
} from './campaign.mjs';
import { Device } from './device.mjs';
import { drawSymbol, parseMechanism } from './mechanisms.mjs';
import { HandOvers, isSigned, parsePolicy } from './policy.mjs';
import { Refused, Words } from './values.mjs';

const hex = (text) => Buffer.from(text, 'hex');

// The answer, or { refused: reason }.
function attempt(answer) {
    try {
        return answer();
    } catch (error) {
        if (error instanceof Refused) return { refused: error.reason };
        throw error;
    }
}

function messageOf({ body, issued_at: issuedAt, signature = '00'.repeat(64) }) {
    const header = Buffer.from('UTC2\0\0\0\0\0\0\0\0', 'latin1');
    header.writeUInt32BE(issuedAt, 4);
    header.writeUInt32BE(Buffer.byteLength(body), 8);
    return Buffer.concat([header, Buffer.from(body), hex(signature)]);
}

// Files of a device; none can be written while it is broken.
class Files {
    constructor() {
        this.files = new Map();
        this.isBroken = false;
    }

    read(name) {
        return this.files.get(name);
    }

    write(name, value) {
        if (this.isBroken) throw new Error('storage');
        this.files.set(name, value);
    }

    remove(name) {
        this.files.delete(name);
    }
}

function live({ device: name, policy, seed, now: begin, steps }) {
    const [files, words, limits] = [new Files(), new Words(seed), parsePolicy(policy)];
    let [now, ticks, device] = [begin, 0, null];
    const answers = [];
    for (const step of steps) {
        const { seconds = 0, lose = [], accept, observe = [] } = step;
        now += seconds;
        ticks += 1000 * (step.ticks ?? seconds);
        lose.forEach((file) => files.remove(file));
        files.isBroken = step.broken ?? files.isBroken;
        if (step.pause) files.files.set('pause', step.pause);
        if (device === null || step.boot) device = new Device(name, limits, files, words, () => ticks);
        const answer = attempt(() => {
            const made = {};
            if (accept) made.new = device.accept(messageOf(accept), now, accept.topic);
            observe.forEach((sample) => device.observe(sample, now));
            if (step.close) {
                made.report = device.closeSlot(now);
                made.paused = device.paused;
            }
            if (step.acked !== undefined) device.acked(answers[step.acked].report);
            return made;
        });
        answers.push({ ...answer, waiting: device.ledger.waiting.length });
    }
    return { answers };
}

const PLAYERS = {
    reports: (given) => ({ report: packReport(given) }),
    received: ({ report }) => unpackReport(hex(report)),
    topics,
    campaigns(given) {
        const { issuedAt, body, fingerprint } = splitMessage(
            given.message === undefined ? messageOf(given) : hex(given.message),
        );
        const { first, end } = parseCampaign(body);
        const digest = campaignDigest(body).toString('hex');
        return { issued_at: issuedAt, fingerprint, signed_digest: digest, first_slot: first, end };
    },
    mechanisms({ mechanism }) {
        const made = parseMechanism(mechanism);
        const weights = Array.from({ length: made.levels + 1 }, (_, level) => made.weights(level));
        return { symbols: made.symbols, certificate: made.certificate(), total: made.total, weights };
    },
    draws({ mechanism, theta, reading, seed }) {
        const words = new Words(seed);
        words.refill();
        return { ...drawSymbol(parseMechanism(mechanism), reading, theta, words), words: words.used };
    },
    schedules({ seed, stride, cohort_stride: cohort, device, from, to }) {
        const schedule = new Schedule(seed, stride, cohort);
        const place = schedule.place(device);
        const slots = Array.from({ length: to - from }, (_, i) => from + i);
        const turns = slots.filter((slot) => schedule.isTurn(place, slot));
        return { place, turns, cohort: slots.filter((slot) => schedule.isCohort(place, slot)) };
    },
    signatures: ({ key, digest, signature }) => ({ valid: isSigned(hex(key), hex(digest), hex(signature)) }),
    handovers({ policy, campaign, device, handovers, now }) {
        const kept = new HandOvers(parsePolicy(policy), campaign, device);
        return { states: handovers.map((trailer) => attempt(() => kept.take(hex(trailer), now))) };
    },
    lives: live,
};

let differences = 0;
for (const path of process.argv.slice(2)) {
    const { kind, vectors } = JSON.parse(readFileSync(path, 'utf8'));
    for (const { name, given, expected } of vectors) {
        const made = attempt(() => PLAYERS[kind](given));
        if (!isDeepStrictEqual(made, expected)) {
            console.log(`${path}: ${name}: ${JSON.stringify(made)}`);
            differences += 1;
        }
    }
    console.log(`${path}: ${vectors.length} vectors`);
}
process.exit(differences ? 1 : 0);
