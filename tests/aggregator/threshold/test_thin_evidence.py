"""Tails that no report shows. If θ is far from the best one, its interval mostly holds that, or a warning is given."""

import numpy as np
import pytest

from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import (
    CohortCounts,
    Query,
    constant_variance,
    even_thetas,
    first_edges,
    mean_excess,
    mean_square_error,
)
from undertone_aggregator.threshold.choose import next_range, theta_from_reports

BOUND = 10_000
READINGS = {
    "Pareto 1.2": lambda rng, n: 30 * (1 + rng.pareto(1.2, n)),
    "Pareto 1.5": lambda rng, n: 20 * (1 + rng.pareto(1.5, n)),
    "Pareto 2": lambda rng, n: 60 * (1 + rng.pareto(2.0, n)),
    "lognormal": lambda rng, n: np.exp(rng.normal(4.5, 1.0, n)),
    "uniform": lambda rng, n: rng.uniform(0, 1000, n),
}


def chosen_and_best(name, epsilon, seed, query, reports=65_536):
    readings = np.clip(READINGS[name](np.random.default_rng(99), 500_000), 0, BOUND).astype(np.int64)
    density = np.bincount(readings, minlength=BOUND + 1) / len(readings)
    thetas = even_thetas(BOUND)
    excess = mean_excess(density, range(BOUND + 2), thetas)
    best = int(thetas[mean_square_error(excess, thetas, query, constant_variance(1.0)).argmin()])
    rng, edges, rounds = np.random.default_rng(seed), first_edges(BOUND), []
    for share in (8, 8, 4 / 3):
        mechanism = square_wave(epsilon, edges)
        level = np.searchsorted(edges[1:-1], rng.choice(readings, int(reports / share)), side="right")
        rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)]) / mechanism.total
        counts = sum(rng.multinomial(number, rows[k]) for k, number in enumerate(np.bincount(level)) if number)
        rounds.append(CohortCounts(mechanism, counts))
        edges = next_range(rounds, bound=BOUND)
    return theta_from_reports(rounds, bound=BOUND, variance=constant_variance(1.0), query=query), best


@pytest.mark.slow
def test_a_theta_that_is_off_says_so_or_holds_the_best():
    said = []
    for name in READINGS:
        for epsilon in ("0.2", "1"):
            chosen, best = chosen_and_best(name, epsilon, 1, Query.paper(1 << 20))
            if max(chosen.theta / best, best / chosen.theta) > 1.7:
                said.append(chosen.low <= best <= chosen.high or bool(chosen.warnings))
    assert len(said) >= 5
    assert np.mean(said) >= 0.8


def test_what_many_reports_show_is_not_called_thin():
    chosen, _ = chosen_and_best("lognormal", "1", 1, Query.fleet(10_000), 2_000_000)
    assert not [warning for warning in chosen.warnings if warning.startswith("thin evidence")]


@pytest.mark.parametrize("epsilon", ["0.2", "1"])
def test_the_range_is_wide_where_the_evidence_is_thin(epsilon):
    chosen, _ = chosen_and_best("Pareto 1.2", epsilon, 3, Query.paper(1 << 20))
    assert any(warning.startswith("thin evidence") for warning in chosen.warnings)
    assert chosen.high / chosen.low > 3


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_range_is_that_of_all_tails_also_where_the_reports_reach_theta(seed):
    # Without the tails of small prior weight, the range might end too low.
    chosen, best = chosen_and_best("Pareto 1.5", "1", seed, Query.paper(1 << 20))
    assert chosen.low <= best <= chosen.high
