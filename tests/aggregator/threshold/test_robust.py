import itertools
import re

import numpy as np
import pytest

from undertone_aggregator.design import hybrid, most_levels, square_wave
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    ReportCounts,
    WindowChannel,
    constant_variance,
    first_edges,
    mean_excess,
)
from undertone_aggregator.threshold.choose import fitted_density, next_range, theta_from_reports, white_box
from undertone_aggregator.threshold.counts import level_law
from undertone_aggregator.threshold.fit import Likelihood, Likelihoods, Observation
from undertone_aggregator.threshold.posterior import posterior
from undertone_aggregator.threshold.tail import Component, TailModel, cell_masses, survival

BOUND = 5_000
VARIANCE = constant_variance(1.0)
QUERY = Query.paper(2**20)


def weibull(generator, n):
    return np.minimum(100 * generator.weibull(0.8, n), BOUND).astype(np.int64)


def histogram(mechanism, readings, generator):
    edges = np.asarray(mechanism.edges)
    level = np.clip(np.searchsorted(edges, readings, side="right") - 1, 0, mechanism.levels)
    law = WindowChannel(mechanism).apply(np.bincount(level, minlength=mechanism.levels + 1) / len(readings))
    return CohortCounts(mechanism, generator.multinomial(len(readings), law / law.sum()))


def rounds_of(draw, epsilon="1", sizes=(16_384, 16_384, 32_768), bound=BOUND, seed=1):
    generator = np.random.default_rng(seed)
    edges, rounds = first_edges(bound), []
    for size in sizes:
        if rounds:
            edges = next_range(rounds, bound=bound)
        rounds.append(histogram(square_wave(epsilon, edges), draw(generator, size), generator))
    return rounds


def choose(rounds, bound=BOUND, query=QUERY, **options):
    return theta_from_reports(rounds, bound=bound, variance=VARIANCE, query=query, **options)


def regret(theta, draw, bound=BOUND):
    readings = draw(np.random.default_rng(99), 400_000)
    share = np.bincount(readings, minlength=bound + 1) / len(readings)
    thetas = np.unique(np.append(np.geomspace(1, bound, 800).astype(np.int64), theta))
    excess = mean_excess(share, range(bound + 2), thetas)
    errors = QUERY.reports * VARIANCE(1) * thetas**2 / 4 + QUERY.squared * excess**2
    return errors[thetas == theta][0] / errors.min()


@pytest.fixture(scope="module")
def weibull_rounds():
    return rounds_of(weibull)


def test_a_constant_slope_is_exactly_a_weibull_law():
    model = TailModel.over(BOUND, 4.0)
    x = np.array([1.0, 7.0, 50.0, 300.0, 4_000.0])
    p = np.concatenate([[np.log((np.exp(4.0) / 60.0) ** 0.7)], np.full(len(model.middles), np.log(0.7)), [40.0]])
    np.testing.assert_allclose(survival(p, model.lengths(np.log(x))), np.exp(-((x / 60.0) ** 0.7)), rtol=1e-10)


def test_a_share_of_zeros_thins_the_tail_and_leaves_its_shape():
    model = TailModel.over(BOUND, 4.0)
    lengths = model.lengths(np.log(np.array([1.0, 50.0, 4_000.0])))
    p = np.concatenate([[-0.5], np.full(len(model.middles), -0.2), [np.log(0.4 / 0.6)]])
    everything = np.append(p[:-1], 40.0)
    np.testing.assert_allclose(survival(p, lengths), 0.4 * survival(everything, lengths), rtol=1e-10)


def test_three_zeros_in_five_do_not_spoil_the_tail():
    def draw(generator, n):
        return np.minimum(weibull(generator, n) * (generator.random(n) >= 0.6), BOUND)

    chosen = choose(rounds_of(draw))
    assert regret(chosen.theta, draw) < 2.0
    assert abs(chosen.density[0] - 0.6) < 0.1


