"""A crowd's reports have the mechanisms' probabilities, and a plan's shown errors are those of simulated campaigns."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from undertone_aggregator.counts.epochs import REPORT_PHASE
from undertone_aggregator.design.population import Population
from undertone_aggregator.settings.config import parse_config
from undertone_shared.report import COHORT, REPORT
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.planning.fleet_plan import FleetPlan
from undertone_simulator.planning.headline import Headline
from undertone_simulator.planning.options import PlanOptions
from undertone_simulator.planning.plan import plan
from undertone_simulator.planning.window_plan import WindowPlan
from undertone_simulator.readings.day_slots import Joined
from undertone_simulator.readings.readings import Readings

# The campaign keeps one θ for all slots, so that all of its reports can be judged together.
PLAN = parse_config(
    """
[broker]
[store]
[campaign]
name = "test"
sensor = "load"
unit = "Wh"
bound = 1000
epsilon = 2
cycle = 6
rounds = [6]
report_slots = 240
epoch_slots = 300
cohort_share = 0.1
mechanism = "hybrid"
blocks = 1
""",
    Path("."),
).campaign
SAMPLE, CROWD = 300, 600_000
# Chance that a test fails although the code is right.
FALSE_ALARM = 1e-7


def readings(missing: bool = False) -> Readings:
    """The same readings in each slot, so that only reports differ; ``missing``: half of them are missing."""
    values = np.random.default_rng(1).integers(0, 900, SAMPLE)
    present = np.ones((SAMPLE, 48), dtype=bool)
    present[::2] = not missing
    return Readings(np.repeat(values[:, None], 48, axis=1), present, "Wh", "", 1800)


def crowd(source: Readings, seed: int = 1, **changes: object):
    return Simulation(replace(PLAN, **changes), source, SAMPLE, seed, crowd=CROWD).run()


@pytest.mark.parametrize("bins", ["logarithmic", "linear"])
def test_the_cohorts_symbols_have_the_square_waves_probabilities(bins: str) -> None:
    done = crowd(readings(), bins=bins)
    first = done.timeline.epochs[0].campaign
    mechanism = first.cohort.mechanism
    assert mechanism.edges is not None
    levels = np.searchsorted(mechanism.edges[1:-1], readings().values[:, 0], side="right")
    rows = np.array([mechanism.weights(level) for level in levels.tolist()], dtype=float)
    expected = rows.mean(axis=0) / rows[0].sum()
    slots = range(first.first_slot, first.first_slot + 6)
    counted = sum(np.array(of) for key, of in done.partial.items() if key.slot in slots)
    assert counted.sum() == len(slots) * CROWD
    assert stats.chisquare(counted, expected * counted.sum()).pvalue > FALSE_ALARM


def standardised(done) -> np.ndarray:
    """Return each slot's error of the truncated mean, divided by the noise that the mechanism has for the readings."""
    (rule,) = {epoch.campaign.rule.report for epoch in done.timeline.epochs if epoch.phase == REPORT_PHASE}
    low, theta = rule.range_of(0, PLAN.cycle)
    truncated = np.clip(readings().values[:, 0], low, theta) - low
    cells = Population(np.bincount(truncated, minlength=theta - low + 1) / SAMPLE, tuple(range(theta - low + 2)))
    variance = cells.mean_variance(rule.mechanism, theta - low) * ((theta - low) / 2) ** 2
    return np.array([of.truncated_error / np.sqrt(variance / of.estimate.reports) for of in done.compared()])


def test_the_noise_of_a_slots_mean_is_the_mechanisms() -> None:
    errors = standardised(crowd(readings()))
    assert len(errors) == 240
    # The grid of the readings adds at most (1/64)²/4 of the squared half-width to a variance of more than one half.
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(errors))
    assert low < np.sum(np.square(errors)) < 1.001 * high
    assert abs(np.sum(errors)) < stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(1.001 * len(errors))


def test_in_turns_a_part_of_the_crowd_reports_and_the_truth_is_the_whole_samples() -> None:
    plan_in_turns = {"window": 4 * 1800, "cohort_share": 0.1, "cycle": 6, "report_slots": 20}
    done = crowd(readings(), **plan_in_turns)
    assert done.plan.stride == 5
    reports = [key for key in done.partial if key.kind == REPORT]
    schedule = done.timeline.epochs[-1].campaign.schedule
    for key in reports:
        expected = CROWD / 5 * (1 - 1 / schedule.cohort_stride)
        assert abs(int(np.sum(done.partial[key])) - expected) <= 1
    assert {of.truth_raw for of in done.compared()} == {float(readings().values[:, 0].mean())}


