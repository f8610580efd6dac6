"""A simulated campaign begins on the day of the week and at the time of day of its readings."""

import numpy as np
import pytest

from undertone_shared.errors import Invalid
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.planning.fleet_plan import FleetPlan
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.planning.plan import plan
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


@pytest.fixture
def daily(tmp_path):
    """A file with ten weeks of daily readings of 40 homes, which does not tell how far apart they are."""
    np.savez(tmp_path / "days.npz", wh=np.random.default_rng(1).integers(5000, 9000, (40, 70)))
    return tmp_path / "days.npz"


def test_a_campaign_of_daily_readings_has_slots_of_a_day_and_cycles_of_a_week(daily):
    done = simulate(SimulateOptions(data=daily, slot_seconds=86400, devices=40, slots=7, epsilon="4", bound=9000))
    assert (done.plan.slot_seconds, done.plan.cycle, done.plan.rounds) == (86400, 7, (7, 7, 7))
    assert len(done.compared()) == 7


def test_a_plan_for_daily_readings_predicts_one_report_a_day(daily):
    planned = plan(PlanOptions(data=daily, slot_seconds=86400, devices=400, bound=9000))
    assert isinstance(planned, FleetPlan)
    assert planned.per_day == 1
    assert [span.name for span in planned.spans] == ["a slot"]
    # The filter knows the weeks before and after a day, so it errs less than the day's own reports.
    assert planned.spans[0].shown < planned.spans[0].error


def test_only_a_file_that_does_not_tell_the_length_of_a_slot_takes_one(daily, tmp_path):
    with pytest.raises(Invalid, match="slot_seconds is 86400, expected none: a synthetic population has its own"):
        SimulateOptions(slot_seconds=86400)
    with pytest.raises(Invalid, match="slot_seconds is 86401, expected an integer from 1 to 86400"):
        SimulateOptions(data=daily, slot_seconds=86401)
    np.savez(tmp_path / "half.npz", wh=np.ones((2, 96), dtype=int), step_min=np.array(30))
    told = "slot_seconds is 60, expected none: half.npz tells that its readings are 1800 s apart"
    with pytest.raises(Invalid, match=told):
        simulate(SimulateOptions(data=tmp_path / "half.npz", slot_seconds=60, devices=2, slots=1))
