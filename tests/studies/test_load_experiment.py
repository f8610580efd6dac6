"""The study of the mean that people read: its measures agree with their definitions, and a small campaign runs."""

import json

import numpy as np
import pytest

from support.micropython import REPO
from undertone_simulator.readings.populations import population
from undertone_studies.calibrated import calibrated
from undertone_studies.experiments import moved
from undertone_studies.experiments.load import HEADLINE, ORACLE, RAW, TRUNCATED, ShownSeries, measure, run
from undertone_studies.registry import StudyOptions

RESULTS = REPO / "docs" / "results"


def test_error_coverage_and_width_of_known_series() -> None:
    truth = np.array([100.0, 100.0, 100.0, 100.0])
    hour = np.array([0.0, 3.0, 4.0, 7.5])
    ones = ShownSeries(np.array([103.0, 97.0, 103.0, 97.0]), np.full(4, 2.0), truth, hour)
    twos = ShownSeries(np.array([104.0, 96.0, 100.0, 100.0]), np.full(4, 1.0), truth, hour)
    of = measure([ones, twos])
    assert of.rmse == pytest.approx(np.sqrt((4 * 9 + 2 * 16) / 8))
    assert of.share == pytest.approx(of.rmse / 100)
    # In the two campaigns, 1 and 1/2 of the intervals contain the truth.
    assert of.chance == pytest.approx(0.25)
    # In the first series, all intervals of ± 3.92 contain the truth. In the second, two of the intervals of ± 1.96 do.
    assert of.held == pytest.approx(6 / 8)
    # Before 4 h, the two intervals of the first series contain the truth and the two of the second do not. From 4 h on,
    # all four do.
    assert of.least == pytest.approx(2 / 4)
    assert of.width == pytest.approx(1.5 / of.rmse)


@pytest.mark.slow
def test_a_quick_run_has_a_row_for_each_series() -> None:
    outcome = run(StudyOptions(quick=True, only=("households",)))
    assert [row[:4] for row in outcome.rows] == [
        ("households", "event", 500, series) for series in (HEADLINE, RAW, TRUNCATED, ORACLE)
    ]
    error = {row[3]: row[4] for row in outcome.rows}
    assert error[ORACLE] < error[HEADLINE] < error[RAW]
    # The standard error of a share needs two campaigns.
    assert {row[7] for row in outcome.rows} == {""}
    assert list(outcome.panels[0].curves) == ["mean of the readings", HEADLINE, TRUNCATED]


@pytest.mark.slow
def test_intervals_of_the_right_width_vary_by_as_many_slots_as_are_independent() -> None:
    """If all slots are independent, the share of intervals that hold varies like that of 672 independent draws.

    With errors that are alike for a day, it varies like that of far fewer draws.
    """
    rng = np.random.default_rng(1)
    parts = np.arange(672) % 48 // 8
    white = calibrated([rng.standard_normal(672)], parts, 1)
    assert white.held.mean() == pytest.approx(0.95, abs=6 * np.sqrt(0.95 * 0.05 / (1000 * 672)))
    # The standard deviation is the binomial's, to within a fifth.
    assert white.chance == pytest.approx(np.sqrt(0.95 * 0.05 / 672), rel=0.2)
    # These errors stay the same for a day.
    daily = calibrated([np.repeat(rng.standard_normal(14), 48)], parts, 1)
    assert 10 < daily.independent < 80
    assert (daily.least <= daily.held + 1e-12).all()
    several = calibrated([np.repeat(rng.standard_normal(14), 48)], parts, 1, campaigns=4)
    assert several.chance < 0.7 * daily.chance


def test_the_plan_predicts_the_headlines_error() -> None:
    rows = json.loads((RESULTS / "load.json").read_text("utf-8"))["rows"]
    ratios = {
        (row["way"], row["devices"]): row["planned / rmse"]
        for row in rows
        if row["data"] == "edrp" and row["way"].startswith("event") and row["series"] == HEADLINE
    }
    assert len(ratios) == 6
    assert all(0.85 <= ratio <= 1.2 for ratio in ratios.values()), ratios
    for way in ("event", "turns"):
        some = [row for row in rows if row["way"] == way and row["series"] == HEADLINE]
        # No plan predicts daily readings in turns.
        every = [row["planned / rmse"] for row in some if row["planned / rmse"] != ""]
        assert 0.9 <= np.median(every) <= 1.1, way


def test_moved_readings_change_at_their_column_and_stay_within_the_bound() -> None:
    source = population("temperature", 1)
    before, _ = source.part(0, 5, range(8, 12))
    after, _ = moved.MovedReadings(source, source.bound, moved.times(2.5), 10).part(0, 5, range(8, 12))
    assert (after[:2] == before[:2]).all()
    assert (after[2:] == np.minimum(np.rint(before[2:] * 2.5), source.bound)).all()
    slow, _ = moved.MovedReadings(source, source.bound, moved.shifted(-20.0, 4), 8).part(0, 5, range(8, 12))
    assert (before - slow == np.array([5, 10, 15, 20])[:, None]).all()


@pytest.mark.slow
def test_a_campaign_of_rooms_that_cool_down_holds_its_intervals() -> None:
    """After all rooms have cooled down at once, over 80 % of the intervals hold, and over half on each day."""
    case = next(case for case in moved.CASES if case.name == "temperature falls by 12 °C at once")
    result = moved.measure(moved.simulated(case, StudyOptions(), 1, 4))
    assert result.least > 0.5
    assert result.held > 0.8
