"""The study of the mean that people read: its measures against their definitions, and a campaign at its smallest."""

import numpy as np
import pytest

from undertone_studies.experiments.load import HEADLINE, RAW, TRUNCATED, ShownSeries, measure, run
from undertone_studies.registry import Options


def test_error_coverage_and_width_of_known_series() -> None:
    truth = np.array([100.0, 100.0, 100.0, 100.0])
    ones = ShownSeries(np.array([103.0, 97.0, 103.0, 97.0]), np.full(4, 2.0), truth)
    twos = ShownSeries(np.array([104.0, 96.0, 100.0, 100.0]), np.full(4, 1.0), truth)
    of = measure([ones, twos])
    assert of.rmse == pytest.approx(np.sqrt((4 * 9 + 2 * 16) / 8))
    assert of.share == pytest.approx(of.rmse / 100)
    # ± 3.92 holds all of the first, ± 1.96 two of the second.
    assert of.held == pytest.approx(6 / 8)
    assert of.width == pytest.approx(1.5 / of.rmse)


def test_a_quick_run_has_a_row_for_each_series() -> None:
    outcome = run(Options(quick=True, only=("households",)))
    assert [row[:4] for row in outcome.rows] == [
        ("households", "event", 500, series) for series in (HEADLINE, RAW, TRUNCATED)
    ]
    error = {row[3]: row[4] for row in outcome.rows}
    assert error[HEADLINE] < error[RAW]
    assert list(outcome.panels[0].curves) == ["mean of the readings", HEADLINE, TRUNCATED]
