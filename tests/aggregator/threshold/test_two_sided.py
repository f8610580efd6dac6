"""The lower limit of the range: both ends come from the cohort's rounds, and are near the best for the readings."""

import numpy as np
import pytest

from undertone_aggregator.design import square_wave
from undertone_aggregator.design.population import Population
from undertone_aggregator.threshold import CohortCounts, Query, Threshold, constant_variance, first_edges, mean_excess
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_aggregator.threshold.limits import limit_range
from undertone_aggregator.threshold.two_sided import best_range, two_sided_range, with_bottom

BOUND = 1250
POPULATIONS = {
    "rooms": lambda rng, n: 600 + 50 * np.clip(rng.normal(0, 0.4, n), -1, 1),
    "mains voltage": lambda rng, n: rng.normal(1150, 10, n),
    "two groups": lambda rng, n: np.where(rng.random(n) < 0.3, 300, 600) + rng.normal(0, 10, n),
    "skewed": lambda rng, n: 400 + 10 * rng.gamma(3, 3, n),
    "load": lambda rng, n: rng.weibull(0.8, n) * 30,
    **{f"{below} below the bound": lambda rng, n, below=below: np.full(n, BOUND - below) for below in (0, 1, 5)},
}


def readings(name, rng, n):
    return np.clip(np.rint(POPULATIONS[name](rng, n)), 0, BOUND).astype(np.int64)


def chosen_for(name, devices, epsilon="1", slots_of_rounds=(48, 48, 144), seed=3):
    rng = np.random.default_rng(seed)
    edges, rounds = first_edges(BOUND), []
    for slots in slots_of_rounds:
        mechanism = square_wave(epsilon, edges)
        level = np.searchsorted(edges[1:-1], readings(name, rng, devices * slots), side="right")
        rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]) / mechanism.total
        counts = sum(rng.multinomial(number, rows[k]) for k, number in enumerate(np.bincount(level)) if number)
        rounds.append(CohortCounts(mechanism, counts))
        edges = next_range(rounds, bound=BOUND)
    query, variance = Query.fleet(devices), constant_variance(float(epsilon))
    chosen = theta_from_reports(rounds, bound=BOUND, variance=variance, query=query)
    return with_bottom(chosen, rounds, BOUND, query, variance)


def best_width(name, devices):
    x = readings(name, np.random.default_rng(4), 500_000)
    density, grid = np.bincount(x, minlength=BOUND + 1) / len(x), range(BOUND + 2)
    ends = np.unique(np.concatenate([[0], np.linspace(x.min(), x.max(), 120).astype(np.int64), [BOUND]]))
    above = mean_excess(density, grid, ends)
    down = np.maximum(above - x.mean() + ends, 0.0)
    width = ends[None, :] - ends[:, None]
    noise = np.where(width > 0, devices * constant_variance(1.0)(1) * (width / 2.0) ** 2, np.inf)
    errors = noise + devices**2 * (above[None, :] + down[:, None]) ** 2
    low, high = np.unravel_index(errors.argmin(), errors.shape)
    return ends[high] - ends[low]


@pytest.mark.parametrize("below", [0, 1, 5])
def test_equal_readings_get_a_range_within_the_bound(below):
    """Also if the candidate ends are only 0, the reading and the bound: the variance is then asked for at width 1."""
    chosen = chosen_for(f"{below} below the bound", 300, "4")
    assert 0 <= chosen.bottom < chosen.theta <= BOUND
    density, widths = np.zeros(BOUND + 1), []
    density[BOUND - below] = 1.0
    best_range(chosen, density, range(BOUND + 2), BOUND, Query.fleet(300), lambda width: widths.append(width) or 1.0)
    assert widths == [1]


def test_both_ends_are_found_where_the_first_round_is_sharp_but_has_noise_far_from_the_readings():
    chosen = chosen_for("rooms", 300, "4", (48, 48, 48))
    assert 550 < chosen.bottom < 600 < chosen.theta < 650
    # No reading is far from the others, so θ removes hardly anything.
    assert abs(chosen.bias) < 0.5


