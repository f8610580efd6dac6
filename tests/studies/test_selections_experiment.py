"""The experiment on selections, on a small simulated fleet: which means it compares."""

import numpy as np
import pytest

from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.readings.chosen import ChosenReadings
from undertone_simulator.readings.readings import Readings
from undertone_studies.experiments.selections import (
    CYCLE,
    EVENING,
    SELECTIONS,
    MeanError,
    compared,
    fleet_of,
    measure,
    run,
)
from undertone_studies.registry import StudyOptions


def test_it_asks_for_its_data() -> None:
    with pytest.raises(Invalid, match="needs EDRP"):
        run(StudyOptions())


def test_errors_intervals_and_widths() -> None:
    good, bad = MeanError(1.0, 1.0, 0.5, 1.0), MeanError(3.0, 1.0, 0.5, 0.1)
    assert measure([[good, good]]) == (2, 1.0, 1.0, "", 1.0, 1.0, "")
    assert measure([[bad, good]]) == (2, pytest.approx(2.236), 0.5, "", pytest.approx(0.447), 0.5, "")
    # All intervals of one campaign fail. So the share is as uncertain as with two campaigns, not with four intervals.
    assert measure([[bad, bad], [good, good]])[2:4] == (0.5, 0.5)


def test_the_selections_of_four_hours_are_the_whole_day_once() -> None:
    parts, days = SELECTIONS["any four hours"]
    assert [half_hour for hours in parts for half_hour in hours] == list(range(CYCLE))
    assert {len(hours) for hours in parts} == {8}
    assert days == 1


def test_each_campaign_has_its_own_fleet() -> None:
    values = np.arange(6 * 4 * 24, dtype=np.int64).reshape(6, -1)
    readings = Readings(values, np.ones(values.shape, dtype=bool), "Wh", "2024-01-01T00:00", 3600)
    chosen = ChosenReadings(readings, 1000, 6, 4, [])
    fleets = [fleet_of(chosen, seed).source for seed in range(8)]
    assert len({fleet.start for fleet in fleets}) > 1
    for fleet in fleets:
        assert isinstance(fleet, Readings)
        day = int(fleet.start[8:10]) - 1
        # Each row is a household, with its own readings in the right order by the clock.
        assert sorted(fleet.values[:, 0]) == values[:, 24 * day].tolist()
        assert all(np.array_equal(row, np.roll(values[row[0] // 96], -24 * day)) for row in fleet.values)


@pytest.mark.slow
def test_each_day_is_compared_with_its_own_truth() -> None:
    campaign = simulate(SimulateOptions(devices=200, slots=5 * CYCLE // 2, rounds=(0.25, 0.25, 0.5), epsilon=8, seed=3))
    errors = list(compared(campaign, EVENING, 1))
    assert errors
    # At ε = 8, a mean over ten half-hours of 200 homes is off by less than half of the mean reading.
    truncated, level = campaign.truth(max(cell.slot for cell in campaign.truths))
    assert all(abs(each.away) < level / 2 and 0 < each.standard_error < level for each in errors)
    assert all(abs(each.noise) < truncated / 2 and 0 < each.noise_se <= each.standard_error for each in errors)
    assert list(compared(campaign, EVENING, 3)) == []