def test_devices_without_a_reading_do_not_report() -> None:
    done = crowd(readings(missing=True), report_slots=6)
    begins = done.timeline.epochs[-1].campaign.first_slot
    assert {int(np.sum(of)) for key, of in done.partial.items() if key.slot < begins} == {CROWD // 2}
    assert {of.truth_raw for of in done.compared()} == {float(readings().values[1::2, 0].mean())}
    # In every second slot nobody has a reading.
    none = replace(readings(), present=np.tile(np.arange(48) % 2 == 0, (SAMPLE, 1)))
    begins = done.timeline.epochs[0].campaign.first_slot
    assert {(key.slot - begins) % 2 for key in crowd(none, report_slots=6).partial} == {0}


def test_equal_seeds_draw_the_same_reports() -> None:
    first, again, other = (dict(crowd(readings(), seed, report_slots=6).partial) for seed in (1, 1, 2))
    assert [np.array_equal(first[key], again[key]) for key in first] == [True] * len(first)
    one, two = ({key.slot: of for key, of in counts.items() if key.kind == COHORT} for counts in (first, other))
    assert any(not np.array_equal(one[slot], two[slot]) for slot in set(one) & set(two))


FLEET = {"devices": 300, "epsilon": "4", "mechanism": "hybrid"}


def test_the_shown_errors_are_those_of_simulated_campaigns() -> None:
    """The filtered error of a slot and the unfiltered error of an hour, over the slots of two campaigns."""
    done: list[int] = []
    headline = Headline(SimulateOptions(**FLEET), 2, progress=done.append)
    slot, hour = headline.errors([1, 2], days=2)
    assert done == [1, 2]
    slots, hours = [], []
    for seed in (1001, 1002):
        campaign = simulate(SimulateOptions(**FLEET, seed=seed, slots=96))
        slots += [of.estimate.estimate - of.truth_raw for of in campaign.compared(filtered=True)]
        raw = {of.estimate.slot: of for of in campaign.compared()}
        pairs = [(raw[first], raw[first + 1]) for first in raw if first % 2 == 0 and first + 1 in raw]
        hours += [sum(of.estimate.estimate - of.truth_raw for of in pair) / 2 for pair in pairs]
    assert slot == pytest.approx(np.sqrt(np.mean(np.square(slots))), rel=1e-9)
    assert hour == pytest.approx(np.sqrt(np.mean(np.square(hours))), rel=1e-9)


def test_a_plan_has_these_errors() -> None:
    planned = plan(PlanOptions(**FLEET, campaigns=1, days=1))
    assert isinstance(planned, FleetPlan)
    of = Headline(SimulateOptions(**FLEET), 1).errors([1, 2, 48], days=2)
    assert tuple(span.shown for span in planned.spans) == of


@pytest.mark.slow
def test_a_plan_of_a_window_has_them_for_the_ways_that_campaigns_collect_in() -> None:
    planned = plan(PlanOptions(devices=300, epsilon="4", window="24h", campaigns=1, workers=2))
    assert isinstance(planned, WindowPlan)
    headline = Headline(SimulateOptions(devices=300, epsilon="4"), 1)
    (turns,), (event,) = headline.errors(window="24h"), headline.errors()
    (days,) = headline.errors(window="24h", span=48)
    expected = [turns, None, days / 48, None, None, event]
    for way, error in zip(planned.ways, expected, strict=True):
        if error is not None:
            assert way.filtered == pytest.approx(error / planned.mean, rel=1e-12)
    assert [way.filtered is None for way in planned.ways] == [False, False, False, True, True, False]
    assert planned.recommended in {way.name for way in planned.ways}


def test_joined_slots_are_sums_of_clipped_readings() -> None:
    source = readings()
    joined = Joined(source, 500, 4)
    assert joined.per_day == 12
    values, present = joined.part(10, 20, [0, 5])
    assert present is None
    assert values.tolist() == [(4 * np.minimum(source.values[10:20, 0], 500)).tolist()] * 2
    # A missing reading is replaced by that of the device before it.
    holes = readings(missing=True)
    values, _ = Joined(holes, 1000, 2).part(0, 4, [0])
    first, second = holes.values[1, 0], holes.values[3, 0]
    assert values.tolist() == [[2 * second, 2 * first, 2 * first, 2 * second]]
