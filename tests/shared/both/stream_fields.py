"""The rules of streams as they are on the wire."""

from undertone_shared.stream import StreamRule

# C = 1/20 with 1000 levels, r = 217/256, a day of half-hours in at most two chains.
GAUSSIAN = {
    "kind": "stream",
    "law": "gaussian",
    "low": 0,
    "theta": 300,
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
    "renewal": 48,
}
ONE_BIT = dict(GAUSSIAN)
ONE_BIT.update({"law": "one-bit", "noise": [8200, 1100000]})


def gaussian(**changes):
    fields = dict(GAUSSIAN)
    for name in changes:
        fields[name] = changes[name]
    return StreamRule(fields)


def one_bit(**changes):
    fields = dict(ONE_BIT)
    for name in changes:
        fields[name] = changes[name]
    return StreamRule(fields)
