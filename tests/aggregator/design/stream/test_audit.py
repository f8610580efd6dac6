"""An audit: the distributions of short streams for pairs of neighbours, and their hockey-stick divergence.

At each tested ε, H_ε(P, Q) = Σ max(P - e^ε Q, 0) over the released values must be at most the δ that the budget
promises. The devices' integer code makes the distributions, except those of the paper's schedule. To show that the
audit can find mistakes, some tests make mistakes that it must find: the clipping of Eq. 23 as printed, a window without
a new chain, and more chains than the budget is for.
"""

from fractions import Fraction as F
from functools import cache
from math import exp, sqrt

import numpy as np
import pytest

from support.stream_paths import squared_norm
from undertone_aggregator.design.stream.calibration import delta_of, zcdp_epsilon
from undertone_aggregator.design.stream.schedule import paper
from undertone_aggregator.design.stream.sensitivity import exact
from undertone_shared.points import clip
from undertone_shared.stream import StreamRule, least_first_variance, squared_bound

EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0)
LEVELS, SLEW, SHIFT, REUSE = 4, 1, 1, 1
LATER = 48
RANGE = 48


def rule(law="gaussian", noise=None, reports=3, chains=1):
    return StreamRule(
        {
            "kind": "stream",
            "law": law,
            "low": 0,
            "theta": LEVELS,
            "levels": LEVELS,
            "slew": SLEW,
            "shift": SHIFT,
            "reuse": REUSE,
            "noise": noise or [max(least_first_variance(LATER, SHIFT, REUSE), 16), LATER],
            "dimension": 1,
            "lag": 1,
            "reports": reports,
            "chains": chains,
            "restart": 0,
            "renewal": 0,
        }
    )


class Word:
    """Stands for `Entropy`: returns one chosen word."""

    def __init__(self, word):
        self.word = word

    def below(self, n):
        assert 0 <= self.word < n
        return self.word


def outcomes(tested, first):
    """Return (probability, noise, entropy) of each case of one draw. Gaussian noise ends at 6.5 standard deviations."""
    scale = tested.noise[0] if first else tested.noise[1]
    if tested.law == "one-bit":
        return [(1 / (2 * scale), (), Word(word)) for word in range(2 * scale)]
    reach = int(6.5 * sqrt(scale)) + 1
    weights = {e: exp(-e * e / (2 * scale)) for e in range(-reach, reach + 1)}
    total = sum(weights.values())
    return [(weight / total, (e,), None) for e, weight in weights.items()]


@cache
def step(tested, point, previous):
    """Return P(X_i | X_{i-1}) [X_{i-1}, X_i], with both values from -RANGE to RANGE.

    If ``previous`` is None, a chain begins, and all rows are equal.
    """
    law = np.zeros((2 * RANGE + 1, 2 * RANGE + 1))
    for p, noise, word in outcomes(tested, previous is None):
        if previous is None:
            law[:, tested.first((point,), noise, word)[0] + RANGE] += p
            continue
        for last in range(-RANGE, RANGE + 1):
            x = tested.later((point,), (previous,), (last,), noise, word)[0]
            # Values beyond the range are counted at its ends.
            law[last + RANGE, min(max(x, -RANGE), RANGE) + RANGE] += p
    return law


def distribution(tested, points, breaks=()):
    """Return the probabilities [X_1, X_2, ...] for a path of points; a new chain starts at the indices ``breaks``."""
    law = step(tested, points[0], None)[0]
    for i in range(1, len(points)):
        law = law[..., None] * step(tested, points[i], None if i in breaks else points[i - 1])
    return law


def hockey_stick(law, neighbour, epsilon):
    return float(np.maximum(law - exp(epsilon) * neighbour, 0.0).sum())


