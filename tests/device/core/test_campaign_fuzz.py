"""Campaign messages are damaged, forged or invented. The device refuses them with a reason, and goes on reporting."""

import json
import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rig import DAY, SLOT, START, Device, make_campaign

from undertone_shared.campaign import write_canonical
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board import issue

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
GOOD = make_campaign(last_slot=(START + 300 * DAY) // SLOT - 1)
VALUES = [None, 0, 1, -1, 2, 48, 1 << 30, 1 << 62, 10**400, "", "load", "x" * 40, "00" * 16, [], [[]], [0, 0, 300], {}]


def around(body: bytes, now: int) -> bytes:
    return b"UTC2" + now.to_bytes(4, "big") + len(body).to_bytes(4, "big") + body + bytes(64)


def edited(chance: random.Random) -> bytes:
    """The valid body with one value changed, removed or added somewhere, in canonical form."""
    fields = json.loads(GOOD.body)
    inner = fields
    while True:
        key = chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        if isinstance(inner[key], (dict, list)) and inner[key] and chance.random() < 0.7:
            inner = inner[key]
            continue
        break
    action = chance.randrange(4)
    if action == 0:
        del inner[key]
    elif action == 1 and isinstance(inner[key], int):
        inner[key] += chance.choice([-1, 1, 1 << 20, -(1 << 40)])
    elif action == 2 and isinstance(inner, dict):
        inner[chance.choice(["surplus", "a", "kind"])] = chance.choice(VALUES)
    else:
        inner[key] = chance.choice(VALUES)
    pieces: list[bytes] = []
    write_canonical(fields, pieces.append)
    return b"".join(pieces)


def mutated(chance: random.Random, message: bytes) -> bytes:
    """The message with bits flipped, or with bytes cut, doubled or inserted."""
    data = bytearray(message)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        at = chance.randrange(len(data))
        action = chance.randrange(4)
        if action == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif action == 1:
            del data[at : at + chance.choice([1, 1, 4, 64])]
        elif action == 2:
            data[at:at] = chance.choice([b" ", b"\n", b"0", b"-", b'"', b"{", b"[", chance.randbytes(3)])
        else:
            data[at:at] = data[at : at + 8]
        if not data:
            break
    return bytes(data)


def invented(chance: random.Random, now: int) -> bytes:
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(200))
    if kind < 3:
        return around(edited(chance), now)
    return mutated(chance, issue.pack(GOOD, now, KEY.sign) if kind < 5 else around(edited(chance), now))


def refused(device: Device, message: bytes) -> str:
    """Return the reason of the refusal, or "" for a message with the device's own campaign.

    Such a message may only have another date.
    """
    try:
        assert device.reporter.accept(message, device.now) is False
    except Refused as error:
        return error.reason
    except Invalid:
        return "invalid"
    return ""


def play(rounds: int, seed: int, **policy: object) -> dict[str, int]:
    device = Device(now=START - SLOT, reports_per_period=48, **policy)
    assert device.reporter.accept(issue.pack(GOOD, device.now, KEY.sign), device.now)
    # The slot in which the campaign was accepted is not a whole slot.
    device.slot()
    chance = random.Random(seed)
    reasons: dict[str, int] = {}
    drawn = 0
    for number in range(rounds):
        reason = refused(device, invented(chance, device.now))
        reasons[reason] = reasons.get(reason, 0) + 1
        if number % max(rounds // 20, 1) == 0:
            # The server's honest message comes, as every hour, and a slot passes.
            assert device.reporter.accept(issue.pack(GOOD, device.now, KEY.sign), device.now) is False
            assert device.slot() is not None
            drawn += 1
    assert device.reporter.campaign is not None
    assert device.reporter.campaign.fingerprint == GOOD.fingerprint
    assert device.reporter.following is None
    assert sum(device.reporter.refusals.values()) == rounds - reasons.get("", 0)
    assert device.reporter.ledger.sequence == drawn
    return reasons


def signed() -> dict[str, object]:
    return {"signers": [KEY.public_key().public_bytes_raw().hex()], "insecure": False}


@pytest.mark.slow
def test_four_hundred_messages_under_a_policy_with_signers():
    # Verification takes milliseconds, so fewer messages are tried.
    reasons = play(400, 1, **signed())
    assert set(reasons) <= {"", "invalid", "signature"}
    assert min(reasons["invalid"], reasons["signature"]) > 50


@pytest.mark.slow
def test_twenty_thousand_messages_that_nobody_signs():
    reasons = play(20_000, 2)
    assert {"invalid", "sensor_busy", "epoch_rollback"} <= set(reasons)


@pytest.mark.slow
def test_a_million_messages():
    """20,000 messages under a policy with signers, and 980,000 under one without."""
    play(20_000, 3, **signed())
    play(980_000, 4)
