"""Consistent hierarchies: online results equal offline ones, in bounded memory. Range queries have exact variances."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

from support.central import seeded
from undertone_central.mechanisms import hierarchy
from undertone_central.mechanisms.consistency import LeastAbsolute, LeastSquares
from undertone_central.mechanisms.hierarchy import Consistent, Nodes, levels_for
from undertone_central.mechanisms.variance import average_variance, consistent_variance, cover, cover_size
from undertone_shared.errors import Invalid

SHAPES = [(2, 2), (2, 5), (3, 3), (4, 2)]
RULES = [("least-squares", LeastSquares), ("least-absolute", LeastAbsolute)]


def sums(leaves, fanout, levels):
    tree = [np.asarray(leaves)]
    for _ in range(1, levels):
        tree.append(tree[-1].reshape(-1, fanout).sum(axis=1))
    return tree


def design(fanout, levels):
    """Each node as a sum of leaves, as rows of a matrix, leaves first. There is one top-level node."""
    heights = range(1, levels + 1)
    return np.concatenate([np.kron(np.eye(fanout ** (levels - h)), np.ones(fanout ** (h - 1))) for h in heights])


def offline(rule, fanout, noisy):
    """The consistent tree, computed level by level: up, and then down."""
    statistics = [rule.leaves(noisy[0])]
    for height in range(2, len(noisy) + 1):
        children = statistics[-1].reshape(len(noisy[height - 1]), fanout, -1)
        statistics.append(rule.up(noisy[height - 1], children, height))
    tree = [rule.root(statistics[-1], len(noisy))]
    for height in range(len(noisy), 1, -1):
        children = statistics[height - 2].reshape(len(tree[-1]), fanout, -1)
        tree.append(rule.down(tree[-1], children, height).reshape(-1))
    return tree[::-1]


def random_tree(rng, fanout, levels):
    return [rng.integers(-60, 60, fanout ** (levels - h)) for h in range(1, levels + 1)]


@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
@pytest.mark.parametrize(("name", "rule"), RULES)
def test_every_parent_is_the_sum_of_its_children_and_true_values_only_shift_it(fanout, levels, name, rule):
    rng = np.random.default_rng(2)
    for _ in range(10):
        noise = random_tree(rng, fanout, levels)
        true = sums(rng.integers(0, 50, fanout ** (levels - 1)), fanout, levels)
        consistent = offline(rule(fanout, levels, 10.0), fanout, noise)
        for below, above in pairwise(consistent):
            assert below.reshape(-1, fanout).sum(axis=1).tolist() == above.tolist()
        shifted = offline(rule(fanout, levels, 10.0), fanout, [n + t for n, t in zip(noise, true, strict=True)])
        for c, t, s in zip(consistent, true, shifted, strict=True):
            assert (c + t).tolist() == s.tolist()


@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
def test_least_squares_is_the_least_squares_solution_up_to_rounding(fanout, levels):
    rng = np.random.default_rng(3)
    nodes = design(fanout, levels)
    for _ in range(5):
        noisy = random_tree(rng, fanout, levels)
        leaves = np.linalg.lstsq(nodes, np.concatenate(noisy), rcond=None)[0]
        solved = np.concatenate(offline(LeastSquares(fanout, levels, 10.0), fanout, noisy))
        assert np.abs(nodes @ leaves - solved).max() < levels


@pytest.mark.parametrize(("fanout", "levels"), SHAPES)
def test_least_absolute_reaches_the_optimum_of_the_linear_programme(fanout, levels):
    rng = np.random.default_rng(4)
    nodes = design(fanout, levels)
    k, n = nodes.shape
    for _ in range(5):
        noisy = random_tree(rng, fanout, levels)
        y = np.concatenate(noisy)
        best = linprog(
            np.r_[np.zeros(n), np.ones(k)],
            A_ub=np.block([[nodes, -np.eye(k)], [-nodes, -np.eye(k)]]),
            b_ub=np.r_[y, -y],
            bounds=[(None, None)] * n + [(0, None)] * k,
        )
        solved = np.concatenate(offline(LeastAbsolute(fanout, levels, 10.0), fanout, noisy))
        assert np.abs(solved - y).sum() == pytest.approx(best.fun)


@pytest.mark.parametrize(("name", "rule"), RULES)
@pytest.mark.parametrize("block", [1, 4, 8, 1 << 16])
def test_online_is_offline_exactly_whatever_the_block(monkeypatch, name, rule, block):
    """Three top-level nodes of four levels, with noise from a table and blocks of 1, 4, 8 and all leaves."""
    fanout, levels, tops = 2, 4, 3
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, fanout, levels) for _ in range(tops)]
    values = rng.integers(0, 9, tops * fanout ** (levels - 1))
    monkeypatch.setattr(hierarchy, "LARGEST_BLOCK", block)
    online = Consistent(fanout, levels, Fraction(20), seeded(), name)
    opened = []

    def noise(height, number, sizes):
        if not opened or opened[-1] != online._key:
            opened.append(online._key)
        heights = range(height - len(sizes) + 1, height + 1)
        tree = trees[len(opened) - 1]
        return [tree[h - 1][number * n : number * n + n] for h, n in zip(heights, sizes, strict=True)]

    monkeypatch.setattr(online, "_noise", noise)
    released = np.concatenate([online.publish(part) for part in np.split(values, [1, 2, 9, 16, 21])])
    expected = []
    for tree, part in zip(trees, np.split(values, tops), strict=True):
        noisy = [n + t for n, t in zip(tree, sums(part, fanout, levels), strict=True)]
        expected += offline(rule(fanout, levels, 20.0), fanout, noisy)[0].tolist()
    assert released.tolist() == expected
    assert len(opened) == len(set(opened)) == tops


def test_memory_is_one_block_and_the_siblings_above_it(monkeypatch):
    monkeypatch.setattr(hierarchy, "LARGEST_BLOCK", 16)
    online = Consistent(4, 6, Fraction(20), seeded(), "least-squares")
    for _ in range(40):
        online.publish(np.zeros(61, dtype=np.int64))
        held = online._block.size + sum(values.size for _, values in online._open.values())
        assert held <= 16 + 4 * 6
    assert len(online.state()) == 2


def test_nodes_close_in_order_with_their_exact_sums():
    """The scale is so small that all noise is 0. Complete nodes come in order of time and then of height."""
    values = np.random.default_rng(6).integers(0, 9, 40)
    for fanout, levels in ((2, 4), (3, 2), (2, 1)):
        expected = []
        for t in range(1, len(values) + 1):
            widths = [fanout**h for h in range(levels) if t % fanout**h == 0]
            expected += [int(values[t - w : t].sum()) for w in widths]
        for cut in ([], [1, 2, 3, 5, 8, 13, 30], list(range(1, 40))):
            nodes = Nodes(fanout, levels, Fraction(1, 10**4), seeded())
            parts = [nodes.publish(part) for part in np.split(values, cut)]
            assert np.concatenate(parts).tolist() == expected


@pytest.mark.parametrize(("fanout", "levels"), [(2, 3), (3, 3), (4, 2)])
def test_variances_of_all_ranges_are_those_of_least_squares(fanout, levels):
    tops = 2
    nodes = np.kron(np.eye(tops), design(fanout, levels))
    covariance = np.linalg.inv(nodes.T @ nodes)
    leaves = nodes.shape[1]
    for first in range(leaves):
        for end in range(first, leaves + 1):
            chosen = np.zeros(leaves)
            chosen[first:end] = 1
            assert consistent_variance(first, end, fanout, levels) == pytest.approx(chosen @ covariance @ chosen)
            nodes = cover(first, end, fanout, levels)
            assert cover_size(first, end, fanout, levels) == len(nodes)
            covered = [leaf for h, i in nodes for leaf in range(i * fanout ** (h - 1), (i + 1) * fanout ** (h - 1))]
            assert sorted(covered) == list(range(first, end))


def test_data_independent_constants_of_the_papers_queries():
    """Kθ²/ε² is the mean square of the noise of 200 fixed queries.

    K is 14276.0 for H2 and 3195.25 for H16, and less with consistency.
    """
    queries = np.sort(np.random.default_rng(20211115).integers(0, 2**20, (200, 2)), axis=1).tolist()
    k = {}
    for fanout, levels in ((2, 20), (16, 5)):
        k[fanout] = 2 * levels**2 * np.mean([cover_size(a, b, fanout, levels) for a, b in queries])
        k[-fanout] = 2 * levels**2 * np.mean([consistent_variance(a, b, fanout, levels) for a, b in queries])
    assert k[2] == 14276.0
    assert k[16] == 3195.25
    assert k[-16] == pytest.approx(1170.607, abs=1e-3)
    assert k[-2] == pytest.approx(2948.434, abs=1e-3)
    assert 2 * 25 * average_variance(16, 5, consistent=True) == pytest.approx(k[-16], rel=0.05)


def test_measured_noise_has_the_computed_variance():
    """Over 120 trees, the ratio of measured to computed variance is 1 within 5.5 standard errors.

    The standard deviation of the square of such a sum is at most 2.3 times its mean.
    """
    online = Consistent(4, 3, Fraction(50), seeded(11), "least-squares")
    noise = online.publish(np.zeros(120 * 64, dtype=np.int64)).reshape(120, 64)
    for first, end in ((0, 64), (5, 43), (7, 8), (16, 32)):
        expected = consistent_variance(first, end, 4, 3) * 2 * 50**2
        ratio = (noise[:, first:end].sum(axis=1) ** 2).mean() / expected
        assert abs(ratio - 1) < 5.5 * 2.3 / 120**0.5


def test_a_key_lives_as_long_as_its_top_level_node():
    online = Consistent(2, 3, Fraction(5), seeded(), "least-squares")
    online.publish(np.zeros(3, dtype=np.int64))
    first = online._key
    online.publish(np.zeros(1, dtype=np.int64))
    assert first
    assert online._key == ""
    online.publish(np.zeros(1, dtype=np.int64))
    assert online._key not in ("", first)


def test_what_does_not_fit_is_refused():
    with pytest.raises(Invalid, match="power of the fan-out 16"):
        levels_for(16, 1000)
    with pytest.raises(Invalid, match="fanout"):
        levels_for(1, 4)
    with pytest.raises(Invalid, match="64 bits"):
        Consistent(16, 5, Fraction(1 << 40), seeded(), "least-squares")
    with pytest.raises(Invalid, match="53 bits"):
        Consistent(16, 5, Fraction(1 << 30), seeded(), "least-absolute")
    with pytest.raises(Invalid, match="consistency is 'best'"):
        Consistent(16, 5, Fraction(1), seeded(), "best")
