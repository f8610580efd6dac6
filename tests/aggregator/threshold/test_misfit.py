"""The alarms of the rounds: none for honest readings of six shapes, and one when devices lie or readings drift."""

import numpy as np
import pytest

from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import CohortCounts, WindowChannel, first_edges
from undertone_aggregator.threshold.bin_edges import zoomed_edges
from undertone_aggregator.threshold.choose import theta_from_reports
from undertone_aggregator.threshold.misfit import misfit
from undertone_aggregator.threshold.objective import Query, constant_variance

BOUND = 20_000
ALARM = 6.0
SHAPES = {
    "constant": lambda g, n: np.full(n, 300),
    "narrow": lambda g, n: g.normal(300, 10, n),
    "uniform": lambda g, n: g.integers(0, 1000, n),
    "90 % zeros": lambda g, n: g.weibull(0.9, n) * 300 * (g.random(n) >= 0.9),
    "Weibull": lambda g, n: g.weibull(0.8, n) * 200,
    "Pareto 1.2": lambda g, n: (g.pareto(1.2, n) + 1) * 20,
}
EPSILONS = ("0.6", "1", "2", "4")
# As in real rounds, the first divides all readings into cells, and the next ones divide a part of them more finely.
EDGES = (first_edges(BOUND), zoomed_edges(200, 1500, BOUND, 128), zoomed_edges(250, 1200, BOUND, 128))


def laws(shape, epsilon, scale=(1.0, 1.0, 1.0)):
    """(mechanism, distribution of a report) of each round. ``scale``: the factor of each round's readings."""
    readings = SHAPES[shape](np.random.default_rng(5), 200_000)
    made = []
    for edges, factor in zip(EDGES, scale, strict=True):
        mechanism = square_wave(epsilon, edges)
        x = np.clip(np.rint(readings * factor), 0, BOUND)
        level = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, mechanism.levels)
        law = WindowChannel(mechanism).apply(np.bincount(level, minlength=mechanism.levels + 1) / len(x))
        made.append((mechanism, law / law.sum()))
    return made


def drawn(rounds, generator, sizes, liars=0.0):
    counts = []
    for (mechanism, law), size in zip(rounds, sizes, strict=True):
        false = round(size * liars)
        seen = generator.multinomial(size - false, law)
        seen[-1] += false
        counts.append(CohortCounts(mechanism, seen))
    return counts


def silent(shape, epsilon, runs):
    rounds, generator = laws(shape, epsilon), np.random.default_rng(6)
    for size in (2_400, 48_000):
        for _ in range(runs // 2):
            assert misfit(drawn(rounds, generator, (size, size, 3 * size)), BOUND) < ALARM


@pytest.mark.slow_but("Weibull-1", "90 % zeros-1", "constant-2", "narrow-0.6")
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_alarm_for_honest_readings_of_any_shape(shape, epsilon):
    # The limit is six standard deviations above the mean of a χ². With more than 200 degrees of freedom, as here, the
    # χ² exceeds it with a chance below 1.5e-7.
    silent(shape, epsilon, 10)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [*EPSILONS, "8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_alarm_in_two_hundred_runs(shape, epsilon):
    silent(shape, epsilon, 200)


@pytest.mark.slow_but("90 % zeros-2", "constant-1")
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_five_percent_of_liars_are_heard(shape, epsilon):
    rounds, generator = laws(shape, epsilon), np.random.default_rng(7)
    for _ in range(5):
        assert misfit(drawn(rounds, generator, (2_400, 2_400, 7_200), liars=0.05), BOUND) > ALARM


@pytest.mark.parametrize("epsilon", ["1", "4"])
def test_readings_that_double_between_rounds_are_heard(epsilon):
    rounds, generator = laws("Weibull", epsilon, scale=(1.0, 1.0, 2.0)), np.random.default_rng(8)
    assert misfit(drawn(rounds, generator, (48_000, 48_000, 144_000)), BOUND) > ALARM


def test_rounds_of_other_readings_are_uneven_and_no_alarm_about_false_reports():
    """Readings double in the third round, which is no false report. Then 5 % of the devices lie, which is an alarm."""
    rounds, generator = laws("Weibull", "4", scale=(1.0, 1.0, 2.0)), np.random.default_rng(8)
    for liars, word in ((0.0, "uneven rounds"), (0.05, "bad fit")):
        counts = drawn(rounds, generator, (48_000, 48_000, 144_000), liars=liars)
        chosen = theta_from_reports(counts, bound=BOUND, variance=constant_variance(4.0), query=Query.fleet(500))
        told = {warning.partition(":")[0] for warning in chosen.warnings}
        assert told & {"uneven rounds", "bad fit"} == {word}
        assert ("false reports" in told) == (liars > 0)


def warned(shape, epsilon, seed, size=2_400):
    counts = drawn(laws(shape, epsilon), np.random.default_rng(seed), (size, size, 3 * size))
    chosen = theta_from_reports(counts, bound=BOUND, variance=constant_variance(1.0), query=Query.paper(2**20))
    return [warning for warning in chosen.warnings if "second group" in warning or "bad fit" in warning]


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_zeros_are_no_second_group(epsilon):
    assert not [warning for seed in range(2) for warning in warned("90 % zeros", epsilon, seed)]


def test_a_tenth_a_hundred_times_above_the_rest_is_a_second_group(monkeypatch):
    def far(g, n):
        return g.gamma(4, 10, n) * np.where(g.random(n) < 0.1, 100, 1)

    monkeypatch.setitem(SHAPES, "far", far)
    assert any("second group" in warning for warning in warned("far", "2", 1, size=16_000))
