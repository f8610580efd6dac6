"""The experiment on the regret of θ: the same rows with any number of processes, the table, the choice of readings."""

from dataclasses import replace

import numpy as np
import pytest

from undertone_aggregator.threshold import Query
from undertone_studies import theta
from undertone_studies.registry import EXPERIMENTS, StudyOptions
from undertone_studies.theta_populations import CountedReadings


@pytest.fixture(scope="module")
def alone():
    return theta.run(theta.protocol(None, quick=True, runs=1, only=("half-normal",)), workers=1)


@pytest.mark.slow
def test_the_rows_do_not_depend_on_the_number_of_processes(alone):
    assert theta.run(theta.protocol(None, quick=True, runs=1, only=("half-normal",)), workers=2) == alone


def test_a_regret_is_one_at_the_best_theta_and_larger_elsewhere(alone):
    assert all(1.0 <= row.median == row.ninety == row.worst for row in alone)
    counts = np.bincount(np.random.default_rng(1).poisson(20, 100_000), minlength=101)
    judge = theta.Judge.of(CountedReadings("Poisson", counts), Query.paper(2**20))
    best = int(judge.thetas[np.argmin(judge.ratios)])
    assert judge.ratio(best) == 1.0
    assert judge.ratio(best // 2) > 10 > judge.ratio(2 * best) > 3


def test_the_table_has_a_line_for_each_method_and_a_cell_for_each_epsilon(alone):
    columns, lines = theta.table(alone)
    assert columns == ["mode", "readings", "method", "ε = 0.6", "ε = 2"]
    assert [line[:3] for line in lines] == [["paper", "half-normal", "robust"]]
    assert lines[0][3] == theta._cell(alone[0])


@pytest.mark.slow
def test_the_experiment_runs_as_often_and_on_what_it_is_asked_to():
    outcome = EXPERIMENTS.run("theta", StudyOptions(repeats=1, seed=3, only=("Weibull 0.8",), quick=True))
    assert [row[1] for row in outcome.rows] == ["Weibull 0.8"]
    assert outcome.notes[0].startswith(f"Each cell is from {theta.SHORT} runs")
    assert f"of {2 * theta.SHORT} runs" in outcome.notes[2]


def test_a_theta_that_is_off_is_counted_and_whether_it_says_so():
    counts = np.bincount(np.random.default_rng(1).poisson(20, 100_000), minlength=101)
    population, query = CountedReadings("Poisson", counts), Query.paper(2**20)
    judge, task = theta.Judge.of(population, query), theta.Task("paper", population, query, ("robust",), "2", 1, 1)
    best = judge.best
    plain = theta.papers(np.full(1000, 20), "2", 100, judge, np.random.default_rng(1))["ems"]
    choices = [
        replace(plain, theta=best, low=best, high=best),
        replace(plain, theta=2 * best, low=2 * best, high=2 * best),
        replace(plain, theta=2 * best, low=best, high=2 * best),
        replace(plain, theta=best // 2, low=1, high=best // 2, warnings=["thin evidence"]),
    ]
    row = theta._row(task, "robust", judge, choices)
    assert (row.held, row.off, row.told) == (2, 3, 2)


def test_the_papers_methods_are_judged_on_the_readings_that_ours_is():
    counts = np.bincount(np.random.default_rng(1).poisson(20, 100_000), minlength=101)
    methods = ("robust", "ems", "sw-w")
    task = theta.Task("paper", CountedReadings("Poisson", counts), Query.paper(2**20), methods, "2", 2, 1)
    rows = theta.rows_of(task)
    assert [(row.method, row.runs) for row in rows] == [(method, 2) for method in methods]
    assert theta.rows_of(task) == rows
