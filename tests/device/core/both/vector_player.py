"""Plays the vectors of docs/vectors: computes this code's answer to each vector's input. docs/wire.md explains them."""

import binascii
import hashlib
import json
import struct

from rig import Memory, Ticks

from undertone_device.core import handover, pauses
from undertone_device.core.guard import Guard
from undertone_device.core.ledger import Ledger
from undertone_device.core.reporter import Reporter
from undertone_shared import ed25519
from undertone_shared.campaign import Campaign, body_of, digest_of, header
from undertone_shared.entropy import Entropy, EntropyError
from undertone_shared.errors import Invalid, Refused
from undertone_shared.notation import parse_mechanism
from undertone_shared.off_board import intake
from undertone_shared.policy import parse_policy
from undertone_shared.report import LENGTH, pack
from undertone_shared.schedule import Schedule
from undertone_shared.topics import check_name, config_topic, report_topic


def play(kind, given):
    """Return the answer to a vector's input as a JSON value: the output, or {"refused": reason}."""
    try:
        return PLAYERS[kind](given)
    except Refused as refused:
        return {"refused": refused.reason}
    except Invalid:
        return {"refused": "invalid"}
    except EntropyError:
        return {"refused": "entropy"}


class Blocks:
    """The source of random bytes in vectors: block i, counted from 1, is sha256(seed + i in decimal digits)."""

    def __init__(self, seed):
        self.seed = seed.encode()
        self.count = 0

    def __call__(self, n):
        data = b""
        while len(data) < n:
            self.count += 1
            data += hashlib.sha256(self.seed + b"%d" % self.count).digest()
        return data[:n]


def message_of(given):
    """Return the bytes of a campaign message: header, body, signature."""
    body = given["body"].encode()
    signature = bytes.fromhex(given["signature"]) if "signature" in given else bytes(64)
    return struct.pack(">4sII", b"UTC2", given["issued_at"], len(body)) + body + signature


def _report(given):
    fingerprint = bytes.fromhex(given["fingerprint"])
    values = tuple(given["values"])
    report = pack(given["kind"], fingerprint, given["slot"], values, given["sequence"], given["chain"])
    return {"report": _hex(report)}


def _received(given):
    read = intake.unpack(bytes.fromhex(given["report"]))
    return {
        "kind": read.kind,
        "fingerprint": _hex(read.fingerprint),
        "slot": read.slot,
        "values": list(read.values),
        "chain": read.chain,
        "sequence": read.sequence,
    }


def _topic(given):
    campaign = check_name("campaign", given["campaign"])
    device = check_name("device", given["device"])
    return {
        "config": config_topic(given["prefix"], campaign),
        "report": report_topic(given["prefix"], campaign, device),
    }


def _campaign(given):
    message = bytes.fromhex(given["message"]) if "message" in given else message_of(given)
    issued_at, fingerprint = header(message)
    body = bytes(body_of(message))
    campaign = Campaign(body)
    assert campaign.fingerprint == fingerprint
    return {
        "issued_at": issued_at,
        "fingerprint": _hex(fingerprint),
        "signed_digest": _hex(digest_of(body)),
        "first_slot": campaign.first_slot,
        "end": campaign.end,
    }


def _mechanism(given):
    # The parser removes what it has read, so it gets a copy.
    mechanism = parse_mechanism("mechanism", json.loads(json.dumps(given["mechanism"])))
    return {
        "symbols": mechanism.symbols,
        "certificate": list(mechanism.certificate()),
        "total": mechanism.row_total(),
        "weights": [mechanism.weights(level) for level in range(mechanism.levels + 1)],
    }


def _draw(given):
    mechanism = parse_mechanism("mechanism", json.loads(json.dumps(given["mechanism"])))
    entropy = Entropy(Blocks(given["seed"]))
    entropy.refill()
    words = entropy.left
    part = mechanism.choose(entropy)
    level = part.level(given["reading"], given["theta"], entropy)
    symbol = part.draw(level, entropy)
    return {"level": level, "symbol": symbol, "words": words - entropy.left}


def _schedule(given):
    schedule = Schedule(bytes.fromhex(given["seed"]), given["stride"], given["cohort_stride"])
    place = schedule.place(given["device"])
    slots = range(given["from"], given["to"])
    return {
        "place": place,
        "turns": [slot for slot in slots if schedule.is_turn(place, slot)],
        "cohort": [slot for slot in slots if schedule.is_member(place, slot)],
    }


def _signature(given):
    key = bytes.fromhex(given["key"])
    return {"valid": bool(ed25519.verify(key, bytes.fromhex(given["digest"]), bytes.fromhex(given["signature"])))}


def _handover(given):
    """Return the result of each hand-over in a device's life: the whole new state, None for no change, or a refusal."""
    policy = parse_policy(json.dumps(given["policy"]).encode())
    storage = Memory()
    guard = Guard(policy, storage, Ledger(storage, 1), Ticks(), None, {})
    states = []
    for trailer in given["handovers"]:
        try:
            states.append(
                handover.take(bytes.fromhex(trailer), given["campaign"], given["device"], guard, given["now"], None)
            )
        except Refused as refused:
            states.append({"refused": refused.reason})
        except Invalid:
            states.append({"refused": "invalid"})
    return {"states": states}


def _life(given):
    """Return the answers of a device to steps.

    In each step, seconds pass by the device's clock and by its ticks. docs/wire.md lists what a step may have.
    """
    policy = parse_policy(json.dumps(given["policy"]).encode())
    storage = Memory()
    entropy = Entropy(Blocks(given["seed"]))
    ticks = Ticks()
    now = given["now"]
    reporter = None
    answers = []
    for step in given["steps"]:
        now += step.get("seconds", 0)
        ticks.now += 1000 * step.get("ticks", step.get("seconds", 0))
        for name in step.get("lose", ()):
            storage.delete(name)
        storage.broken = step.get("broken", storage.broken)
        if "pause" in step:
            pauses.write(storage, tuple(step["pause"]))
        if reporter is None or "boot" in step:
            reporter = Reporter(given["device"], policy, storage, entropy, ticks)
        answer = {}
        try:
            if "accept" in step:
                answer["new"] = reporter.accept(message_of(step["accept"]), now, step["accept"].get("topic"))
            if "observe" in step:
                for sample in step["observe"]:
                    reporter.observe(tuple(sample) if isinstance(sample, list) else sample, now)
            if "close" in step:
                report = reporter.close_slot(now)
                answer["report"] = None if report is None else _hex(report)
                answer["paused"] = reporter.paused
            if "acked" in step:
                reporter.acked(bytes.fromhex(answers[step["acked"]]["report"]))
        except Refused as refused:
            answer["refused"] = refused.reason
        except Invalid:
            answer["refused"] = "invalid"
        answer["waiting"] = len(reporter.outbox)
        answers.append(answer)
    return {"answers": answers}


def _hex(data):
    return binascii.hexlify(data).decode()


PLAYERS = {
    "reports": _report,
    "received": _received,
    "topics": _topic,
    "campaigns": _campaign,
    "mechanisms": _mechanism,
    "draws": _draw,
    "schedules": _schedule,
    "signatures": _signature,
    "handovers": _handover,
    "lives": _life,
}
assert LENGTH == 24
