"""Simulated campaigns: equal seeds give equal results; chunks, the true means, drop-outs, late devices and liars."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.refusal import refused
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.design import hybrid
from undertone_aggregator.settings.config import parse_config
from undertone_operate.fleet.device_names import cohort_hashes, device_names
from undertone_shared.report import COHORT, REPORT
from undertone_shared.schedule import Schedule
from undertone_shared.table import TableMechanism
from undertone_simulator.fast import reporting
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.wire.liar import largest_lie

PLAN = parse_config(
    """
[broker]
[store]
[campaign]
name = "test"
sensor = "load"
unit = "Wh"
bound = 10000
epsilon = 2
cycle = 6
rounds = [6, 6]
report_slots = 12
epoch_slots = 6
cohort_share = 0.1
mechanism = "hybrid"
""",
    Path("."),
).campaign
DEVICES = 700


def simulate(plan=PLAN, *, source=None, devices=DEVICES, seed=1, **options):
    return Simulation(plan, source or population("households", 1), devices, seed, **options).run()


@pytest.fixture(scope="module")
def plain():
    return simulate()


@pytest.mark.slow
def test_neither_chunks_nor_groups_matter(plain):
    names = device_names("load", DEVICES)
    again = simulate(chunk=97, groups={name: f"g-{i % 3}" for i, name in enumerate(names) if i % 3})
    assert {key.group for key in again.partial} == {"g-1", "g-2", "other"}
    together = Partial()
    for key, counts in again.partial.items():
        together = together.merge(Partial({key._replace(group="all"): counts}))
    assert together == plain.partial
    assert all(again.truth(cell.slot) == plain.truth(cell.slot) for cell in plain.truths)


@pytest.mark.slow
def test_slots_drawn_one_at_a_time_give_the_same(plain, monkeypatch):
    monkeypatch.setattr(reporting, "TOGETHER", 1)
    liars = Behaviour(1, drop_out=0.1, liars=0.1)
    assert simulate().partial == plain.partial
    alone = simulate(behaviour=liars)
    monkeypatch.undo()
    together = simulate(behaviour=liars)
    assert together.partial == alone.partial
    assert together.truths == alone.truths


@pytest.mark.slow
def test_the_seed_matters(plain):
    assert simulate(seed=2).partial != plain.partial


def test_every_device_reports_once_a_slot(plain):
    of_slot = {}
    for key, counts in plain.partial.items():
        of_slot[key.slot] = of_slot.get(key.slot, 0) + int(counts.sum())
    assert set(of_slot.values()) == {DEVICES}
    assert sorted(of_slot) == list(range(min(of_slot), max(of_slot) + 1))
    reporting = [slot for slot in plain.estimates() if slot.kind == "report"]
    assert len(reporting) == 12
    assert all(slot.reports + slot.cohort == DEVICES for slot in reporting)


def test_the_errors_are_what_the_estimates_say(plain):
    # One of 12 independent normal errors has |z| above 6 with a chance of 2e-8.
    for slot in plain.estimates():
        if slot.kind == "report":
            assert abs(slot.truncated_mean - plain.truth(slot.slot)[0]) < 6 * slot.truncated_se


def test_a_replayed_file_and_its_parts():
    values = np.arange(60).reshape(5, 12)
    present = values % 7 != 0
    readings = Readings(values, present, "Wh", "", 7200)
    for columns in ([0, 5, 11, 30], [3, 4, 5]):
        part, there = readings.part(2, 13, columns)
        for row, column in enumerate(columns):
            cut = [int(x) if ok else None for x, ok in zip(part[row], there[row], strict=True)]
            assert cut == [readings.at(device, column) for device in range(2, 13)]
    assert Readings(values, np.ones_like(present), "Wh").part(4, 6, [0])[1] is None


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, window=1800, epsilon=PLAN.epsilon * 2)])
def test_a_device_without_a_reading_is_absent_in_that_slot(plan):
    present = np.add.outer(np.arange(60), np.arange(48)) % 3 == 2
    source = Readings(np.where(present, 900, 0), present, "Wh", "", 1800)
    simulation = simulate(plan, source=source, devices=60)
    reports = Counter()
    for key, counts in simulation.partial.items():
        reports[key.slot] += int(counts.sum())
    assert set(reports.values()) == {20} if plan.stride == 1 else max(reports.values()) <= 20
    # With turns, the truth is over the 20 devices that have a reading, not only those whose turn it is.
    represented = {20} if plan.stride > 1 else set(range(1, 21))
    truths = [truth for groups in simulation.truths.values() for truth in groups.values()]
    assert len(truths) == 12
    assert all(truth.reports in represented and truth.raw == 900 * truth.reports for truth in truths)


def test_membership_is_the_devices_own():
    names = device_names("load", 1200, 5, 400)
    assert names[0] == "load-0006"
    for schedule in (Schedule(b"s" * 16, 49, 19), Schedule(b"s" * 16, 1, 5), Schedule(b"s" * 16, 3, 0)):
        places = schedule.place_of(*cohort_hashes(schedule.seed, "load", 1200, 5, 400))
        assert places.tolist() == [schedule.place(name) for name in names]


def test_drop_outs_and_late_joiners(plain):
    behaviour = Behaviour(3, drop_out=0.25, late=0.5, late_slots=10)
    simulation = simulate(behaviour=behaviour)
    by_slot = {}
    for key, counts in simulation.partial.items():
        by_slot[key.slot] = by_slot.get(key.slot, 0) + int(counts.sum())
    slots = sorted(by_slot)
    # Half of the devices and a tenth of the others are there from the start, and all from the tenth slot on. Each
    # report leaves with probability .75. The limit is 6 standard deviations.
    deviation = 6 * math.sqrt(DEVICES * 0.25)
    assert abs(by_slot[slots[0]] - DEVICES * (0.5 + 0.05) * 0.75) < deviation
    assert abs(by_slot[slots[-1]] - DEVICES * 0.75) < deviation
    assert simulation.partial != plain.partial


@pytest.mark.slow
def test_liars_shift_the_mean_by_what_their_share_allows(plain):
    share = 0.2
    lying = simulate(behaviour=Behaviour(3, liars=share))
    for slot in lying.estimates():
        if slot.kind == "report":
            honest, _ = lying.truth(slot.slot)
            # A liar's symbol decodes to the middle of the range plus (s + 1)/(s - 1) of half the range, where s =
            # e^{ε/2}.
            top = slot.theta / 2 * (1 + (math.e + 1) / (math.e - 1))
            assert slot.truncated_mean - honest == pytest.approx(share * top, rel=0.5)


def test_behaviour_refuses_what_is_no_share():
    with refused("drop_out", "1.5", 0, 1):
        Behaviour(drop_out=1.5)


def test_nobody_there_ends_at_the_campaigns_end():
    simulation = simulate(behaviour=Behaviour(drop_out=1.0), devices=3)
    assert len(simulation.partial) == 0
    assert simulation.estimates() == []


@pytest.mark.slow
def test_tables_report_as_well():
    simulation = simulate(replace(PLAN, mechanism="optimal", rounds=(6,)), devices=300)
    assert isinstance(simulation.timeline.epochs[-1].campaign.report.mechanism, TableMechanism)
    # One of 12 independent normal errors has |z| above 6 with a chance of 2e-8.
    assert all(abs(slot.truncated_error) < 6 * slot.estimate.truncated_se for slot in simulation.compared())


def test_theta_is_looked_at_again(plain):
    # There are the rounds and one or two report epochs. The second one exists only if θ has moved.
    kinds = [epoch.campaign.report is None for epoch in plain.timeline.epochs]
    assert kinds[:3] == [True, True, False]
    assert {key.kind for key in plain.partial} == {COHORT, REPORT}


@pytest.mark.parametrize("epsilon", ["0.5", "1"])
def test_a_liar_sends_the_largest_symbol_that_an_honest_device_may_draw(epsilon):
    mechanism = hybrid(epsilon, 16)
    lie = largest_lie(mechanism)
    for level in range(17):
        weights = mechanism.weights(level)
        assert weights[lie] > 0
        assert not any(weights[lie + 1 :])


@pytest.mark.slow
def test_turns_estimate_the_whole_fleet():
    # The window has six slots of half an hour, so a device reports in every seventh slot.
    plan = replace(PLAN, window=6 * 1800, epsilon=PLAN.epsilon * 2, report_slots=42)
    simulation = simulate(plan, devices=7000)
    assert plan.stride == 7
    reports = {}
    for key, counts in simulation.partial.items():
        reports[key.slot] = reports.get(key.slot, 0) + int(counts.sum())
    # In each slot, a seventh of the devices reports. Every number of reports is within 6.5 standard deviations.
    assert all(abs(n - 1000) < 6.5 * math.sqrt(1000) for n in reports.values())
    compared = simulation.compared()
    assert {truth.reports for truths in simulation.truths.values() for truth in truths.values()} == {7000}
    # The error is that of the fleet's mean. One of 42 normal errors is above 6 with a probability of 1e-7.
    assert all(abs(each.truncated_error) < 6 * each.estimate.truncated_se for each in compared)
    # A sum of 42 squared standard normal errors is below 12 or above 105 with a probability of 2e-6.
    assert 12 < sum((each.truncated_error / each.estimate.truncated_se) ** 2 for each in compared) < 105