def test_the_score_is_the_derivative_of_the_likelihood():
    generator = np.random.default_rng(4)
    model = TailModel.over(200, 2.0)
    points = (2, 5, 9, 30, 100)
    observation = Observation(
        points, generator.dirichlet(np.ones(8), size=6).T, generator.integers(1, 50, 8).astype(float)
    )
    likelihood = Likelihood(model, [observation, observation])
    p = np.concatenate([[-1.0], generator.normal(-0.3, 0.3, len(model.middles)), [0.5]])
    gradient, information = likelihood.score(p)
    step = 1e-6 * np.eye(len(p))
    numeric = [(likelihood.value(p + h) - likelihood.value(p - h)) / 2e-6 for h in step]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)
    assert np.linalg.eigvalsh(information).min() > -1e-8


def test_pieces_computed_together_are_the_likelihood_of_each():
    generator = np.random.default_rng(4)
    model = TailModel.over(200, 2.0)
    square = WindowChannel(square_wave("1", first_edges(200, 24))).matrix()
    laws = [
        ((2, 5, 9, 30, 100), generator.dirichlet(np.ones(8), size=6).T),
        ((2, 5, 9, 30, 100), generator.dirichlet(np.ones(3), size=6).T),
        (first_edges(200, 24)[1:-1], square),
    ]
    counts = [generator.integers(0, 50, (4, len(matrix))).astype(float) for _, matrix in laws]
    # In two of the pieces, there is no report by the second mechanism.
    counts[1][[0, 2]] = 0.0
    together = Likelihoods(model, [Observation(*law, seen) for law, seen in zip(laws, counts, strict=True)])
    p = np.concatenate([[-1.0], np.full(len(model.middles), -0.3), [0.5]]) + generator.normal(
        0, 0.3, (4, len(model.middles) + 2)
    )
    gradients, information = together.score(p)
    for piece, value in enumerate(together.value(p)):
        alone = Likelihood(model, [Observation(*law, seen[piece]) for law, seen in zip(laws, counts, strict=True)])
        assert value == pytest.approx(float(alone.value(p[piece])), rel=1e-13)
        # Sums of the same terms in another order differ in their last digits.
        for mine, own in zip((gradients[piece], information[piece]), alone.score(p[piece]), strict=True):
            np.testing.assert_allclose(mine, own, rtol=1e-11, atol=1e-12 * np.abs(own).max())


def test_cell_masses_are_a_distribution():
    s = np.array([[0.9, 0.5, 0.5, 0.1], [1.0, 0.2, 0.1, 0.0]])
    np.testing.assert_allclose(cell_masses(s), [[0.1, 0.4, 0, 0.4, 0.1], [0, 0.8, 0.1, 0.1, 0]], atol=1e-12)


def test_the_prior_walks_stiffly_above_the_anchor_and_freely_below():
    model = TailModel.over(BOUND, 4.0)
    prior = model.prior(Component(0.8, 0.2, 0.0, 0.3, 1.0), 5.0)
    between = -np.diag(prior.precision[1:-1, 1:-1], k=1)
    middle = (model.middles[1:] + model.middles[:-1]) / 2
    assert between[middle > 5.0].min() > 10 * between[middle < 5.0].max()


def test_theta_is_near_the_best_and_its_uncertainty_holds_it(weibull_rounds):
    chosen = choose(weibull_rounds)
    assert regret(chosen.theta, weibull) < 2.0
    assert chosen.low <= chosen.theta <= chosen.high
    truth = np.maximum(weibull(np.random.default_rng(99), 400_000) - chosen.theta, 0).mean()
    assert abs(chosen.bias - truth) < 5 * chosen.bias_se
    assert chosen.warnings == []
    assert abs(chosen.quantile(0.5) / 63 - 1) < 0.2
    assert chosen.density.sum() == pytest.approx(1.0)
    assert len(chosen.edges) == len(chosen.density) + 1


def test_equal_histograms_give_equal_results(weibull_rounds):
    first, second = choose(weibull_rounds), choose(weibull_rounds)
    assert (first.theta, first.bias, first.bias_se) == (second.theta, second.bias, second.bias_se)
    assert next_range(weibull_rounds, bound=BOUND) == next_range(weibull_rounds, bound=BOUND)