@pytest.mark.parametrize("seed", range(12, 20))
def test_the_noise_of_few_reports_moves_neither_the_mean_nor_the_bias_by_much(seed):
    """There are 1,440 reports at ε = 1."""
    chosen = chosen_for("rooms", 10, slots_of_rounds=(48, 48, 48), seed=seed)
    middles = (np.array(chosen.edges[:-1]) + np.array(chosen.edges[1:]) - 1) / 2
    assert abs(float(chosen.density @ middles) - 600) < 10
    assert abs(chosen.bias) < 1
    assert chosen.bottom < 600 < chosen.theta


def test_readings_that_are_really_far_from_the_others_are_kept():
    """Three of ten devices are near 300, the others near 600."""
    chosen = chosen_for("two groups", 300, "4", (48, 48, 48))
    middles = (np.array(chosen.edges[:-1]) + np.array(chosen.edges[1:]) - 1) / 2
    # The share among 43,200 drawn readings has a standard error of .0022, to which the noise of the reports adds.
    assert float(chosen.density[middles < 450].sum()) == pytest.approx(0.3, abs=0.02)
    assert chosen.bottom < 330


def test_small_counts_are_not_far_from_zero_however_few_devices_report():
    """The readings are small counts, of which 800 are reported at ε = 1."""
    rng = np.random.default_rng(5)
    edges = first_edges(28)
    mechanism = square_wave("1", edges)
    level = np.searchsorted(edges[1:-1], np.clip(1 + rng.poisson(0.4, 800), 0, 28), side="right")
    rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]) / mechanism.total
    counts = sum(rng.multinomial(number, rows[k]) for k, number in enumerate(np.bincount(level)) if number)
    assert two_sided_range([CohortCounts(mechanism, counts)], 28) is None


@pytest.mark.slow_but("500-rooms", "500-skewed")
@pytest.mark.parametrize("name", ["rooms", "mains voltage", "skewed"])
@pytest.mark.parametrize("devices", [500, 10_000])
def test_both_ends_are_found_where_readings_lie_far_from_zero(name, devices):
    chosen = chosen_for(name, devices)
    assert chosen.bottom > 0
    assert chosen.width <= 1.5 * best_width(name, devices)
    assert chosen.width >= best_width(name, devices) / 1.5


def test_readings_that_start_at_zero_have_no_bottom():
    assert chosen_for("load", 2_000).bottom == 0


def test_a_range_moves_by_its_width_at_most():
    def choice(bottom, theta):
        return Threshold(theta, theta, theta, 0.0, 0.0, 0.0, np.ones(1), (0, 1), "robust", bottom=bottom)

    assert limit_range(choice(550, 650), 560, 640, BOUND) == choice(550, 650)
    far = limit_range(choice(100, 900), 560, 640, BOUND)
    assert (far.bottom, far.theta) == (480, 720)
    assert "outwards by at most the range's width" in far.notices[-1]
    # A range far away would be narrower than half of the old width; it gets that width, within the same limits.
    for chosen, nearest in (((900, 980), (680, 720)), ((100, 180), (480, 520))):
        moved = limit_range(choice(*chosen), 560, 640, BOUND)
        assert (moved.bottom, moved.theta) == nearest
    narrow = limit_range(choice(600, 610), 560, 640, BOUND)
    assert narrow.width == 40
    high = limit_range(choice(BOUND - 1, BOUND), BOUND - 80, BOUND, BOUND)
    assert (high.bottom, high.theta) == (BOUND - 40, BOUND)
    assert limit_range(choice(0, 900), 0, 300, BOUND).theta == 600


@pytest.mark.parametrize("low", [0, 1, 7, 10, 24, 25, 400])
def test_a_population_above_a_value_keeps_its_mean(low):
    population = Population(np.array([0.5, 0.3, 0.2]), (0, 10, 20, 25))
    x = np.arange(25)
    mass = np.repeat([0.05, 0.03, 0.04], [10, 10, 5])
    shifted = population.above(low)
    edges = np.asarray(shifted.edges)
    mean = float(((edges[:-1] + edges[1:] - 1) / 2) @ shifted.density)
    assert shifted.density.sum() == pytest.approx(1.0)
    assert mean == pytest.approx(float(mass @ np.maximum(x - low, 0)))
