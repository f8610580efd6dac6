"""The stream campaigns of the tests beside this file."""

from rig import SLOT, START, make_campaign

from undertone_shared.stream import StreamRule

# Readings up to 1,000 are rounded to 1,000 steps, so a step is a unit of the reading, and decoding needs no scale.
FIELDS = {
    "kind": "stream",
    "law": "gaussian",
    "low": 0,
    "theta": 1000,
    "levels": 1000,
    "slew": 50,
    "shift": 8,
    "reuse": 217,
    "noise": [65000000, 1000000000000],
    "dimension": 1,
    "lag": 1,
    "reports": 48,
    "chains": 2,
    "restart": 0,
    "renewal": 0,
}


def rule(**changes):
    fields = dict(FIELDS)
    for name in changes:
        fields[name] = changes[name]
    return StreamRule(fields)


def stream_campaign(stream, **changes):
    fields = {"cohort": None, "report": None, "stream": stream, "last_slot": START // SLOT + 10 * 48 - 1}
    for name in changes:
        fields[name] = changes[name]
    return make_campaign(**fields)
