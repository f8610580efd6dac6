"""The experiment on differences, on a small simulated fleet: which groups and times it compares."""

import numpy as np
import pytest

from undertone_operate.fleet.device_names import device_names
from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate_readings
from undertone_simulator.readings.chosen import ChosenReadings, open_source
from undertone_simulator.readings.readings import Readings
from undertone_studies.experiments.differences import (
    LARGE,
    OTHERS,
    PAIRINGS,
    SMALL,
    WHOLE,
    Collected,
    Pairing,
    compared,
    groups_of,
    run,
)
from undertone_studies.experiments.selections import CYCLE
from undertone_studies.registry import StudyOptions


def test_it_asks_for_its_data() -> None:
    with pytest.raises(Invalid, match="needs EDRP"):
        run(StudyOptions())


def test_homes_above_the_median_are_large_and_the_others_are_dealt() -> None:
    values = np.array([[10, 10], [20, 20], [30, 30], [40, 40]], dtype=np.int64)
    readings = Readings(values, np.ones(values.shape, dtype=bool), "Wh", "2024-01-01T00:00", 1800)
    groups = list(groups_of(ChosenReadings(readings, 100, 4, 4, []), 6).values())
    # The fifth device has the readings of the first home again.
    assert groups == [SMALL, OTHERS, LARGE, LARGE, SMALL, OTHERS]


@pytest.mark.slow
def test_each_difference_is_compared_with_its_own_truth() -> None:
    options = SimulateOptions(devices=200, slots=3 * CYCLE, rounds=(0.25, 0.25, 0.5), epsilon=8, seed=3)
    chosen = open_source(options, 200, 3)
    names = {name: (SMALL, LARGE)[i % 2] for i, name in enumerate(device_names("load", 200))}
    campaign = simulate_readings(options, chosen, groups=names)
    collected = Collected.of(campaign)
    days = list(compared(collected, Pairing("all", WHOLE, 1, "all", WHOLE, 1)))
    groups = list(compared(collected, Pairing(SMALL, WHOLE, 1, LARGE, WHOLE, 0)))
    whole = list(compared(collected, Pairing(SMALL, WHOLE, 1, "all", WHOLE, 0)))
    assert 0 < len(days) < len(groups) == len(whole)
    level = campaign.truth(max(cell.slot for cell in campaign.truths))[1]
    for errors in (days, groups, whole):
        assert all(abs(each.away) < level / 2 and 0 < each.standard_error < level for each in errors)
    # A group is half of all homes, so part of the noise cancels.
    assert np.mean([each.noise_se for each in whole]) < 0.75 * np.mean([each.noise_se for each in groups])


def test_every_pairing_is_of_known_groups() -> None:
    groups = {"all", SMALL, OTHERS, LARGE}
    assert {pairing.group for pairing in PAIRINGS.values()} | {p.against for p in PAIRINGS.values()} == groups