def test_a_costlier_mechanism_or_a_larger_fleet_moves_theta_the_right_way(weibull_rounds):
    small = choose(weibull_rounds, query=Query.fleet(100)).theta
    large = choose(weibull_rounds, query=Query.fleet(100_000)).theta
    costly = theta_from_reports(weibull_rounds, bound=BOUND, variance=lambda t: 100.0, query=Query.fleet(100_000)).theta
    assert small < large
    assert costly < large


def test_a_second_group_a_hundred_times_higher_is_found_and_said():
    def draw(generator, n):
        readings = 50 * generator.weibull(1.2, n)
        return np.minimum(np.where(generator.random(n) < 0.1, 100 * readings, readings), 50_000).astype(np.int64)

    rounds = rounds_of(draw, epsilon="2", bound=50_000)
    chosen = choose(rounds, bound=50_000)
    assert regret(chosen.theta, draw, bound=50_000) < 10
    (said,) = [said for said in chosen.warnings if said.startswith("a second group")]
    # If readings begin at -300, the choice is the same, and the start in the sentence is lower by 300.
    moved = choose(rounds, bound=50_000, offset=-300)
    (shifted,) = [said for said in moved.warnings if said.startswith("a second group")]
    assert (moved.theta, moved.edges) == (chosen.theta, chosen.edges)
    (start,), (lower,) = (re.findall(r"from about (-?\d+) on", sentence) for sentence in (said, shifted))
    assert int(lower) == int(start) - 300


def test_few_reports_are_said_and_answered_cautiously():
    rounds = rounds_of(weibull, epsilon="0.2", sizes=(512, 512, 3_072))
    chosen = choose(rounds)
    assert any(said.startswith("few reports") for said in chosen.warnings)
    assert chosen.low < chosen.theta < chosen.high


def test_a_histogram_that_no_distribution_gives_is_an_alarm(weibull_rounds):
    poisoned = np.array(weibull_rounds[-1].counts)
    poisoned[40] += 2_000
    rounds = [*weibull_rounds[:-1], CohortCounts(weibull_rounds[-1].mechanism, poisoned)]
    said = choose(rounds).warnings
    assert any(sentence.startswith("false reports") for sentence in said)
    assert choose(rounds).theta == pytest.approx(choose(weibull_rounds).theta, rel=0.05)


def test_reports_of_the_stream_phase_sharpen_theta():
    rounds = rounds_of(weibull, epsilon="0.2")
    before = choose(rounds)
    generator = np.random.default_rng(8)
    mechanism = hybrid("1", most_levels(before.theta, 256))
    empty = ReportCounts.of(mechanism, before.theta, np.zeros(mechanism.symbols, dtype=np.int64))
    grid = tuple(range(BOUND + 2))
    readings = weibull(generator, 65_536)
    levels = level_law(empty.positions, empty.theta, grid)
    law = empty.rows.T @ (levels @ (np.bincount(readings, minlength=BOUND + 1) / len(readings)))
    counts = generator.multinomial(65_536, law / law.sum())
    after = choose(rounds, reports=[ReportCounts.of(mechanism, before.theta, counts)])
    assert np.log(after.high / after.low) < 0.7 * np.log(before.high / before.low)
    assert regret(after.theta, weibull) < 1.5