def clipped(raw):
    path = [raw[0]]
    for x in raw[1:]:
        path.append(clip((x,), (path[-1],), SLEW, LEVELS // 2)[0])
    return path


# Pairs of neighbouring paths. After clipping, the difference of each pair is a vertex of the set of possible
# differences of one chain. The sensitivity is largest at a vertex.
NEIGHBOURS = [([-2, -2, -2], [2, 2, 2]), ([-2, -1, 0], [2, 1, 0]), ([-2, -2, 2], [2, 2, -2]), ([0, 2, 2], [0, -2, -2])]


def test_closed_form_gaussian():
    tested = rule()
    mu = sqrt(2 * tested.rho()[0] / tested.rho()[1])
    for path, neighbour in NEIGHBOURS[:3]:
        p, q = distribution(tested, clipped(path)), distribution(tested, clipped(neighbour))
        for epsilon in EPSILONS:
            assert hockey_stick(p, q, epsilon) <= delta_of(epsilon, mu) + 1e-8


def test_the_budget_is_not_wasted():
    tested = rule(reports=1)
    mu = sqrt(2 * tested.rho()[0] / tested.rho()[1])
    p, q = distribution(tested, [-2]), distribution(tested, [2])
    assert hockey_stick(p, q, 1.0) > 0.5 * delta_of(1.0, mu)


@pytest.mark.parametrize("breaks", [(1,), (2,)])
def test_two_chains(breaks):
    tested = rule(chains=2)
    mu = sqrt(2 * tested.rho()[0] / tested.rho()[1])
    # A new chain's first point is not clipped.
    ones = [([-2, -2, -2], [2, 2, 2]), ([-2, 2, 2], [2, -2, -2])]
    for path, neighbour in ones if breaks == (1,) else ones[:1]:
        p, q = distribution(tested, path, breaks), distribution(tested, neighbour, breaks)
        for epsilon in EPSILONS:
            assert hockey_stick(p, q, epsilon) <= delta_of(epsilon, mu) + 1e-8


def test_three_chains_break_the_budget_of_one():
    one_chain = rule(chains=1)
    mu = sqrt(2 * one_chain.rho()[0] / one_chain.rho()[1])
    p, q = (distribution(one_chain, [end] * 3, (1, 2)) for end in (-2, 2))
    assert hockey_stick(p, q, 2.0) > delta_of(2.0, mu)


@pytest.mark.parametrize("breaks", [(), (2,)])
def test_one_bit(breaks):
    tested = rule("one-bit", [7, 9], chains=1 + len(breaks))
    num, den = tested.rho()
    for path, neighbour in NEIGHBOURS:
        paths = (path, neighbour) if breaks else (clipped(path), clipped(neighbour))
        if any(abs(a[1] - a[0]) > SLEW for a in paths):
            continue
        p, q = (distribution(tested, path, breaks) for path in paths)
        for delta in (0.3, 0.1, 0.01, 1e-4):
            assert hockey_stick(p, q, zcdp_epsilon(num / den, delta)) <= delta
        # For pure ε, a report's largest ratio is (1 + τ)/(1 - τ). Here τ is the swing (in a chain's first report, the
        # levels) divided by twice the noise.
        ratio = (2 * 9 + tested.swing) / (2 * 9 - tested.swing)
        first = (2 * 7 + LEVELS) / (2 * 7 - LEVELS)
        worst = max(first, ratio) ** 3
        assert np.all(p <= worst * (1 + 1e-9) * q)


def product_hockey_stick(variances, shifts, epsilon):
    """H_ε of independent discrete Gaussians with these variances, shifted by these integers."""
    losses, weights = np.zeros(1), np.ones(1)
    for variance, shift in zip(variances, shifts, strict=True):
        y = np.arange(-int(9 * sqrt(variance)), int(9 * sqrt(variance)) + 1)
        p = np.exp(-(y**2) / (2 * variance))
        p /= p.sum()
        # ln p(y)/p(y - shift)
        loss = (shift * shift - 2 * shift * y) / (2 * variance)
        losses = np.add.outer(losses, loss).ravel()
        weights = np.multiply.outer(weights, p).ravel()
    return float(np.sum(weights * np.maximum(1 - np.exp(epsilon - losses), 0.0)))


@pytest.mark.slow_but("exact")
@pytest.mark.parametrize("calibration", ["paper", "exact"])
def test_the_papers_schedule(calibration):
    # C = 1/4, l = 3, in integers: y_i = 4 n_i - R_i n_{i-1} + e_i, n in [-2, 2], σ_1 = 2 levels.
    slew, unit, levels = F(1, 4), 4, 4
    schedule = paper(slew, 3, 2)
    squared = F(3) if calibration == "paper" else exact(schedule, slew)
    mu = sqrt(float(squared)) * levels / 2
    variances = [4 * unit * unit / float(row.weight) + 4 for row in schedule]
    for path in ([4, 4, 4], [4, 2, 0], [4, 4, 2], [-4, -2, 0], [0, 2, 4], [4, 2, 4]):
        shifts = [
            int(unit * d - (unit * row.taps[0] * path[i - 1] if row.taps else 0))
            for i, (d, row) in enumerate(zip(path, schedule, strict=True))
        ]
        assert squared_norm(schedule, [F(d, levels) for d in path]) <= squared
        for epsilon in EPSILONS[1:]:
            assert product_hockey_stick(variances, shifts, epsilon) <= delta_of(epsilon, mu) + 1e-8


def printed_clipping(raw):
    """Clip as Eq. 23 is printed: relative to the raw previous value."""
    path = [raw[0]]
    for i in range(1, len(raw)):
        path.append(max(raw[i - 1] - SLEW, min(raw[i - 1] + SLEW, raw[i])))
    return path


def test_the_printed_clipping_fails_the_audit():
    tested = rule()
    mu = sqrt(2 * tested.rho()[0] / tested.rho()[1])
    raw = ([-2, 2, 2], [2, -2, -2])
    path, neighbour = (printed_clipping(x) for x in raw)
    assert path == [-2, -1, 2]  # one step is three times the slew
    p, q = distribution(tested, path), distribution(tested, neighbour)
    assert hockey_stick(p, q, 2.0) > 1.2 * delta_of(2.0, mu)
    p, q = (distribution(tested, clipped(x)) for x in raw)
    assert hockey_stick(p, q, 2.0) <= delta_of(2.0, mu) + 1e-8


def test_a_window_without_a_new_chain_fails_the_audit():
    # The streams differ in the first slot alone. The promise is for a window of one report.
    tested = rule(reports=1)
    mu = sqrt(2 * tested.rho()[0] / tested.rho()[1])
    path, neighbour = clipped([-2, -2, 2]), clipped([2, -2, 2])
    assert path != neighbour
    assert path[1:] != neighbour[1:]
    p, q = distribution(tested, path), distribution(tested, neighbour)
    assert hockey_stick(p, q, 1.0) > 1.02 * delta_of(1.0, mu)
    # If each window begins a new chain, only the first report differs.
    p, q = (distribution(tested, path, (1, 2)) for path in ([-2, -2, 2], [2, -2, 2]))
    assert hockey_stick(p, q, 1.0) <= delta_of(1.0, mu) + 1e-8


def test_streams_that_differ_in_one_slot_can_stay_apart_for_ever():
    # x_1 is ±.25, and then both streams alternate between ±.5, at C = .05.
    levels, slew = 1000, 50
    paths = []
    for start in (-250, 250):
        path = [(start,)]
        for i in range(200):
            path.append(clip((500 if i % 2 else -500,), path[-1], slew, levels // 2))
        paths.append(path)
    assert all(abs(a[0] - b[0]) == 500 for a, b in zip(*paths, strict=True))


def test_the_closed_form_counts_what_the_audit_needs():
    # 2R(A-R)G² - 4c²RA + l((A-R)²G² + 4c²RA) with A = 2^shift = 2, R = reuse = 1, G = levels = 4, c = slew = 1, l = 3.
    assert squared_bound(3, 1, LEVELS, SLEW, SHIFT, REUSE) == 24 + 3 * 24
