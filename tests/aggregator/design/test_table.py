"""Designed tables have less variance than the hybrid, are certified by their integers, and fit into a campaign."""

import binascii
import json
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize
from scipy.optimize import linprog

from support.designed import check_all
from undertone_aggregator.design import audit, best_fraction, table
from undertone_aggregator.design.continuous import hybrid_variance
from undertone_aggregator.design.table import NoTable, ideal_table, optimal_table
from undertone_shared.errors import Invalid
from undertone_shared.notation import parse_mechanism
from undertone_shared.table import LARGEST_ROWS
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.seeded import Seeded


@pytest.fixture(scope="module")
def tables():
    made = {}

    def make(epsilon, theta=613, **options):
        key = (epsilon, theta, *sorted(options))
        if key not in made:
            made[key] = optimal_table(epsilon, theta, **options)
        return made[key]

    return make


@pytest.mark.parametrize(
    ("theta", "differs"), [(613, 2**-15), (1111, 2**-15), (15_000, 0), (49_152, 0), (49_153, 0.5 - 2**-16)]
)
def test_the_distances_of_levels_are_alike_and_so_is_the_chance_of_a_further_word(tables, theta, differs):
    """At a few θ, the smaller distance is a power of two.

    Rounding then takes one word at the smaller distance, and two on average at the larger one.
    """
    values = np.array(tables("1", theta).values)
    distances = set(np.diff(values).tolist())
    assert max(distances) - min(distances) <= 1
    further = [1 - n / (1 << (n - 1).bit_length()) for n in distances]
    # All these numbers are multiples of 2^-16, so floats hold them exactly.
    assert max(further) - min(further) == differs


@pytest.mark.slow_but("1-0.94")
@pytest.mark.parametrize(("epsilon", "goal"), [("0.5", 0.97), ("1", 0.94), ("2", 0.85), ("3", 0.73), ("4", 0.61)])
def test_worst_variance_beats_the_hybrid(tables, epsilon, goal):
    e = float(epsilon)
    worst = max(level.variance for level in audit.exact_levels(tables(epsilon), 613))
    assert float(worst) <= goal * max(hybrid_variance(e, 0), hybrid_variance(e, 1))


