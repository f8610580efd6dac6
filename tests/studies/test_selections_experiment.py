"""The experiment on selections: what it compares, on a small simulated fleet."""

import pytest

from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_studies.experiments.selections import CYCLE, EVENING, compared, measure, run
from undertone_studies.registry import StudyOptions


def test_it_asks_for_its_data() -> None:
    with pytest.raises(Invalid, match="needs EDRP"):
        run(StudyOptions())


def test_errors_intervals_and_widths() -> None:
    assert measure([[(1.0, 1.0), (-1.0, 1.0)]]) == (2, 1.0, 1.0, 1.0, "")
    assert measure([[(3.0, 1.0), (-1.0, 1.0)], []]) == (2, pytest.approx(2.236), 0.5, pytest.approx(0.447), "")
    # All of one campaign's intervals fail: the share is known as well as two campaigns tell, not four intervals.
    assert measure([[(3.0, 1.0), (3.0, 1.0)], [(0.0, 1.0), (0.0, 1.0)]])[2::2] == (0.5, 0.5)


def test_each_day_is_compared_with_its_own_truth() -> None:
    campaign = simulate(SimulateOptions(devices=200, slots=5 * CYCLE // 2, rounds=(0.25, 0.25, 0.5), epsilon=8, seed=3))
    pairs = list(compared(campaign, EVENING, 1))
    assert pairs
    # At ε = 8 a mean over ten half-hours of 200 homes is within half of the truth, by far.
    level = campaign.truth(max(cell.slot for cell in campaign.truths))[1]
    assert all(abs(away) < level / 2 and 0 < error < level for away, error in pairs)
    assert list(compared(campaign, EVENING, 3)) == []
