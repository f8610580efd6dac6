"""The squared sensitivity of a stream: S² = max Σ ξ_i(D)² over the differences D of two streams.

The constraints are |D_i| <= 1 and |D_i - D_{i-1}| <= 2C. S² is convex in D, so its maximum is at a vertex. At a vertex
every run of tight slew constraints contains a tight bound, so all D_i lie on the grid ±(1 - 2Ck). A dynamic programme
over the last K positions, K the number of taps, finds the maximum exactly in integers.
"""

from fractions import Fraction
from math import lcm

from undertone_aggregator.base.plural import many
from undertone_aggregator.design.stream.schedule import Recurrence, Recurrences, check_slew

# Type of a state of the dynamic programme: the last differences, the newest first.
Steps = tuple[int, ...]
# Largest number of states of the dynamic programme: grid times moves^(taps - 1).
_LARGEST_STATES = 200_000


def grid(slew: Fraction) -> list[Fraction]:
    """Return all ±(1 - 2Ck) in [-1, 1], ascending, where C is the slew and k = 0, 1, …. Raises Invalid."""
    step = 2 * check_slew(slew)
    count = int(2 / step) + 1
    return sorted({sign * (1 - step * k) for sign in (1, -1) for k in range(count)})


def exact(schedule: Recurrences, slew: Fraction) -> Fraction:
    """Compute S² of a schedule exactly. Raises ValueError if its taps reach too far back for a dynamic programme."""
    points = grid(slew)
    unit = lcm(*(point.denominator for point in points))
    ints = [int(point * unit) for point in points]
    reach = int(2 * slew * unit)
    moves = {d: [e for e in ints if abs(e - d) <= reach] for d in ints}
    depth = max((len(row.taps) for row in schedule), default=0)
    if len(ints) * max(map(len, moves.values())) ** max(depth - 1, 0) > _LARGEST_STATES:
        raise ValueError(
            f"{many(depth, 'tap')} at slew {slew} are too many for the exact computation: use fewer taps, or a slew"
            " with a smaller denominator"
        )
    common = lcm(*(tap.denominator for row in schedule for tap in row.taps), 1)
    weights = lcm(*(row.weight.denominator for row in schedule))
    best: dict[Steps, int] = {(): 0}
    steps: dict[Steps, list[tuple[Steps, int]]] = {}
    before: Recurrence | None = None
    for i, row in enumerate(schedule):
        if row != before or i <= depth:
            steps = {}
        before = row
        following: dict[Steps, int] = {}
        for state, value in best.items():
            if state not in steps:
                # By symmetry, the start values that are at least 0 suffice.
                ahead = moves[state[0]] if state else [d for d in ints if d >= 0]
                steps[state] = _steps(row, state, ahead, common, weights, max(depth, 1))
            for after, cost in steps[state]:
                if value + cost > following.get(after, -1):
                    following[after] = value + cost
        best = following
    return Fraction(max(best.values()), weights * common * common * unit * unit)


def _steps(
    row: Recurrence, state: Steps, ahead: list[int], common: int, weights: int, depth: int
) -> list[tuple[Steps, int]]:
    """Return (state after, scaled cost) of every next difference."""
    weight = int(row.weight * weights)
    past = sum(int(tap * common) * d for tap, d in zip(row.taps, state, strict=False))
    return [((d, *state)[:depth], weight * (common * d - past) ** 2) for d in ahead]


def triangle(schedule: Recurrences, slew: Fraction) -> Fraction:
    """Return an upper bound of S² for any schedule: each |ξ_i| by the triangle inequality, as Eq. 19 does for one tap.

    |D_i - Σ a_k D_{i-k}| <= |1 - Σ a_k| + Σ |a_k| min(2, 2Ck).
    """
    slew = check_slew(slew)
    return sum((row.weight * _reach(row, slew) ** 2 for row in schedule), Fraction(0))


def _reach(row: Recurrence, slew: Fraction) -> Fraction:
    far = sum((abs(tap) * min(Fraction(2), 2 * slew * k) for k, tap in enumerate(row.taps, 1)), Fraction(0))
    return abs(1 - sum(row.taps, Fraction(0))) + far