@pytest.mark.parametrize(("epsilon", "theta"), [("0.3", 1), ("8", 613), ("4", 1 << 20)])
def test_any_table_passes_the_generic_proofs(tables, epsilon, theta):
    table = tables(epsilon, theta)
    assert table.permits(best_fraction(epsilon))
    assert table.covers(theta)
    check_all(table, theta, {0, 1, table.levels // 2, table.levels})


@pytest.mark.slow
def test_a_density_lowers_the_mean_variance_within_the_cap_on_the_worst(tables):
    x = np.arange(25) / 24
    density = np.exp(-6 * x)
    table = tables("2", density=tuple(density))
    variances = np.array([float(level.variance) for level in audit.exact_levels(table, 613)])
    hybrid = hybrid_variance(2, 0)
    assert variances.max() <= 1.26 * hybrid
    mean = np.average(variances, weights=density)
    assert mean <= 0.78 * hybrid
    even = [float(level.variance) for level in audit.exact_levels(tables("2"), 613)]
    assert mean < np.average(even, weights=density)


@pytest.mark.slow_but("1-0.34")
@pytest.mark.parametrize(("epsilon", "saved"), [("1", 0.34), ("2", 0.22), ("4", 0.06)])
def test_one_false_report_moves_a_mean_little_further_than_it_must(tables, epsilon, saved):
    # The Hybrid's largest value is that of its piecewise part. The limit on a table's largest value raises the table's
    # variance by at most 5 %.
    density = tuple(np.exp(-8 * np.arange(25) / 24))
    table = tables(epsilon, density=density)
    wide = tables(epsilon, density=density, largest=1 / np.tanh(float(epsilon) / 4))

    def facts(mechanism):
        largest = max(abs(2 * Fraction(*mechanism.decode(j, 613)) / 613 - 1) for j in range(mechanism.symbols))
        variances = [float(level.variance) for level in audit.exact_levels(mechanism, 613)]
        return float(largest), float(np.average(variances, weights=density))

    (largest, variance), (_, least) = facts(table), facts(wide)
    # A table moves some decoded values, so that rounded rows keep their exact means. This makes the largest value at
    # most 1.6 % larger.
    assert largest <= 1.1 / np.tanh(float(epsilon) / 2) * 1.016
    assert variance <= 1.05 * least
    hybrid = 1 / np.tanh(float(epsilon) / 4)
    assert largest <= (1 - saved) * hybrid


def test_rounding_costs_little_of_the_mean_variance(tables):
    # A density of meters' readings.
    common = [621, 1394, 1583, 1253, 890, 657, 532, 447, 377, 313, 256, 218]
    density = np.array([*common, 187, 158, 134, 116, 101, 88, 77, 66, 58, 51, 45, 39, 340])
    table = tables("0.5", 786, density=tuple(density))
    variances = [float(level.variance) for level in audit.exact_levels(table, 786)]
    x = density / density.sum()
    assert float(x @ variances) <= 1.002 * ideal_table("0.5", tuple(density)).variance


def test_a_campaign_carries_it(tables):
    table = tables("4")
    described = table.describe()
    assert sum(map(len, described["rows"])) <= LARGEST_ROWS
    again = parse_mechanism("mechanism", json.loads(json.dumps(described)))
    assert list(again.rows) == list(table.rows) == [binascii.a2b_base64(row) for row in described["rows"]]
    assert again.values == table.values


def test_drawn_from_a_population_it_is_unbiased(tables):
    table = tables("4")
    n, x = 100_000, 217
    counts = histogram(table, np.full(n, x), 613, Seeded(5).words(1, range(n)))
    decoded = np.array([float(Fraction(*table.decode(j, 613))) for j in range(table.symbols)])
    mean = counts @ decoded / n
    error = (counts @ (decoded - mean) ** 2) ** 0.5 / n
    # A normal mean is further away than 4.9 standard errors with a chance of 1e-6.
    assert abs(mean - x) < 4.9 * error


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": "9", "theta": 5}, "epsilon is '9'"),
        ({"epsilon": "1", "theta": 0}, "theta is 0, expected an integer from 1 to 1048576"),
        ({"epsilon": "1", "theta": 5, "levels": 0}, "levels is 0"),
        ({"epsilon": "1", "theta": 5, "cells": 5}, "cells is 5"),
        (
            {"epsilon": "1", "theta": 5, "density": [1.0]},
            "density has 1 numbers, expected 25",
        ),
        (
            {"epsilon": "1", "theta": 5, "density": [float("nan")] * 25},
            "density has numbers from nan to nan, expected 0 or more",
        ),
    ],
)
def test_bad_input_is_one_sentence(options, sentence):
    with pytest.raises(Invalid, match=sentence):
        optimal_table(**options)


def test_a_reach_that_is_too_short_has_no_table():
    with pytest.raises(NoTable, match="the linear programme"):
        optimal_table("1", 613, largest=1.5)


def test_a_small_epsilon_leaves_nothing_to_gain_over_stochastic_rounding():
    with pytest.raises(NoTable, match=r"uses . cells, expected at least 7"):
        optimal_table("0.05", 613)


