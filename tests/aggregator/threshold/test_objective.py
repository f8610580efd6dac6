import itertools
import math

import numpy as np
import pytest

from undertone_aggregator.design.continuous import worst_hybrid_variance
from undertone_aggregator.threshold import (
    Query,
    best_threshold,
    constant_variance,
    even_thetas,
    first_edges,
    linear_edges,
    mean_excess,
    quantile,
    zoomed_edges,
)
from undertone_aggregator.threshold.choose import white_box
from undertone_aggregator.threshold.objective import mean_square_error


@pytest.mark.parametrize(
    ("epsilon", "value"),
    [(0.2, 100.667), (0.5, 16.6708), (1, 4.2890), (1.5, 1.8922), (2, 1.0423), (4, 0.2190)],
)
def test_the_hybrids_variance(epsilon, value):
    assert worst_hybrid_variance(epsilon) == pytest.approx(value, rel=1e-4)


def test_mean_excess_is_exact_on_integer_readings():
    rng = np.random.default_rng(5)
    edges = (0, 1, 2, 5, 6, 14, 40)
    readings = np.arange(40)
    density = rng.dirichlet(np.ones(6))
    mass = np.concatenate([np.full(b - a, p / (b - a)) for a, b, p in zip(edges[:-1], edges[1:], density, strict=True)])
    thetas = np.arange(0, 45)
    expected = [mass @ np.maximum(readings - t, 0) for t in thetas]
    np.testing.assert_allclose(mean_excess(density, edges, thetas), expected, atol=1e-12)


def test_queries():
    assert Query.fleet(100) == Query(100.0, 10_000.0)
    assert Query.paper(2**20).reports == pytest.approx(2**20 / 3, rel=1e-5)
    assert Query.paper(2**20).squared == pytest.approx(2**40 / 6, rel=1e-5)


def test_candidates_are_distinct_integers_up_to_the_bound():
    assert list(even_thetas(5)) == [1, 2, 3, 4, 5]
    assert len(even_thetas(10_000)) == 1024
    assert even_thetas(10_000)[-1] == 10_000


def test_the_variance_may_depend_on_theta():
    density, edges = np.full(100, 0.01), tuple(range(101))
    plain, _ = best_threshold(density, edges, even_thetas(100), Query.fleet(1000), lambda t: 1.0)
    for cheap in (30, 60):
        assert cheap != plain
        best, _ = best_threshold(
            density, edges, even_thetas(100), Query.fleet(1000), lambda t, cheap=cheap: 1.0 if t == cheap else 1e6
        )
        assert best == cheap


def test_paper_mode_on_pos_is_the_figure_of_the_mathematics_sheet(undertone_data):
    readings = np.load(undertone_data / "pos_length.npz")["v"].astype(int)
    density = np.bincount(readings, minlength=1639) / len(readings)
    thetas = np.arange(1, 200)
    theta, _ = best_threshold(density, tuple(range(1640)), thetas, Query.paper(2**20), constant_variance(1.0))
    assert abs(theta - 44.8) <= 1


def test_linear_edges_have_equal_widths():
    edges = linear_edges(1023, 128)
    assert (edges[0], edges[-1], len(edges)) == (0, 1024, 129)
    assert set(np.diff(edges)) == {8}
    assert linear_edges(5, 128) == tuple(range(7))
    with pytest.raises(ValueError, match="cells"):
        linear_edges(1023, 257)


def test_edges():
    for bound in (2, 28, 500, 1638, 10_000, 2**22):
        edges = first_edges(bound)
        assert edges[0] == 0
        assert edges[-1] == bound + 1
        assert all(a < b for a, b in itertools.pairwise(edges))
        assert len(edges) <= 129
    assert zoomed_edges(2, 9, 500) == (0, 2, 3, 4, 5, 6, 7, 8, 9, 25, 67, 183, 501)
    assert zoomed_edges(7, 7, 500, cells=2) == (0, 7, 501)
    assert zoomed_edges(1, 1, 2) == (0, 1, 2, 3)
    edges = zoomed_edges(100, 4_000, 10_000, cells=256)
    assert edges[:2] == (0, 100)
    assert 4_000 in edges
    assert 250 <= len(edges) <= 257


