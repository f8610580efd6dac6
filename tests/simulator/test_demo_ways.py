"""At its end, a demonstration compares the papers' way with this project's.

Here, both are computed without a network.
"""

import numpy as np
import pytest

from support.refusal import refused
from undertone_aggregator.campaign.stream_rounds import stream_rule
from undertone_simulator.demo import DEMO_COLLECTIONS, DemoOptions
from undertone_simulator.demo.plan import PreparedDemo, prepare
from undertone_simulator.demo.stream_ways import StreamWay, stream_ways, way_name
from undertone_simulator.demo.ways import Way, full, simulated_ways, ways_table

DEVICES, SLOTS = 60, 8


def prepared(folder, **options) -> PreparedDemo:
    made = DemoOptions(DEVICES, SLOTS, "4", **options)
    return prepare(made, folder, 4711, DEMO_COLLECTIONS[made.collect])


def ways(plan: PreparedDemo) -> list[Way]:
    return simulated_ways(plan, DEMO_COLLECTIONS["reports"])


def means(plan: PreparedDemo) -> list[float]:
    columns = range(plan.first_column, plan.first_column + SLOTS)
    return [float(np.mean([plan.measured(row, column) for row in range(DEVICES)])) for column in columns]


def test_beside_the_default_the_papers_way_is_simulated_on_the_same_readings(tmp_path):
    plan = prepared(tmp_path)
    (papers,) = ways(plan)
    assert (papers.name, papers.mechanism, papers.filtered, papers.played) == ("papers' way", "hybrid", False, False)
    assert [slot.truth_raw for slot in papers.slots] == pytest.approx(means(plan))
    # The papers' way estimates the mean of truncated readings. Its interval is widened by what truncation removes.
    assert all(slot.estimate.estimate == slot.estimate.truncated_mean for slot in papers.slots)
    assert ways(plan)[0].as_json() == papers.as_json(), "the seed fixes it"


@pytest.mark.slow
def test_beside_the_papers_way_the_default_is_simulated_raw_and_filtered(tmp_path):
    plan = prepared(tmp_path, as_papers=True)
    raw, filtered = ways(plan)
    assert [(way.name, way.filtered, way.played) for way in (raw, filtered)] == [
        ("default", False, False),
        ("default", True, False),
    ]
    assert raw.theta == filtered.theta
    # Some devices report for the threshold instead, and ``truth_raw`` is the mean of the rest. The two means differ by
    # at most the largest reading times the share of the devices that report for the threshold.
    for slot, mean in zip(raw.slots, means(plan), strict=True):
        others = DEVICES - slot.estimate.reports
        assert abs(slot.truth_raw - mean) <= others / DEVICES * plan.readings.values.max()


def test_a_row_has_the_error_and_what_the_interval_held(tmp_path):
    (papers,) = ways(prepared(tmp_path))
    errors = [slot.estimate.estimate - slot.truth_raw for slot in papers.slots]
    bars = [slot.estimate.standard_error for slot in papers.slots]
    assert papers.predicted_error == pytest.approx(np.sqrt(np.mean(np.square(bars))))
    assert papers.measured_error == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    held = sum(slot.estimate.low <= slot.truth_raw <= slot.estimate.high for slot in papers.slots)
    _, columns, (row,) = ways_table([papers], "Wh")
    assert dict(zip(columns, row, strict=True))["hold"] == f"{held} of {SLOTS}"


def test_slots_that_most_devices_missed_say_nothing_of_a_way():
    assert full([1, 60, 59, 29, 30]) == [False, True, True, False, True]


def stream(plan: PreparedDemo, mechanism: str) -> list[StreamWay]:
    zeros = np.zeros(SLOTS)
    played = StreamWay(way_name(mechanism), True, zeros, zeros + 1, zeros, zeros)
    return stream_ways(plan, stream_rule(plan.config.campaign, plan.config.stream), played)


@pytest.mark.parametrize(("mechanism", "place"), [("gaussian", 2), ("direct", 0), ("one-bit", 3)])
def test_a_stream_is_shown_among_independent_noise_and_the_papers_algorithm(mechanism, place, tmp_path):
    plan = prepared(tmp_path, collect="stream", mechanism=mechanism)
    shown = stream(plan, mechanism)
    assert [way.played for way in shown] == [index == place for index in range(len(shown))]
    names = [
        "independent noise (Alg. 1)",
        "the paper's Algorithm 3",
        "constant r: what devices use",
        "one bit a report",
    ]
    assert [way.name for way in shown] == names[: len(shown)]
    drawn = [way for way in shown if not way.played]
    for way in drawn:
        assert way.raw == pytest.approx(means(plan))
        # One of 8 normal errors is beyond 7 standard errors with a probability of 2e-11.
        assert np.all(np.abs(way.estimates - way.clipped) < 7 * way.standard_errors)


def test_algorithm_3_has_less_noise_than_independent_noise_and_more_than_what_ships(tmp_path):
    independent, algorithm, ships = stream(prepared(tmp_path, collect="stream", mechanism="one-bit"), "one-bit")[:3]
    assert ships.predicted_noise < algorithm.predicted_noise < independent.predicted_noise


def test_streams_of_two_coordinates_are_shown_alone(tmp_path):
    assert [way.played for way in stream(prepared(tmp_path, collect="stream", dimension=2), "gaussian")] == [True]


def test_the_papers_way_is_for_reports():
    with refused("as_papers", "cannot be given", "stream"):
        DemoOptions(collect="stream", as_papers=True)