def test_rounds_with_the_same_mechanism_count_as_one(weibull_rounds):
    last = weibull_rounds[-1]
    counts = np.asarray(last.counts)
    halves = [CohortCounts(last.mechanism, counts // 2), CohortCounts(last.mechanism, counts - counts // 2)]
    assert choose([*weibull_rounds[:-1], *halves]).theta == choose(weibull_rounds).theta


def test_ranges_zoom_and_stay_integer(weibull_rounds):
    for number in (1, 2, 3):
        edges = next_range(weibull_rounds[:number], bound=BOUND)
        assert edges[0] == 0
        assert edges[-1] == BOUND + 1
        assert all(low < high for low, high in itertools.pairwise(edges))
        assert len(edges) <= 129
    assert 60 < edges[1] < 200


@pytest.mark.slow_but("one-28", "0-2")
@pytest.mark.parametrize("bound", [2, 3, 28, 4_000_000])
@pytest.mark.parametrize("where", [0, -1, "flat", "one"])
def test_strange_histograms_still_give_a_threshold(bound, where):
    mechanism = square_wave("1", first_edges(bound))
    counts = np.zeros(mechanism.cells, dtype=np.int64)
    if where == "flat":
        counts += 100
    elif where == "one":
        counts[len(counts) // 2] = 1
    else:
        counts[where] = 10_000
    chosen = choose([CohortCounts(mechanism, counts)], bound=bound)
    assert 1 <= chosen.theta <= bound
    assert np.isfinite([chosen.bias, chosen.bias_se, chosen.expected_mse]).all()


def test_no_reports_and_foreign_edges_are_refused():
    mechanism = square_wave("1", first_edges(100))
    silent = CohortCounts(mechanism, np.zeros(mechanism.cells, dtype=np.int64))
    with pytest.raises(ValueError, match="at least one"):
        choose([silent], bound=100)
    with pytest.raises(ValueError, match="at least one"):
        choose([], bound=100)
    with pytest.raises(ValueError, match="inner edges"):
        choose([CohortCounts(mechanism, np.ones(mechanism.cells, dtype=np.int64))], bound=50)
    with pytest.raises(ValueError, match="unknown method"):
        choose([silent], bound=100, method="best")


@pytest.mark.parametrize("method", ["ems", "sw-w"])
def test_the_papers_methods_run_by_name(weibull_rounds, method):
    chosen = choose(weibull_rounds[:1], method=method)
    assert chosen.method == method
    assert chosen.low == chosen.theta == chosen.high
    assert np.isnan(chosen.bias_se)


def test_each_of_the_papers_methods_is_its_own(weibull_rounds):
    """ "ems" smooths and keeps the tail that it finds; "sw-w" does not smooth, and cuts at the first empty run."""
    plain, smooth = (fitted_density(weibull_rounds[:1], BOUND, smoothed=smoothed)[0] for smoothed in (False, True))
    assert not np.array_equal(plain.density, smooth.density)
    assert np.array_equal(choose(weibull_rounds[:1], method="ems").density, smooth.density)
    assert np.array_equal(choose(weibull_rounds[:1], method="sw-w").density, white_box(plain.density))
    assert not np.array_equal(white_box(plain.density), plain.density)


def test_every_shape_of_the_tail_that_is_not_excluded_counts_in_the_error_of_the_bias():
    """The readings have a Pareto tail, and θ is for few devices.

    The stated error of what is removed is larger than its standard deviation over the posterior's draws.
    """

    def pareto(generator, n):
        return np.minimum(20 * (1 + generator.pareto(1.5, n)), BOUND).astype(np.int64)

    rounds = rounds_of(pareto, sizes=(24_000, 24_000, 24_000))
    chosen = choose(rounds, query=Query.fleet(500))
    after = posterior(rounds, (), BOUND)
    removed = mean_excess(after.densities, after.edges, np.array([chosen.theta]))
    assert chosen.bias_se > 1.02 * removed.std()
    truth = np.maximum(pareto(np.random.default_rng(99), 400_000) - chosen.theta, 0).mean()
    assert abs(chosen.bias - truth) < 2 * chosen.bias_se


@pytest.mark.parametrize("seed", [1, 2])
def test_theta_follows_the_end_of_a_narrow_distribution(seed):
    def narrow(generator, n):
        return np.rint(57 * np.sqrt(generator.random(n))).astype(np.int64)

    rounds = rounds_of(narrow, "4", sizes=(262_144, 262_144, 524_288), bound=1000, seed=seed)
    assert regret(choose(rounds, bound=1000).theta, narrow, bound=1000) < 1.2
