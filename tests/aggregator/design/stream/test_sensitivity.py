"""The exact squared sensitivity is what a search of all paths finds, and has the known values; no random path exceeds
it.
"""

from fractions import Fraction as F
from itertools import product

import numpy as np
import pytest

from support.stream_paths import squared_norm, triangular
from undertone_aggregator.design.stream import filters
from undertone_aggregator.design.stream.schedule import paper, stationary
from undertone_aggregator.design.stream.sensitivity import exact, triangle


def brute_force(schedule, slew, unit):
    """Return the largest squared norm over all feasible paths whose values are multiples of 1/unit."""
    reach = int(2 * slew * unit)
    assert reach == 2 * slew * unit
    steps = range(-reach, reach + 1)
    best = F(0)
    for start in range(unit + 1):  # D and -D cost the same
        for moves in product(steps, repeat=len(schedule) - 1):
            path = [start]
            for move in moves:
                path.append(path[-1] + move)
            if all(abs(d) <= unit for d in path):
                best = max(best, squared_norm(schedule, [F(d, unit) for d in path]))
    return best


@pytest.mark.slow_but("schedule7-slew7-6", "schedule3-slew3-8")
@pytest.mark.parametrize(
    ("schedule", "slew", "unit"),
    [
        (paper(F(1, 4), 5), F(1, 4), 4),
        (paper(F(1, 6), 5), F(1, 6), 6),
        (paper(F(1, 5), 4), F(1, 5), 10),
        (stationary([F(4, 5)], 4), F(1, 8), 8),
        (stationary([F(1, 2), F(1, 4)], 4), F(1, 6), 6),
        (stationary([F(2, 5), F(1, 5), F(1, 5)], 5), F(1, 4), 4),
        # 2C does not divide 2, so the grid's points 1 - 2Ck are not among its points -1 + 2Ck.
        (paper(F(3, 20), 4), F(3, 20), 10),
        (triangular([[0, 0, 0], [F(1, 2), 0, 0], [F(1, 4), F(1, 3), 0]], [F(1), F(2), F(3)]), F(1, 6), 6),
    ],
)
def test_brute_force_over_all_integer_paths(schedule, slew, unit):
    assert exact(schedule, slew) == brute_force(schedule, slew, unit)


@pytest.mark.parametrize(
    ("slew", "slots", "bits", "known"),
    [
        (F(1, 20), 48, None, 25.4403),
        (F(1, 10), 48, None, 24.8346),
        (F(1, 4), 48, None, 24.5635),
        (F(1, 20), 550, 40, 276.44),
        (F(1, 40), 48, 64, 0.556 * 48),
    ],
)
def test_known_values(slew, slots, bits, known):
    assert float(exact(paper(slew, slots, bits), slew)) == pytest.approx(known, rel=1e-4)


def random_paths(rng, count, slots, slew):
    """Random feasible paths: walks that are clipped to [-1, 1], with small steps, with the largest, or with both."""
    bold = rng.random((count, 1))
    steps = np.where(rng.random((count, slots)) < bold, np.sign(rng.standard_normal((count, slots))), 0.0)
    steps += (1 - bold) * (2 * rng.random((count, slots)) - 1)
    path = np.empty((count, slots))
    path[:, 0] = np.sign(rng.standard_normal(count))
    for i in range(1, slots):
        path[:, i] = np.clip(path[:, i - 1] + 2 * slew * np.clip(steps[:, i], -1, 1), -1, 1)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("taps", [None, (F(9, 10),), (F(58, 100), F(3, 10))])
def test_no_random_path_costs_more(taps):
    slew, slots = F(1, 20), 48
    schedule = paper(slew, slots, 64) if taps is None else stationary(taps, slots)
    path = random_paths(np.random.default_rng(5), 100_000, slots, float(slew))
    cost = np.zeros(len(path))
    for i, row in enumerate(schedule):
        gap = path[:, i] - sum(float(tap) * path[:, i - k] for k, tap in enumerate(row.taps, 1))
        cost += float(row.weight) * gap**2
    most = float(exact(schedule, slew))
    assert cost.max() <= most * (1 + 1e-12)
    assert cost.max() > 0.5 * most
    assert exact(schedule, slew) <= triangle(schedule, slew)


def test_the_papers_calibration_is_the_triangle_bound():
    assert triangle(paper(F(1, 10), 12), F(1, 10)) == 12


def test_the_closed_form_is_never_below_the_exact_one():
    for slew in (F(1, 100), F(1, 20), F(3, 20), F(2, 5)):
        for r in (F(0), F(1, 4), F(3, 4), F(9, 10), F(99, 100)):
            for slots in (1, 2, 3, 10):
                assert filters.closed_form(r, slew, slots) >= exact(stationary([r], slots), slew)


def test_too_many_taps_are_refused():
    with pytest.raises(ValueError, match="too many"):
        exact(stationary([F(1, 40)] * 12, 20), F(1, 20))
