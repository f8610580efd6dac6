import numpy as np
import pytest

from undertone_operate.fleet.read_devices import read_provisioned
from undertone_shared.errors import Invalid
from undertone_simulator.demo import DEMO_COLLECTIONS
from undertone_simulator.demo.plan import DemoOptions, prepare
from undertone_simulator.demo.reports import round_columns
from undertone_simulator.readings.readings import Readings
from undertone_simulator.wire.playback import Playback


def plan(folder, **options):
    return prepare(DemoOptions(**{"devices": 3, "slots": 50, **options}), folder, 4711, DEMO_COLLECTIONS["reports"])


def test_the_seed_fixes_the_population_and_the_cohort(tmp_path):
    demo, same, other = (plan(tmp_path / name, seed=seed) for name, seed in (("a", 5), ("b", 5), ("c", 6)))
    assert np.array_equal(demo.readings.values, same.readings.values)
    assert not np.array_equal(demo.readings.values, other.readings.values)
    assert demo.config.campaign.cohort_seed == same.config.campaign.cohort_seed != other.config.campaign.cohort_seed
    # Passwords and noise come from the machine's entropy, so they differ even with equal seeds.
    assert {m.password() for m in read_provisioned(demo.site.fleet)}.isdisjoint(
        m.password() for m in read_provisioned(same.site.fleet)
    )


def test_rounds_play_every_fourth_half_hour_of_a_day_each(tmp_path):
    demo = plan(tmp_path / "a")
    assert demo.config.campaign.rounds == (12, 12, 12)
    assert demo.playback == Playback(48, 4)
    assert demo.first_column == 3 * 48
    # After the rounds, 50 slots need two days.
    assert demo.readings.slots == 5 * 48


def test_the_papers_single_round_plays_the_same_readings(tmp_path):
    papers, default = plan(tmp_path / "a", as_papers=True), plan(tmp_path / "b")
    assert papers.config.campaign.rounds == (36,)
    assert papers.playback == Playback(48, 4, 3)
    assert papers.first_column == default.first_column
    assert round_columns(papers) == round_columns(default)


def test_the_policy_allows_the_campaign(tmp_path):
    demo = plan(tmp_path / "a", epsilon="0.5")
    policy = read_provisioned(demo.site.fleet)[0].policy
    assert policy.insecure
    assert policy.write_seconds == 1
    p, q = policy.cap
    assert 0.4999 < np.log(p / q) < 0.5


def test_readings_survive_their_file(tmp_path):
    demo = plan(tmp_path / "a").readings
    again = Readings.saved(tmp_path / "a" / "readings.npz")
    assert np.array_equal(demo.values, again.values)
    assert (demo.unit, demo.start, demo.step_seconds) == (again.unit, again.start, again.step_seconds)


def data(folder, values):
    np.savez(folder / "data.npz", values=np.array(values))
    return folder / "data.npz"


def test_a_bound_from_the_data_is_said(tmp_path):
    demo = plan(tmp_path / "a", data=data(tmp_path, [[1, 2, 300], [4, 5, 6], [7, 8, 9]]))
    assert demo.config.campaign.bound == 512
    assert "a real campaign needs a public bound" in demo.bound_note
    stated = plan(tmp_path / "b", data=tmp_path / "data.npz", bound=400)
    assert stated.config.campaign.bound == 400
    assert not stated.bound_note


def test_negative_readings_are_refused(tmp_path):
    with pytest.raises(Invalid, match="smallest reading is -3"):
        plan(tmp_path / "a", data=data(tmp_path, [[1, -3], [4, 5], [7, 8]]))


def test_readings_that_are_too_large_are_refused(tmp_path):
    with pytest.raises(Invalid, match="choose a coarser unit"):
        plan(tmp_path / "a", data=data(tmp_path, [[1, 1 << 25], [4, 5], [7, 8]]))
