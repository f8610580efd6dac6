"""The study of a stream's θ: its error in a known case, and what the page says about its stored rows."""

import json
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from undertone_aggregator.design.stream.methods import main_methods
from undertone_studies.experiments import theta_stream as study
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

RESULTS = Path(__file__).parents[2] / "docs/results"


def kept() -> Outcome:
    return Outcome.of(json.loads((RESULTS / "theta-stream.json").read_text(encoding="utf-8")))


def test_without_truncation_and_clipping_the_error_is_that_of_the_noise() -> None:
    day = np.random.default_rng(1).integers(0, 90, (40, 12)).astype(float)
    direct, _, ships = main_methods(Fraction(1, 20), 12, 2.0, 1e-5)
    assert study.error_at(direct, day, 100) == pytest.approx(100 * sqrt(direct.covariance[0, 0] / 40))
    # All homes go from 0 to 40 at once, and a step is at most 5. So the means lack 35, 30, ..., 5.
    day[:, :2], day[:, 2:] = 0, 40
    missing = sum(lack * lack for lack in range(5, 40, 5)) / 12
    assert study.error_at(ships, day, 100) == pytest.approx(sqrt(missing + 100**2 * ships.covariance[0, 0] / 40))


@pytest.mark.slow
def test_a_chosen_theta_is_never_better_than_the_best_one_in_hindsight() -> None:
    outcome = study.run(StudyOptions(repeats=1, quick=True))
    assert [row[0] for row in outcome.rows] == ["2", "2"]
    for row in outcome.rows:
        ratio, deviation, worst = (float(cell) for cell in row[5:8])
        # Candidates for the best θ lie 2 % apart.
        assert 0.999 < ratio == worst
        assert deviation == 0


def test_what_is_said_of_the_rows_follows_from_them() -> None:
    assert list(kept().notes)[1:] == study.notes_of([tuple(row) for row in kept().rows])


def test_with_a_quarter_of_epsilon_for_the_round_the_error_is_near_the_best_one() -> None:
    """For 5,000 simulated households with ε = 2, 4 and 8 a day, the error is at most 1.1 times that of the best θ."""
    assert kept().notes[0].startswith("The study has 20 runs, each with 5000 simulated households of its own")
    quarter = [row for row in kept().rows if float(row[1]) == float(row[0]) / 4]
    assert [row[0] for row in quarter] == ["2", "4", "8"]
    for row in quarter:
        ratio, deviation = float(row[5]), float(row[6])
        assert ratio + 3 * deviation < 1.1