@pytest.mark.parametrize(("low", "high", "bound", "cells"), [(3, 2, 9, 8), (1, 2, 1, 8), (1, 2, 9, 257)])
def test_impossible_edges_are_refused(low, high, bound, cells):
    with pytest.raises(ValueError, match=r"low|bound|cells"):
        zoomed_edges(low, high, bound, cells)


def test_quantiles_of_integers():
    edges = tuple(range(11))
    density = np.full(10, 0.1)
    assert [quantile(density, edges, q) for q in (0.05, 0.1, 0.11, 0.5, 1.0)] == [0, 0, 1, 4, 9]
    assert quantile(np.array([0.5, 0.5]), (0, 10, 20), 0.75) == 14
    with pytest.raises(ValueError, match="share"):
        quantile(density, edges, 0.0)


def test_the_white_box_cuts_at_the_first_run_of_empty_bins():
    f = np.array([0.5, 0.3, 5e-5, 0.1, 0, 0, 0, 0, 0, 0.09995, 0.0])
    kept = white_box(f)
    assert np.all(kept[4:] == 0)
    assert kept[2] == 0
    np.testing.assert_allclose(kept[[0, 1, 3]], np.array([0.5, 0.3, 0.1]) + 0.1 / 3)
    with pytest.raises(ValueError, match="flat"):
        white_box(np.full(20_000, 1 / 20_000))


def test_the_hybrids_variance_needs_a_positive_epsilon():
    with pytest.raises(ValueError, match="epsilon"):
        worst_hybrid_variance(0.0)
    assert math.isfinite(worst_hybrid_variance(8.0))


def test_what_is_shown_has_less_noise_in_turns_and_a_larger_theta():
    """The query is that of the fleet. With turns, it counts the noise's variance with a third of the weight."""
    assert Query.shown(300, turns=False) == Query.fleet(300)
    assert Query.shown(300, turns=True) == Query(100.0, 90_000.0)


def test_a_plan_names_its_query():
    assert Query.named("shown", 300, turns=True) == Query.shown(300, turns=True)
    assert Query.named("fleet", 300, turns=True) == Query.fleet(300)
    assert Query.named("ranges:48", 1, turns=False) == Query.paper(48)
    assert Query.named("ranges:1", 300, turns=False) == Query.fleet(300)
    with pytest.raises(ValueError, match="unknown query"):
        Query.named("range:48", 300, turns=False)


def test_a_random_range_of_slots_has_the_papers_moments():
    """E[J] and E[J²] over all ranges of 1 to r consecutive slots with n reports each, each range equally likely."""
    r, n = 12, 7
    lengths = [n * (last - first + 1) for first in range(r) for last in range(first, r)]
    query = Query.paper(r, n)
    assert query.reports == pytest.approx(np.mean(lengths))
    assert query.squared == pytest.approx(np.mean(np.square(lengths)))
    edges = list(range(0, 101))
    density = 0.9 ** np.arange(100)
    density /= density.sum()
    variance = constant_variance(1.0)
    plain, shown = (
        best_threshold(density, edges, even_thetas(100, 100), Query.shown(1000, turns=turns), variance)[0]
        for turns in (False, True)
    )
    tripled, _ = best_threshold(density, edges, even_thetas(100, 100), Query.fleet(3000), variance)
    assert plain < shown == tripled


def test_the_error_of_one_report_is_its_variance_and_squared_bias():
    """ToPS's Eq. 3, for the value 30 truncated at 20 with Laplace noise of scale θ/ε, whose variance is 2θ²/ε²."""
    theta, epsilon, value = 20, 2.0, 30
    excess = mean_excess(np.array([1.0]), [value, value + 1], np.array([theta]))
    (error,) = mean_square_error(excess, np.array([theta]), Query.fleet(1), lambda _: 8 / epsilon**2)
    assert error == pytest.approx(2 * theta**2 / epsilon**2 + (value - theta) ** 2)
    drawn = theta + np.random.default_rng(1).laplace(0, theta / epsilon, 100_000)
    # The squares have a standard deviation of 529, so the mean of 100,000 has 1.7. The limit is seven of these.
    assert np.mean((drawn - value) ** 2) == pytest.approx(error, abs=12)
