"""Evidence of fake reports, and the standard errors of tables."""

import numpy as np
import pytest

from undertone_aggregator.design import hybrid, piecewise
from undertone_aggregator.design.fitted import population_table
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.table import optimal_table
from undertone_aggregator.estimate.misfit import ALARMING, LARGEST, Goodness, joined, manipulation
from undertone_aggregator.estimate.noise import LinearNoise, decoded
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_shared.scalar import ReportRule
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import symbols

THETA = 613
# Readings of meters: most are small, and the last nine cells lie above THETA.
DENSITY = np.exp(-np.arange(40) / 8.0)
POPULATION = Population(DENSITY / DENSITY.sum(), tuple(range(0, 41 * 20, 20)))


def wide_table(epsilon):
    """Return a table of large reach: its largest value is that of the piecewise mechanism."""
    density = tuple(POPULATION.levels(np.linspace(0.0, THETA, 25), THETA))
    return optimal_table(epsilon, THETA, density=density, largest=1 / np.tanh(float(epsilon) / 4))


MAKERS = {
    "wide table": wide_table,
    "table": lambda epsilon: population_table(epsilon, THETA, POPULATION),
    "hybrid": hybrid,
    "piecewise": piecewise,
}


@pytest.fixture(scope="module")
def mechanisms():
    made = {}

    def make(name, epsilon):
        if (name, epsilon) not in made:
            made[name, epsilon] = MAKERS[name](epsilon)
        return made[name, epsilon]

    return make


def histograms(mechanism, readings, runs, seed=1):
    """Return histograms [runs, symbols] of symbols that are drawn as devices draw them."""
    chance = np.random.default_rng(seed)
    words = GivenWords(chance.integers(0, 2**32, (runs * len(readings), 24), dtype=np.uint32))
    drawn = symbols(mechanism, np.tile(np.minimum(readings, THETA), runs), THETA, words).reshape(runs, -1)
    return np.array([np.bincount(row, minlength=mechanism.symbols) for row in drawn])


@pytest.mark.slow_but("like the population-1")
@pytest.mark.parametrize("epsilon", ["0.5", "1", "4"])
@pytest.mark.parametrize(
    "readings",
    [np.random.default_rng(5).exponential(160, 400).astype(int), np.repeat([0, 300, 613], 120)],
    ids=["like the population", "unlike it"],
)
def test_the_standard_error_of_a_table_holds(mechanisms, epsilon, readings):
    table = mechanisms("table", epsilon)
    decoder = Decoder(ReportRule(0, THETA, table), 7, POPULATION)
    runs = [decoder.mean(counts) for counts in histograms(table, readings, 600)]
    errors = np.array([mean for mean, _, _ in runs]) - np.minimum(readings, THETA).mean() - 7
    predicted = np.sqrt(np.mean([variance for _, variance, _ in runs]))
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(len(errors))
    # 600 errors have a standard deviation known to 2.9 %.
    assert predicted / errors.std() == pytest.approx(1, abs=0.02 + 5 * 0.029)
    # The exact standard error is computed from the true readings.
    x = np.minimum(readings, THETA)
    exact = Population(np.bincount(x) / len(x), tuple(range(x.max() + 2))).mean_variance(table, THETA)
    assert predicted == pytest.approx(np.sqrt(exact / len(readings)) * THETA / 2, rel=0.03)


def test_a_tables_variance_is_estimated_without_a_population_too(mechanisms):
    table = mechanisms("table", "4")
    readings = np.random.default_rng(5).exponential(160, 20_000).astype(int)
    x = np.minimum(readings, THETA)
    exact = Population(np.bincount(x) / len(x), tuple(range(x.max() + 2))).mean_variance(table, THETA)
    noise = LinearNoise(table, THETA, Population.even(THETA))
    assert noise(histograms(table, readings, 1))[0] == pytest.approx(exact, rel=0.04)


@pytest.mark.slow_but("table-0.5", "piecewise-4")
@pytest.mark.parametrize("epsilon", ["0.5", "4"])
@pytest.mark.parametrize("name", MAKERS)
def test_honest_devices_raise_no_alarm_whatever_they_measure(mechanisms, name, epsilon):
    mechanism = mechanisms(name, epsilon)
    goodness = Goodness(mechanism, THETA, POPULATION)
    for readings in (np.zeros(300, int), np.full(300, THETA), np.random.default_rng(5).exponential(160, 300)):
        counts = histograms(mechanism, readings.astype(int), 100)
        assert goodness.misfits(counts).max() < ALARMING


