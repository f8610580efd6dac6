"""Write docs/vectors: inputs to a device's code with the answers of this code, for clients in other languages.

usage: .venv/bin/python scripts/vectors.py [OUT]

docs/wire.md says how to use them. tests/device/core/both/vector_player.py plays them, here and in the tests.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests" / folder) for folder in ("device/core/both", "device/both", "shared/both")]

from designed_tables import designed  # noqa: E402
from frozen import FROZEN, FROZEN_STREAM  # noqa: E402
from vector_player import play  # noqa: E402

from undertone_shared.handover import device_key  # noqa: E402

Json = dict[str, Any]
OUT = REPO / "docs/vectors"
SLOT = 1800
# The start of a day.
START = 1794355200
SEED = "000102030405060708090a0b0c0d0e0f"
AGREED = "0123456789abcdef" * 2
FINGERPRINT = "a1b2c3d4e5f60718"
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes(range(first, first + 32))) for first in (0, 1)]
PUBLIC = [key.public_key().public_bytes_raw().hex() for key in KEYS]
# The order of Ed25519's base point: adding it to a signature's second half must not make another valid signature.
ORDER = (1 << 252) + 27742317777372353535851937790883648493

ROUNDING = {"kind": "window", "a": 2, "b": 1, "window": 1, "stride": 1, "levels": 1}
PIECEWISE = {"kind": "window", "a": 7, "b": 3, "window": 5, "stride": 2, "levels": 8}
SQUARE_WAVE = {"kind": "square-wave", "a": 2, "b": 1, "window": 3, "edges": [0, 100, 200, 500, 1000]}
HYBRID = {"kind": "hybrid", "coin": 20000, "rounding": [2, 1], "piecewise": [2, 1, 3, 2, 16]}
TABLE = {"kind": "table", "bits": 8, "shift": 0, "values": [0, 5], "rows": ["AACcAABk", "AABkAACc"]}
MECHANISMS = {
    "stochastic rounding": ROUNDING,
    "piecewise": PIECEWISE,
    "square wave": SQUARE_WAVE,
    "hybrid": HYBRID,
    "a hybrid whose coin is certain": {**HYBRID, "coin": 65536},
    "a table of two levels": TABLE,
    "a designed table": next(designed())[2].describe(),
}


def body_of(**changes: Any) -> str:
    """Return a campaign's body: the frozen one with other fields."""
    return canonical({**json.loads(FROZEN), "epoch": START, "last_slot": START // SLOT + 5000, **changes})


def stream_body(**changes: Any) -> str:
    """Return a stream campaign's body, with ``changes`` to its rule."""
    fields = json.loads(FROZEN_STREAM)
    fields["rule"].update(changes)
    return canonical({**fields, "epoch": START, "last_slot": START // SLOT + 47})


def canonical(fields: Json) -> str:
    """Return JSON with sorted keys and without white space."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def rule_of(mechanism: Json, *ranges: list[int]) -> Json:
    """Return the rule of scalar reports by a mechanism."""
    return {"kind": "scalar", "mechanism": mechanism, "ranges": list(ranges)}


def named(vectors: dict[str, Json]) -> list[tuple[str, Json]]:
    """Return (name, input) pairs."""
    return list(vectors.items())


def changed(name: str, good: Json, changes: Iterable[tuple[str, Any]]) -> list[tuple[str, Json]]:
    """Return ``good`` with one field changed at a time, named by that field."""
    return [(f"{name}, {field} {value!r}"[:100], {**good, field: value}) for field, value in changes]


def reports() -> list[tuple[str, Json]]:
    good = {"kind": 1, "fingerprint": FINGERPRINT, "slot": 994314, "values": [1646], "sequence": 70000, "chain": 0}
    stream = {**good, "kind": 2, "values": [-3], "sequence": 12, "chain": 7}
    return [
        ("a report for the threshold", {**good, "kind": 0, "values": [42], "sequence": 1}),
        ("a report", good),
        ("a stream's report", stream),
        ("a stream of three dimensions, all at their ends", {**stream, "values": [1, -(1 << 31), (1 << 31) - 1]}),
        *changed("last slot and sequence", good, [("slot", (1 << 32) - 1), ("sequence", (1 << 32) - 1)]),
        *changed("refused", good, [("kind", 3), ("slot", 1 << 32), ("slot", -1), ("values", [1, 2]), ("values", [-1])]),
        *changed("refused", good, [("sequence", 0), ("chain", 1), ("fingerprint", "a1b2")]),
        *changed("refused in a stream", stream, [("chain", 0), ("values", [1] * 9), ("values", [1 << 31])]),
    ]


def received() -> list[tuple[str, Json]]:
    made = [play("reports", given) for _, given in reports()]
    good = [bytes.fromhex(answer["report"]) for answer in made if "report" in answer]
    bad = {
        "23 bytes": good[0][:-1],
        "28 bytes of a report that is no stream": good[0] + bytes(4),
        "26 bytes of a stream": good[2] + bytes(2),
        "nine coordinates": good[2] + bytes(4 * 8),
        "version 1": b"\1" + good[0][1:],
        "kind 3": good[0][:1] + b"\3" + good[0][2:],
        "a chain index in a report that is no stream": good[1][:19] + b"\1" + good[1][20:],
        "chain index 0 in a stream": good[2][:18] + bytes(2) + good[2][20:],
        "sequence 0": good[0][:20] + bytes(4),
    }
    read = [(f"report {number}", {"report": report.hex()}) for number, report in enumerate(good, 1)]
    return read + [(f"refused: {name}", {"report": report.hex()}) for name, report in bad.items()]


def topics() -> list[tuple[str, Json]]:
    names = ["meter-1", "a", "board-with-a-name-as-long-as-any", "Meter", "", "a" * 33, "a/b", "m\u00fcller", "a_b"]
    given = [{"prefix": "undertone/v2", "campaign": "load", "device": name} for name in names]
    return [(f"device {one['device']!r}", one) for one in given]


def campaigns() -> list[tuple[str, Json]]:
    frozen = {"issued_at": 1793491200, "body": FROZEN.decode()}
    good = json.loads(FROZEN)
    fields: dict[str, Json] = {
        "version 1": {"version": 1},
        "a name with a capital": {"campaign": "Load"},
        "a unit with a mark of direction": {"unit": "Wh\u202e"},
        "a unit of 17 characters": {"unit": "a unit of 17 char"},
        "an unknown measure": {"measure": "median"},
        "bound 0": {"bound": 0},
        "bound 2^30": {"bound": 1 << 30},
        "offset 1.5": {"offset": 1.5},
        "offset true": {"offset": True},
        "slot_seconds 0": {"slot_seconds": 0},
        "a cycle that the cohort's stride divides": {"cycle": 38},
        "an epoch that is no slot's start": {"epoch": 1793491201},
        "a last slot before the first": {"last_slot": 1},
        "a default above the bound": {"default": 1001},
        "no cohort": {"cohort": None},
        "a cohort without edges": {"cohort": PIECEWISE},
        "no block": {"rule": rule_of(HYBRID)},
        "a first block that does not start at slot 0": {"rule": rule_of(HYBRID, [1, 0, 300])},
        "low equal to theta": {"rule": rule_of(HYBRID, [0, 300, 300])},
        "theta above the bound": {"rule": rule_of(HYBRID, [0, 0, 1001])},
        "a block after the cycle": {"rule": rule_of(HYBRID, [0, 0, 300], [48, 0, 200])},
        "blocks that are not in order": {"rule": rule_of(HYBRID, [0, 0, 300], [9, 0, 200], [8, 0, 200])},
        "nine blocks": {"rule": rule_of(HYBRID, *[[i, 0, 300] for i in range(9)])},
        "a square wave as the rule": {"rule": rule_of(SQUARE_WAVE, [0, 0, 300])},
        "an unknown kind of rule": {"rule": {"kind": "poll"}},
        "a stride that divides the cycle": {"schedule": {"cohort_stride": 19, "seed": SEED, "stride": 2}},
        "a seed of 15 bytes": {"schedule": {"cohort_stride": 19, "seed": SEED[2:], "stride": 1}},
        "a seed that is not hexadecimal": {"schedule": {"cohort_stride": 19, "seed": "x" * 32, "stride": 1}},
        "an unknown field": {"extra": 1},
    }
    bad = [(name, canonical({**good, **changes})) for name, changes in fields.items()]
    text = FROZEN.decode()
    bad += [
        ("a space", text.replace(":", ": ", 1)),
        ("keys that are not sorted", '{"version":2,' + text[1 : text.rindex(",")] + "}"),
        ("an escape", text.replace('"Wh"', '"\\u0057h"')),
        ("a number with an exponent", text.replace('"cycle":48', '"cycle":48e0')),
        ("a field less", text.replace('"default":0,', "")),
        ("a field twice", text.replace('"default":0,', '"default":0,"default":0,')),
        ("no JSON", text[:-1]),
        ("a list", "[]"),
    ]
    message = b"UTC2" + (1793491200).to_bytes(4, "big") + len(FROZEN).to_bytes(4, "big") + FROZEN + bytes(64)
    frames = {
        "another magic": b"UTC1" + message[4:],
        "a wrong length": message[:8] + bytes(4) + message[12:],
        "a byte less": message[:-1],
        "a hand-over without its own signature": message + bytes(64),
        "no body": message[:8] + bytes(4) + bytes(64),
        "nothing": b"",
    }
    blocks = canonical({**good, "rule": rule_of(HYBRID, [0, 0, 300], [12, 100, 400], [36, 0, 250])})
    start = canonical(
        {
            **good,
            "rule": {"kind": "scalar", "mechanism": None, "ranges": []},
            "schedule": {**good["schedule"], "cohort_stride": 1},
        }
    )
    return [
        ("the frozen campaign", frozen),
        ("the same, issued later, has the same fingerprint", {**frozen, "issued_at": 1793494800}),
        ("a stream", {**frozen, "body": FROZEN_STREAM.decode()}),
        ("three blocks of the day", {**frozen, "body": blocks}),
        ("a threshold epoch", {**frozen, "body": start}),
        ("a hand-over that follows", {"message": (message + bytes(80)).hex()}),
        *[(f"refused: {name}", {**frozen, "body": body}) for name, body in bad],
        *[(f"refused: {name}", {"message": frame.hex()}) for name, frame in frames.items()],
    ]


def mechanisms() -> list[tuple[str, Json]]:
    good = [(name, {"mechanism": mechanism}) for name, mechanism in MECHANISMS.items()]
    bad: list[tuple[str, Json]] = [
        *changed(
            "a window",
            PIECEWISE,
            [("b", 0), ("a", 3), ("window", 0), ("levels", 1 << 29), ("stride", True), ("kind", "x")],
        ),
        *changed("edges", SQUARE_WAVE, [("edges", [0, 100, 100, 500, 1000]), ("edges", [0, 1])]),
        *changed("a hybrid", HYBRID, [("coin", 65537), ("rounding", [1, 1]), ("piecewise", [2, 1, 3, 2])]),
        *changed("a table", TABLE, [("rows", ["AACcAABl", "AABkAACc"]), ("rows", ["AACcAABk"]), ("values", [1, 5])]),
        *changed("a table", TABLE, [("rows", ["AAEAAAAA", "AABkAACc"]), ("rows", ["AACcAABk\n", "AABkAACc"])]),
    ]
    return good + [(f"refused: {name}", {"mechanism": mechanism}) for name, mechanism in bad]


def draws() -> list[tuple[str, Json]]:
    thetas = {"a table of two levels": 5, "a designed table": 748}
    found = []
    for name, mechanism in MECHANISMS.items():
        theta = thetas.get(name, 1000)
        for reading in sorted({0, 1, theta // 3, theta - 1, theta}):
            for number in (1, 2, 3):
                given = {"mechanism": mechanism, "theta": theta, "reading": reading, "seed": f"draw {number}"}
                found.append((f"{name}, reading {reading}, seed {number}", given))
    scaled = {"mechanism": MECHANISMS["a designed table"], "theta": 1000, "seed": "draw 1"}
    found += [(f"a table for another range, reading {x}", {**scaled, "reading": x}) for x in (0, 333, 1000)]
    found += [("refused: a reading above theta", {**scaled, "reading": 1001})]
    return found


def schedules() -> list[tuple[str, Json]]:
    strides = [(1, 1), (1, 0), (1, 19), (49, 1), (49, 19), (3, 0), (4, 6), (0, 1), (1, (1 << 20) + 1)]
    return [
        (
            f"stride {stride}, cohort {cohort}, {device}",
            {
                "seed": SEED,
                "stride": stride,
                "cohort_stride": cohort,
                "device": device,
                "from": 1000000,
                "to": 1000000 + (100 if stride > 1 else 20),
            },
        )
        for stride, cohort in strides
        for device in ("meter-1", "meter-2")
    ]


def signatures() -> list[tuple[str, Json]]:
    digest = hashlib.sha256(b"undertone campaign 2\n" + FROZEN).digest()
    good = KEYS[0].sign(digest)
    larger = (int.from_bytes(good[32:], "little") + ORDER).to_bytes(32, "little")
    given = {"key": PUBLIC[0], "digest": digest.hex(), "signature": good.hex()}
    return [
        ("of the frozen campaign, by the key whose secret is the bytes 0 to 31", given),
        (
            "by the key whose secret is the bytes 1 to 32",
            {**given, "key": PUBLIC[1], "signature": KEYS[1].sign(digest).hex()},
        ),
        ("another key", {**given, "key": PUBLIC[1]}),
        ("another digest", {**given, "digest": bytes(32).hex()}),
        ("one bit of the first half", {**given, "signature": (bytes((good[0] ^ 1,)) + good[1:]).hex()}),
        ("one bit of the second half", {**given, "signature": (good[:32] + bytes((good[32] ^ 1,)) + good[33:]).hex()}),
        ("a second half that is larger by the group's order", {**given, "signature": (good[:32] + larger).hex()}),
        ("zeros", {**given, "signature": bytes(64).hex()}),
        ("a key that is no point", {**given, "key": "02" + bytes(31).hex()}),
    ]


POLICY = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2, 1],
    "slot_seconds": SLOT,
    "theta": [1, 1000],
    "duration_seconds": 400 * 86400,
    "insecure": True,
}


def handovers() -> list[tuple[str, Json]]:
    def signed(fields: Any, key: Ed25519PrivateKey = KEYS[0]) -> str:
        body = (fields if isinstance(fields, str) else canonical(fields)).encode()
        return (body + key.sign(hashlib.sha256(b"undertone hand-over 1\n" + body).digest())).hex()

    def given(*trailers: str, **policy: Any) -> Json:
        policy = {**POLICY, "insecure": False, "signers": [PUBLIC[0]], "handover": True, "agreed": AGREED, **policy}
        return {"campaign": "load", "device": "meter-1", "now": START, "policy": policy, "handovers": list(trailers)}

    def devices(**entries: Json) -> Json:
        return {device_key("load", name.replace("_", "-")): entry for name, entry in entries.items()}

    address = {"host": "new.example", "port": 8883}
    good = {"all": address, "campaign": "load", "devices": {}, "number": 5}
    own = {"campaigns": ["heat", "water"], "agreed": ["00" * 16, AGREED]}
    bad: dict[str, Json] = {
        "a host without a port": {**good, "all": {"host": "new.example"}},
        "port 0": {**good, "all": {**address, "port": 0}},
        "no campaign": {**good, "all": {"campaigns": []}},
        "five campaigns": {**good, "all": {"campaigns": ["a"] * 5}},
        "number 0": {**good, "number": 0},
        "a field more": {**good, "extra": 1},
        "an unknown field of an entry": {**good, "all": {"speed": 1}},
        "a device by its name": {**good, "devices": {"meter-1": own}},
        "agreed without campaigns": {**good, "all": {"agreed": [AGREED]}},
        "agreed of 31 digits": {**good, "all": {"campaigns": ["heat"], "agreed": ["0" * 31]}},
    }
    return named(
        {
            "another address for all": given(signed(good)),
            "other campaigns for one device": given(signed({**good, "devices": devices(meter_1=own, meter_2=address)})),
            "nothing for this device": given(signed({**good, "all": {}, "devices": devices(meter_2=own)})),
            "a newer one keeps what it does not name": given(signed(good), signed({**good, "all": own, "number": 6})),
            "the same number twice": given(signed(good), signed({**good, "all": own})),
            "a smaller number": given(signed(good), signed({**good, "all": own, "number": 4})),
            "outside what was agreed to": given(
                signed(good), signed({**good, "all": {"campaigns": ["heat"], "agreed": ["00" * 16]}, "number": 6})
            ),
            "to a household that has agreed to nothing": given(signed({**good, "all": own}), agreed=""),
            "a number just ahead": given(signed({**good, "number": START + 86400})),
            "a number too far ahead": given(signed({**good, "number": START + 86401})),
            "another campaign's": given(signed({**good, "campaign": "heat"})),
            "another key": given(signed(good, KEYS[1])),
            "a damaged signature": given(signed(good)[:-2] + "ff"),
            "without signers": given(signed(good), signers=[], insecure=True, handover=False),
            "no JSON": given(signed("{")),
            "a signature alone": given("00" * 64),
            **{f"refused: {name}": given(signed(fields)) for name, fields in bad.items()},
        }
    )


def life(*steps: Json, **policy: Any) -> Json:
    """Return one device's life: its policy and its steps. ``seed`` may be given among the fields of ``policy``."""
    seed = policy.pop("seed", "life")
    return {"device": "meter-1", "now": START - 600, "seed": seed, "policy": {**POLICY, **policy}, "steps": list(steps)}


def heard(body: str | None = None, issued_at: int = START - 600, **more: Any) -> Json:
    """Return a step in which a campaign's message arrives."""
    return {"accept": {"body": body or body_of(), "issued_at": issued_at, **more}}


def slots(count: int, samples: Iterable[Any] = (40,), seconds: int = SLOT) -> list[Json]:
    """Return steps for whole slots: samples in the middle, and a report asked for at the end."""
    half = {"seconds": seconds // 2}
    return [step for _ in range(count) for step in ({**half, "observe": list(samples)}, {**half, "close": True})]


# A device begins 600 s before a slot's edge. The slot that it enters in its middle is never reported.
ALIGN = ({"close": True}, {"seconds": 600, "close": True})


def measured(measure: str, *steps: Json, body: Json | None = None, **policy: Any) -> Json:
    """Return a life under a campaign with this measure, a report in every slot, and θ 1,000.

    ``body``: fields of the campaign's body that replace or add to these.
    """
    schedule = {"cohort_stride": 0, "seed": SEED, "stride": 1}
    rule = rule_of(HYBRID, [0, 0, 1000])
    fields = {"measure": measure, "schedule": schedule, "rule": rule, **(body or {})}
    return life(heard(body_of(**fields)), *ALIGN, *steps, measures=[measure], **policy)


def apart(*groups: list[Any]) -> list[Json]:
    """Return the steps of one slot: groups of samples at equal intervals, and then its end."""
    part = SLOT // (len(groups) + 1)
    steps: list[Json] = [{"seconds": part, "observe": group} for group in groups]
    return [*steps, {"seconds": SLOT - part * len(groups), "close": True}]


def measures() -> dict[str, Json]:
    """Return lives for each measure, for parts of the day, an offset, a designed table and a threshold epoch."""
    blocks = rule_of(HYBRID, [0, 0, 300], [2, 100, 400], [4, 0, 1000])
    table = MECHANISMS["a designed table"]
    tables = rule_of(table, [0, 0, 748], [2, 0, 500])
    cap = {"cap": [8, 1]}
    return {
        "mean, rounded half up": measured("mean", *apart([1, 2], [500]), *apart([10, 11]), *apart([-3, -4])),
        "max": measured("max", *apart([1, 700], [500]), *apart([-5])),
        "last": measured("last", *apart([1, 700], [500]), *apart([3])),
        "duration": measured("duration", *apart([1], [0]), *apart([1]), *apart(), *apart([0])),
        "duration while the program does not run": measured(
            "duration",
            *apart([1]),
            {"seconds": SLOT + 600, "close": True},
            {"seconds": SLOT - 600, "close": True},
            {"seconds": 600, "close": True},
        ),
        "counter": measured("counter", *apart([100]), *apart([350], [400]), *apart(), *apart([900]), *apart([901])),
        "a counter that begins anew": measured("counter", *apart([100]), *apart([40]), *apart([60])),
        "parts of the day": measured("sum", *slots(6, (350,)), body={"rule": blocks}),
        "an offset": measured("sum", *slots(3, (-400,)), body={"offset": -500, "default": -500}),
        "a designed table, also for another range": measured("sum", *slots(6, (333,)), body={"rule": tables}, **cap),
        "every slot in a threshold epoch": measured(
            "sum",
            *slots(3, (333,)),
            body={
                "rule": {"kind": "scalar", "mechanism": None, "ranges": []},
                "schedule": {"cohort_stride": 1, "seed": SEED, "stride": 1},
            },
        ),
    }


def limits() -> dict[str, Json]:
    """Return lives in which limits, pauses, clocks and losses keep a device from reporting."""
    boot = {"boot": True}
    again = heard(issued_at=START + 3600)
    hour = SLOT * 2
    short = {"slot_seconds": 20, "cycle": 47, "last_slot": START // 20 + 5000}
    brief = [step for _ in range(5) for step in slots(1, seconds=20)]
    reset = (boot, heard(body_of(**short), START - 480), {"close": True}, {"seconds": 20, "close": True})
    stream = {"rho": 1 << 24, "period_seconds": 86400}
    few = stream_body(reports=3, chains=1, renewal=4)
    lag = stream_body(lag=2, chains=4, restart=2)
    jump = {"seconds": 4 * SLOT, "ticks": 1, "close": True}
    pair = [100, 900]
    return {
        "no campaign": life({"close": True}, {"seconds": SLOT, "close": True}, heard(issued_at=START), {"close": True}),
        "waiting for the first slot": life(heard(body_of(epoch=START + hour)), *ALIGN, *slots(5), lead_seconds=86400),
        "ended": life(heard(body_of(last_slot=START // SLOT + 1)), *ALIGN, *slots(4)),
        "a rest by the clock alone": life(
            heard(), *ALIGN, *[{**step, "ticks": 850} for step in slots(10)], rest_seconds=3 * SLOT, rest_by="clock"
        ),
        "a rest by ticks, which a clock that runs ahead does not shorten": life(
            heard(), *ALIGN, *[{**step, "ticks": 850} for step in slots(10)], rest_seconds=3 * SLOT
        ),
        "a new device rests first": life(
            heard(), *ALIGN, *slots(2), boot, again, {"close": True}, *slots(6), rest_seconds=2 * SLOT
        ),
        "a counter rests a slot longer": measured(
            "counter", *[step for i in range(9) for step in apart([100 * i])], rest_seconds=2 * SLOT
        ),
        "one report after each wake": life(
            heard(),
            *ALIGN,
            *slots(2),
            boot,
            again,
            {"close": True},
            *slots(3),
            one_shot=True,
            boots_per_day=1,
        ),
        "boots of the next day": life(
            heard(),
            *ALIGN,
            *slots(1),
            boot,
            again,
            *slots(2),
            {"seconds": 86400 - 6 * SLOT},
            heard(issued_at=START + 86400 - 3 * SLOT),
            *slots(8),
            boots_per_day=1,
        ),
        "a cap counted in groups of two": life(
            heard(), *ALIGN, *slots(55), reports_per_period=50, period_seconds=172800
        ),
        "a cap by ticks alone": life(
            heard(),
            *ALIGN,
            *[{**step, "ticks": 850} for step in slots(12)],
            reports_per_period=4,
            period_seconds=4 * SLOT,
        ),
        "slots of 20 s are reserved three at a time": life(
            heard(body_of(**short)),
            {"seconds": 600, "close": True},
            *brief,
            *reset,
            *brief,
            slot_seconds=20,
            reports_per_period=4320,
        ),
        "a reserved report counts for the lifetime": life(
            heard(body_of(**short)),
            {"seconds": 600, "close": True},
            *brief[:4],
            *reset,
            *brief,
            slot_seconds=20,
            lifetime=5 * 726818,
        ),
        "a pause": life(
            heard(),
            *ALIGN,
            *slots(1),
            {"pause": [START + hour, START + 2 * hour]},
            *slots(6),
        ),
        "a pause that a clock set ahead does not end": life(
            heard(),
            *ALIGN,
            *slots(1),
            {"pause": [START + hour, START + 4 * hour]},
            *slots(2),
            {"seconds": 10 * SLOT, "ticks": 1},
            *slots(7),
        ),
        "a pause is asked after the other words": life(
            heard(), *ALIGN, *slots(2), {"pause": [START, START + 8 * hour]}, *slots(2), reports_per_period=2
        ),
        "a file that cannot be written": life(
            heard(), *ALIGN, *slots(1), {"broken": True}, *slots(2), {"broken": False}, *slots(2)
        ),
        "a clock that was far ahead is corrected": life(
            heard(issued_at=START - 600),
            *ALIGN,
            *slots(1),
            {"seconds": 40 * 86400, "ticks": 40 * 86400},
            heard(issued_at=START + 40 * 86400),
            *slots(3),
            {"seconds": -30 * 86400, "ticks": 60},
            heard(issued_at=START + 10 * 86400),
            heard(issued_at=START + 10 * 86400 + 60),
            *slots(4),
        ),
        "an old message changes nothing": life(
            heard(),
            *ALIGN,
            *slots(1),
            heard(issued_at=START - 70000),
            *slots(1),
            heard(issued_at=START + 80000),
            *slots(2),
        ),
        "a stream whose window is full": life(heard(few), *ALIGN, *slots(9, (140,)), stream=stream),
        "a stream whose chains are used up": life(
            heard(few),
            *ALIGN,
            *slots(2, (140,)),
            boot,
            heard(few, START + hour),
            *slots(6, (140,)),
            stream=stream,
        ),
        "a stream whose windows a clock that jumps ahead does not shorten": life(
            heard(few),
            *ALIGN,
            *slots(4, (140,)),
            *[step for _ in range(3) for step in (jump, *slots(3, (140,)))],
            stream=stream,
        ),
        "two chains that take turns, and end after missed reports": life(
            heard(lag),
            *ALIGN,
            *slots(4, (140,)),
            {"pause": [START + 5 * SLOT, START + 9 * SLOT]},
            *slots(8, (140,)),
            stream=stream,
        ),
        "a stream of two dimensions": life(
            heard(stream_body(dimension=2)), *ALIGN, *slots(5, (pair,)), stream={**stream, "dimension": 2}
        ),
        "a one-bit stream of large and small readings": life(
            heard(stream_body(law="one-bit", noise=[8200, 1100000])),
            *ALIGN,
            *slots(3, (900,)),
            *slots(3, (0,)),
            stream=stream,
        ),
        "a lost ledger counts the streams' period as spent": life(
            heard(stream_body()),
            *ALIGN,
            *slots(1, (140,)),
            {"lose": ["ledger"], "boot": True},
            heard(stream_body(), START + SLOT),
            stream=stream,
        ),
    }


def ledger() -> list[tuple[str, Json]]:
    boot = {"boot": True}
    following = body_of(epoch=START + 86400, rule=rule_of(HYBRID, [0, 0, 500]))
    every = body_of(schedule={"cohort_stride": 0, "seed": SEED, "stride": 1})
    stream = {"rho": 1 << 24, "period_seconds": 86400}
    one_bit = stream_body(law="one-bit", noise=[8200, 1100000])
    return named(
        {
            "reports of every slot": life(heard(), *ALIGN, *slots(25)),
            "no sample: the campaign's default": life(heard(body_of(default=7)), *ALIGN, *slots(2, ())),
            "readings are truncated": life(heard(every), *ALIGN, *slots(2, (5000,)), *slots(2, (-5000,))),
            "samples add up": life(heard(every), *ALIGN, *slots(2, (100, 50, 3))),
            "an acknowledged report leaves the outbox": life(heard(), *ALIGN, *slots(2), {"acked": 4}, {"acked": 4}),
            "a slot is drawn once": life(heard(), *ALIGN, *slots(1), {"close": True}, {"close": True}),
            "a slot that was entered in its middle is not drawn": life(
                heard(), {"seconds": 60, "close": True}, {"seconds": 541, "close": True}
            ),
            "a boot forgets the open slot, and never draws a spent one": life(
                heard(), *ALIGN, *slots(2), boot, heard(issued_at=START + 3600), *slots(2)
            ),
            "boots a day": life(
                heard(),
                *ALIGN,
                *[step for _ in range(4) for step in (*slots(2), boot, heard(issued_at=START + 3600))],
                boots_per_day=2,
            ),
            "the sliding cap": life(heard(), *ALIGN, *slots(6), reports_per_period=3),
            "a rest of three slots": life(heard(), *ALIGN, *slots(10), rest_seconds=3 * SLOT),
            "a lifetime of four reports": life(heard(), *ALIGN, *slots(6), lifetime=4 * 726818),
            "a lost ledger counts as spent": life(
                heard(), *ALIGN, *slots(2), {"lose": ["ledger"], "boot": True}, heard(issued_at=START + 3600), *slots(3)
            ),
            "a lost folder is a new device": life(
                heard(),
                *ALIGN,
                *slots(2),
                {"lose": ["ledger", "begun", "names"], "boot": True},
                heard(issued_at=START + 3600),
                *slots(3),
            ),
            "a clock set back draws nothing twice": life(
                heard(), *ALIGN, *slots(3), {"seconds": -2 * SLOT, "ticks": 0}, *slots(4)
            ),
            "a clock set ahead by two days": life(
                heard(), *ALIGN, *slots(1), {"seconds": 2 * 86400, "ticks": 1}, *slots(2)
            ),
            "a clock that runs while the ticks do not": life(heard(), *ALIGN, *[{**s, "ticks": 60} for s in slots(3)]),
            "the next epoch": life(
                heard(),
                heard(following),
                *ALIGN,
                *slots(1),
                {"seconds": 86400 - 2 * SLOT},
                heard(following, START + 86400),
                *slots(3),
                lead_seconds=2 * 86400,
            ),
            "turns of a schedule": life(
                heard(body_of(schedule={"cohort_stride": 5, "seed": SEED, "stride": 7})), *ALIGN, *slots(22)
            ),
            "no message for four days": life(heard(), *ALIGN, *slots(1), {"seconds": 4 * 86400}, *slots(2)),
            "a gaussian stream": life(heard(stream_body()), *ALIGN, *slots(6, (140,)), stream=stream),
            "a gaussian stream after a boot begins a chain": life(
                heard(stream_body()),
                *ALIGN,
                *slots(2, (140,)),
                boot,
                heard(stream_body(), START + 3600),
                *slots(3),
                stream=stream,
            ),
            "a one-bit stream": life(heard(one_bit), *ALIGN, *slots(6, (140,)), stream=stream),
            **measures(),
            **limits(),
        }
    )


def refusals() -> list[tuple[str, Json]]:
    good = heard()
    signed = {"signers": [PUBLIC[0]], "insecure": False}
    digest = hashlib.sha256(b"undertone campaign 2\n" + body_of().encode()).digest()
    signature = KEYS[0].sign(digest).hex()
    stream = heard(stream_body())
    allowed = {"rho": 1 << 24, "period_seconds": 86400}
    later = body_of(epoch=START + 86400, default=1)
    day = {"epoch": START + 86400, "last_slot": START // SLOT + 95}
    second = heard(canonical({**json.loads(stream_body()), **day}))
    charge = 69424
    by_epsilon = {"delta_bits": 20, "period_seconds": 86400}
    return named(
        {
            "accepted, and known the second time": life(good, good),
            "topic": life(heard(topic="other"), heard(topic="load")),
            "invalid": life(heard(body_of(version=1))),
            "sensor": life(good, sensor="water"),
            "measure": life(good, measures=["mean", "last"]),
            "unit": life(good, unit="kWh"),
            "unit that is allowed": life(good, unit="Wh"),
            "slot_seconds": life(good, slot_seconds=SLOT + 1),
            "epsilon of the report": life(
                heard(body_of(rule=rule_of({**HYBRID, "piecewise": [3, 1, 3, 2, 16]}, [0, 0, 300])))
            ),
            "epsilon of the cohort": life(heard(body_of(cohort={**SQUARE_WAVE, "a": 3}))),
            "epsilon just allowed": life(good, cap=[2000001, 1000000]),
            "epsilon just not allowed": life(good, cap=[1999999, 1000000]),
            "theta": life(good, theta=[301, 1000]),
            "theta of a later block": life(
                heard(body_of(rule=rule_of(HYBRID, [0, 0, 300], [24, 0, 400]))), theta=[1, 399]
            ),
            "duration": life(good, duration_seconds=5000 * SLOT),
            "until": life(good, until=START + 5001 * SLOT - 1),
            "until just right": life(good, until=START + 5001 * SLOT),
            "a stream that the policy does not allow": life(stream),
            "a law that the policy does not allow": life(stream, stream={**allowed, "laws": ["one-bit"]}),
            "a dimension that the policy does not allow": life(stream, stream={**allowed, "dimension": 2}),
            "rho": life(stream, stream={**allowed, "rho": 1}),
            "rho of all streams": life(stream, stream={**allowed, "lifetime": 1}),
            "rho by epsilon and delta, just allowed": life(stream, stream={**by_epsilon, "epsilon": [1985, 1000]}),
            "rho by epsilon and delta": life(stream, stream={**by_epsilon, "epsilon": [1984, 1000]}),
            "rho per report": life(stream, stream={**allowed, "rho": 1, "per_report": True}),
            "a stream with a rest": life(stream, stream=allowed, rest_seconds=SLOT),
            "sensor_busy": life(good, heard(body_of(campaign="other", epoch=START + 86400))),
            "epoch_rollback": life(good, heard(body_of(default=1))),
            "epoch_too_soon": life(good, heard(body_of(epoch=START + SLOT))),
            "epoch_too_soon by the policy": life(good, heard(later), epoch_seconds=2 * 86400, lead_seconds=2 * 86400),
            "epoch_pending": life(
                good,
                heard(later),
                {"seconds": 7200},
                heard(body_of(epoch=START + 2 * 86400), START),
                lead_seconds=3 * 86400,
            ),
            "epoch_ahead": life(heard(body_of(epoch=START + 86400))),
            "ended": life({"seconds": 5002 * SLOT, **heard(issued_at=START + 5002 * SLOT)}),
            "clock": life(heard(issued_at=START - 600 - 86401)),
            "clock just right": life(heard(issued_at=START - 600 - 86400)),
            "clock ahead": life(heard(issued_at=START - 600 + 86401)),
            "signature missing": life(good, **signed),
            "signature of the policy's key": life(heard(signature=signature), **signed),
            "signature of another key": life(heard(signature=signature), signers=[PUBLIC[1]], insecure=False),
            "storage": life({"broken": True}, good, {"broken": False}, good),
            "rho of a second epoch": life(
                stream, second, stream={**allowed, "rho": 2 * charge - 1}, lead_seconds=2 * 86400
            ),
            "several at once: the sensor is asked before the measure": life(good, sensor="water", measures=["last"]),
            "several at once: theta is asked before epsilon": life(good, theta=[301, 1000], cap=[3, 2]),
            "several at once: the signature is asked first": life(heard(body_of(version=1)), **signed),
            "signature of one of two keys": life(heard(signature=signature), signers=PUBLIC[::-1], insecure=False),
        }
    )


# File -> kind of its vectors in the player, what they are, and a function that returns (name, input) of each.
FILES = {
    "reports": ("reports", "Encode a report.", reports),
    "received": ("received", "Decode a report, as the server does.", received),
    "topics": ("topics", "Topics of a campaign and of a device's reports.", topics),
    "campaigns": ("campaigns", "Parse a campaign message: header, body, signature (zeros unless given).", campaigns),
    "mechanisms": ("mechanisms", "Weights and certificate of a mechanism, given as in a campaign.", mechanisms),
    "draws": ("draws", "Draw a symbol for a reading from 0 to theta with given random words.", draws),
    "schedules": ("schedules", "A device's place, its turns and its turns for the threshold.", schedules),
    "handovers": ("handovers", "Obey signed hand-overs, or refuse them, one after another.", handovers),
    "signatures": ("signatures", "Check an Ed25519 signature of a digest.", signatures),
    "ledger": ("lives", "What a device draws, and why it does not, over slots, boots and losses.", ledger),
    "refusals": ("lives", "Which campaigns a device refuses under a policy, and why.", refusals),
}


def text_of(name: str) -> str:
    """Return the content of a file of vectors: JSON with one vector on each line."""
    kind, about, inputs = FILES[name]
    lines = [
        json.dumps({"name": what, "given": given, "expected": play(kind, given)}, separators=(",", ":"))
        for what, given in inputs()
    ]
    return f'{{"about": {json.dumps(about)},\n "kind": "{kind}",\n "vectors": [\n' + ",\n".join(lines) + "\n]}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the vectors for clients in other languages.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT, metavar="OUT", help="folder (default: docs/vectors)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (out / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