@pytest.mark.parametrize("density", [None, np.exp(-np.arange(9.0))])
def test_the_programme_over_excesses_has_the_optimum_of_the_one_over_probabilities(density):
    """The programme over excesses has one row for each pair (j, k), not two.

    Its least variance is the same to nine digits, or to `_TIE` without a density.
    """
    ratio, limit = 2.718, 10.0
    grid = table._grid(700, 8, 17, 2.6)
    y, x = grid.centred(grid.ys), grid.centred(grid.values)
    rows, cells = len(x), len(y)
    every, columns, no = np.eye(rows * cells), np.tile(np.eye(cells), (rows, 1)), np.zeros((rows * cells, 1))
    second, one, first = (np.kron(np.eye(rows), of) for of in (y * y, np.ones(cells), y))
    upper = np.block(
        [
            [every, -ratio * columns, no],
            [-every, columns, no],
            [second, np.zeros((rows, cells)), -np.ones((rows, 1))],
        ]
    )
    weights = None if density is None else density / density.sum()
    cost = np.concatenate([np.zeros(rows * cells + cells), [1.0]])
    if weights is not None:
        cost = np.concatenate([np.outer(weights, y * y).ravel(), np.zeros(cells + 1)])
    both = linprog(
        cost,
        A_ub=upper,
        b_ub=np.concatenate([np.zeros(2 * rows * cells), x * x]),
        A_eq=np.hstack([np.vstack([one, first]), np.zeros((2 * rows, cells + 1))]),
        b_eq=np.concatenate([np.ones(rows), x]),
        bounds=[(0, None)] * (rows * cells) + [(1e-5, None)] * cells + [(0, None if weights is None else limit)],
    )
    found, _ = table._solve(ratio, grid, weights, limit, 1e-5)
    variances = found @ (y * y) - x * x
    best = variances.max() if weights is None else float(weights @ (found @ (y * y)))
    # Without a density, ties are broken among the tables whose variance is at most `_TIE` above the least one.
    assert both.fun * (1 - 1e-9) <= best <= both.fun * (1 + 1e-9 + (table._TIE if weights is None else 0.0))
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-9)
    assert np.allclose(found @ y, x, atol=1e-9)
    least = found.min(axis=0)
    assert np.all(found <= ratio * least * (1 + 1e-9))
    assert least.min() > 1e-5 * (1 - 1e-9)
    assert np.all(variances <= (best if weights is None else limit) + 1e-9)


@pytest.mark.parametrize("near", [range(20), (0, 16, 32), (16,), (), range(33)])
def test_the_least_variance_does_not_depend_on_the_cells_that_the_search_starts_with(near):
    density = [2.0**-k + 0.1 * (k == 9) for k in range(13)]
    for largest in (2.4, 2.7):
        every = ideal_table("1", density, 33, largest=largest)
        found = ideal_table("1", density, 33, largest=largest, near=near)
        # The solver takes any price above -1e-7 for zero, so the last digits may differ.
        assert found.variance == pytest.approx(every.variance, rel=1e-8)


def test_a_search_from_few_cells_says_that_there_is_no_table():
    with pytest.raises(NoTable, match="no solution"):
        ideal_table("1", [1.0] * 13, 33, largest=1.01, near=(0, 32))


def permuted(seed):
    """`linprog` with variables and constraints in a random order, like a solver that finds another optimum first."""
    rng = np.random.default_rng(seed)

    def solve(c, A_ub, b_ub, A_eq, b_eq, bounds, method):
        column, upper, exact = (rng.permutation(len(each)) for each in (c, b_ub, b_eq))
        inequalities, equations = (
            matrix.tocsr()[row][:, column].tocsc() for matrix, row in ((A_ub, upper), (A_eq, exact))
        )
        there = [bounds[place] for place in column]
        found = linprog(c[column], inequalities, b_ub[upper], equations, b_eq[exact], there, method=method)
        for of, numbers in ((column, found.x), (upper, found.ineqlin.marginals), (exact, found.eqlin.marginals)):
            numbers[of] = numbers.copy()
        return found

    return solve


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("epsilon", ["1", "2"])
def test_the_table_of_least_worst_variance_is_one_whatever_the_solver_finds_first(epsilon, monkeypatch):
    """The table has the same integers if the solver gets variables and constraints in two other orders."""
    tables = [optimal_table(epsilon, 1000)]
    for seed in (1, 2):
        monkeypatch.setattr(optimize, "linprog", permuted(seed))
        tables.append(optimal_table(epsilon, 1000))
    assert len({b"".join(made.rows) for made in tables}) == 1