@pytest.mark.parametrize("name", MAKERS)
def test_the_evidence_is_an_e_value(mechanisms, name):
    """With 50 devices, evidence of 10 and of 100 is no more frequent than Markov's bound allows, up to the noise."""
    mechanism = mechanisms(name, "1")
    misfits = Goodness(mechanism, THETA, POPULATION).misfits(histograms(mechanism, np.full(50, 40), 2000))
    assert np.mean(misfits >= 1) < 0.1 + 5 * 0.0067
    assert np.mean(misfits >= 2) < 0.01 + 5 * 0.0023


def test_a_slot_with_several_histograms_reaches_m_no_more_often_than_one():
    """In the worst case, the evidence of a histogram is ``large`` with the probability 1/``large``, and else 0."""
    for large in (1.5, 2.0, 4.0, 100.0):
        misfits, chances = np.log10([1.0, large]), np.array([1 - 1 / large, 1 / large])
        both = joined(np.stack(np.meshgrid(misfits, misfits), axis=-1).ravel(), np.arange(0, 8, 2))
        chance = np.outer(chances, chances).ravel()
        for m in both[both > 0]:
            assert chance[both >= m - 1e-12].sum() <= 10**-m + 1e-12
    assert joined(np.array([3.0, 7.0, 0.5]), np.array([0, 1])).tolist() == pytest.approx([3.0, 7.5 - 2 * np.log10(2)])


@pytest.mark.slow_but("hybrid-1-0.02")
@pytest.mark.parametrize(
    ("name", "epsilon", "share"),
    [
        *(("wide table", epsilon, share) for epsilon, share in (("0.5", 0.2), ("1", 0.1), ("2", 0.05), ("4", 0.05))),
        ("hybrid", "1", 0.02),
    ],
)
def test_fakes_that_push_the_mean_are_seen(mechanisms, name, epsilon, share):
    mechanism = mechanisms(name, epsilon)
    readings = np.random.default_rng(5).exponential(160, 10_000).astype(int)
    counts = histograms(mechanism, readings[round(len(readings) * share) :], 1)
    counts[0, np.argmax(decoded(mechanism, THETA))] += round(len(readings) * share)
    assert Goodness(mechanism, THETA, POPULATION).misfits(counts)[0] > ALARMING


@pytest.mark.parametrize(("epsilon", "share", "seen"), [("1", 0.1, True), ("2", 0.05, False), ("4", 0.05, True)])
def test_fakes_of_the_shipped_tables_are_seen_or_look_honest(mechanisms, epsilon, share, seen):
    """The largest value of a designed table is smaller than the Hybrid's, so a fake moves the mean less.

    At ε = 2, 5 % of fakes raise no alarm.
    """
    table = mechanisms("table", epsilon)
    readings = np.random.default_rng(5).exponential(160, 400_000).astype(int)
    lies = round(len(readings) * share)
    counts = histograms(table, readings[lies:], 1)
    counts[0, np.argmax(decoded(table, THETA))] += lies
    assert (Goodness(table, THETA, POPULATION).misfits(counts)[0] > ALARMING) == seen
    assert decoded(table, THETA).max() < 0.93 / np.tanh(float(epsilon) / 4)


def test_an_impossible_symbol_is_told():
    mechanism = hybrid("0.5")
    counts = np.zeros((1, mechanism.symbols), dtype=np.int64)
    counts[0, :2] = 100
    goodness = Goodness(mechanism, THETA, None)
    assert goodness.misfits(counts)[0] == 0
    counts[0, 700] = 1
    assert goodness.misfits(counts)[0] == LARGEST


def test_the_manipulation_bound_is_reached_and_never_exceeded():
    chance = np.random.default_rng(3)
    honest = chance.uniform(-100, 900, 990)
    for fakes in (np.full(10, 900.0), np.full(10, -100.0), chance.uniform(-100, 900, 10)):
        estimate = float(np.concatenate([honest, fakes]).mean())
        assert abs(estimate - honest.mean()) <= manipulation(estimate, -100, 900) * (1 + 1e-12)
    estimate = float(np.concatenate([honest, np.full(10, 900.0)]).mean())
    above = manipulation(estimate, estimate, 900)
    assert abs(estimate - honest.mean()) == pytest.approx(above)


def test_the_farther_of_the_two_largest_lies_counts():
    # Half of the reports are fake. The mean moves by the distance to the farther end, times share/(1 - share) = 1.
    assert [manipulation(estimate, -100, 900, 0.5) for estimate in (-100, 0, 400, 800, 900)] == [
        1000,
        900,
        500,
        900,
        1000,
    ]
    assert manipulation(400, -100, 900) == pytest.approx(500 / 99)
