"""A simulated campaign begins on the day of the week and at the time of day of its readings."""

import numpy as np
import pytest

from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.readings.begin import START


@pytest.mark.slow_but("2009-03-01 00:00:00-6-0")
@pytest.mark.parametrize(
    ("start", "days", "slots"), [("", 0, 0), ("2009-03-01 00:00:00", 6, 0), ("2024-04-01 06:40:00", 0, 13)]
)
def test_a_files_readings_begin_on_their_own_day_of_the_week(start, days, slots, tmp_path):
    values = np.random.default_rng(1).integers(0, 900, (40, 3 * 48))
    options = {} if not start else {"t0": np.array(start)}
    np.savez(tmp_path / "meters.npz", wh=values, step_min=np.array(30), **options)
    done = simulate(
        SimulateOptions(data=tmp_path / "meters.npz", devices=40, slots=1, epsilon="4", bound=900, mechanism="hybrid")
    )
    first = done.timeline.epochs[0].campaign.first_slot * 1800
    assert first == START + days * 86400 + slots * 1800
