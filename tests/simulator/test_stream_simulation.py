"""Simulated streams: draws as a device makes them, chunks, groups, errors, and what happens to devices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.counts.moments import Layout, layout_of
from undertone_aggregator.settings.config import parse_config
from undertone_shared.entropy import Entropy
from undertone_shared.gaussian import discrete_gaussian as one_by_one
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.fast.vectorised_gaussian import discrete_gaussian
from undertone_simulator.fast.vectorised_stream import moments
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.seeded import Seeded

CONFIG = parse_config(
    """
[broker]
[store]
[campaign]
name = "test"
sensor = "load"
unit = "Wh"
bound = 10000
epsilon = 8
cycle = 6
report_slots = 12
collect = "stream"

[stream]
mechanism = "one-bit"
theta = 2000
reports = 12
""",
    Path("."),
)
DEVICES = 600


def simulate(*, devices=DEVICES, seed=1, plan=CONFIG.campaign, stream=CONFIG.stream, **options):
    return Simulation(plan, population("households", 1), devices, seed, stream=stream, **options).run()


@pytest.fixture(scope="module")
def plain():
    return simulate()


# Within a draw, a buffer of random bytes is used up with a probability of 2^-32. With these seeds it does not happen.
@pytest.mark.parametrize("variance", [16, (1 << 31) - 5, 2_400_000_000_000_000])
def test_noise_is_the_devices_own_word_for_word(variance):
    seeded, devices = Seeded(7), np.arange(5, 65)
    buffers = seeded.buffers(11, devices)
    everybody = np.arange(len(devices))
    first, second = (discrete_gaussian(variance, buffers, everybody) for _ in range(2))
    following = buffers.below(everybody, 1_000_003)
    for i, device in enumerate(devices):
        source = seeded.source(int(device))
        source.seek(11)
        entropy = Entropy(source)
        entropy.refill()
        assert (first[i], second[i]) == (one_by_one(variance, entropy), one_by_one(variance, entropy))
        assert following[i] == entropy.below(1_000_003)


def test_moments_are_those_of_admission():
    layout = Layout(3, 12)
    rng = np.random.default_rng(1)
    index = rng.integers(1, 40, 50)
    released = rng.integers(-(1 << 31) + 1, 1 << 31, (3, 50))
    windows = rng.integers(0, 1 << 63, 50, dtype=np.uint64)
    expected = np.zeros(layout.cells, dtype=np.int64)
    for i, x, window in zip(index, released.T, windows, strict=True):
        added = layout.report(tuple(map(int, x)), int(i))
        for turn in range(1, 33):
            added += layout.pair(2 * turn) if int(window) >> turn - 1 & 1 else []
        for cell, amount in added:
            expected[cell] += amount
    assert np.array_equal(moments(layout, 2, index, released, windows), expected)


def test_chunks_do_not_matter(plain):
    again = simulate(chunk=97)
    assert again.partial == plain.partial
    assert again.truths == plain.truths
    assert simulate(seed=2).partial != plain.partial


@pytest.mark.slow_but("direct")
@pytest.mark.parametrize("mechanism", ["one-bit", "gaussian", "direct"])
def test_the_errors_are_what_the_estimates_say(mechanism, plain):
    simulation = plain if mechanism == "one-bit" else simulate(stream=replace(CONFIG.stream, mechanism=mechanism))
    compared = simulation.compared()
    assert len(compared) == 12
    assert {slot.estimate.reports for slot in compared} == {DEVICES}
    # Of 36 normal errors, correlated or not, one is above 6 standard errors with a probability below 1e-7.
    assert all(abs(slot.truncated_error) < 6 * slot.estimate.truncated_se for slot in compared)


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("dimension", [2, 3])
def test_coordinates_have_a_truth_and_an_error_each(dimension):
    compared = simulate(stream=replace(CONFIG.stream, mechanism="gaussian", dimension=dimension)).compared()
    assert [slot.estimate.series.coordinate for slot in compared[:dimension]] == list(range(1, dimension + 1))
    assert len(compared) == 12 * dimension
    assert len({slot.truth_raw for slot in compared}) == len(compared)
    # Of 36 normal errors, one is above 6 standard errors with a probability below 1e-7.
    assert all(abs(slot.truncated_error) < 6 * slot.estimate.truncated_se for slot in compared)


def test_groups_are_the_servers_and_add_up(plain):
    names = [f"load-{number:03d}" for number in range(1, DEVICES + 1)]
    simulation = simulate(groups={name: "north" if i % 3 else "south" for i, name in enumerate(names[:500])}, chunk=64)
    assert {key.group for key in simulation.partial} == {"north", "south", "other"}
    whole = simulation.compared()
    assert [slot.estimate.estimate for slot in whole] == pytest.approx(
        [slot.estimate.estimate for slot in plain.compared()]
    )
    assert [slot.truth_raw for slot in whole] == [slot.truth_raw for slot in plain.compared()]
    reports = {slot.estimate.group: slot.estimate.reports for slot in simulation.compared(None)}
    assert reports == {"all": 600, "north": 333, "south": 167, "other": 100}


def test_a_budget_ends_a_stream():
    simulation = simulate(stream=replace(CONFIG.stream, reports=5))
    assert sorted({key.slot for key in simulation.partial}) == sorted(cell.slot for cell in simulation.truths)
    assert len(simulation.truths) == 5


def test_who_joins_late_begins_a_chain_then():
    simulation = simulate(behaviour=Behaviour(3, late=1.0, late_slots=8))
    layout = layout_of(simulation.rule)
    for age, key in enumerate(sorted(simulation.partial, key=lambda key: key.slot), 1):
        ages = layout.ages_of(simulation.partial[key])
        assert ages[age:].sum() == 0
        # Device 0 is never late, so its report has the largest possible age. Until the eighth slot, devices join, so
        # there are reports of age 1.
        assert ages[age - 1] >= 1
        assert (ages[0] > 0) == (age <= 8)


def test_a_device_without_a_reading_draws_nothing_in_that_slot():
    present = np.ones((60, 48), dtype=bool)
    present[:40, 5] = False
    source = Readings(np.where(present, 900, 0), present, "Wh", "", 1800)
    simulation = Simulation(CONFIG.campaign, source, 60, 1, stream=CONFIG.stream).run()
    reports = [truth.reports for groups in simulation.truths.values() for truth in groups.values()]
    assert sorted(reports) == [20] + [60] * 11
    assert all(truth.raw == 900 * truth.reports for cell in simulation.truths.values() for truth in cell.values())


def test_a_store_of_a_simulation_answers_like_a_servers(plain, tmp_path):
    plain.save(tmp_path / "store.sqlite")
    with open_results(tmp_path / "store.sqlite") as results:
        assert [slot.estimate for slot in results.estimates()] == [slot.estimate.estimate for slot in plain.compared()]
        assert "user-level" in results.guarantee
