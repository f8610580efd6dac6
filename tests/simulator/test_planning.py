"""Predictions for a fleet agree with simulations. If nothing would be visible, the planner says so."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import undertone
from support.refusal import refused
from undertone_aggregator.design import hybrid, most_levels
from undertone_aggregator.design.fitted import gain, population_table
from undertone_aggregator.design.population import Population
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ReportRule
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.planning.fleet_plan import Predictor, plan_fleet
from undertone_simulator.planning.known import KnownPopulation
from undertone_simulator.planning.prediction import Prediction, noise
from undertone_simulator.planning.window_plan import plan_window, predict_day
from undertone_simulator.readings.day_slots import DaySlots
from undertone_simulator.readings.populations import population
from undertone_simulator.readings.readings import Readings
from undertone_simulator.seeded import Seeded


def known(name="households", devices=1024, days=1):
    source = population(name, 1)
    return KnownPopulation.of(source, source.bound, devices, days)


@pytest.fixture(scope="module")
def households():
    return known()


def test_the_distribution_is_the_populations(households):
    values, _ = population("households", 1).part(0, 1024, range(48))
    assert households.mean == pytest.approx(values.mean())
    assert households.density.sum() == pytest.approx(1)
    below = np.searchsorted(households.edges, 500)
    assert households.density[:below].sum() == pytest.approx(np.mean(values < households.edges[below]))
    assert households.profile == pytest.approx(values.mean(axis=1))
    night = households.day.densities[4, 0]
    assert night[:below].sum() == pytest.approx(np.mean(values[4] < households.edges[below]))
    assert households.day.shares @ households.day.densities[:, 0] == pytest.approx(households.density)


@pytest.mark.slow
def test_blocks_of_the_day_are_planned_where_they_gain(households):
    plan = plan_fleet(households, 5000, "1", kind="hybrid")
    thetas = np.repeat(
        [block.theta for block in plan.day.blocks], np.diff([*(block.first for block in plan.day.blocks), 48])
    )
    # Computed from the readings themselves: V θ²/4n + E[(x - θ)⁺]² of each slot, divided by the same with a single θ.
    values, _ = population("households", 1).part(0, 1024, range(48))
    unit = (2 * plan.spans[0].standard_error / plan.theta) ** 2
    cost = [
        np.mean(unit * theta**2 / 4 + np.mean(np.maximum(values - np.reshape(theta, (-1, 1)), 0), axis=1) ** 2)
        for theta in (thetas, np.full(48, plan.theta))
    ]
    assert plan.day.ratio == pytest.approx(cost[0] / cost[1], rel=0.02)
    assert plan.day.error**2 == pytest.approx(cost[0], rel=0.02)
    assert plan.day.ratio < 0.9
    flat = replace(households, day=replace(households.day, densities=np.tile(households.density, (48, 1))[:, None]))
    assert plan_fleet(flat, 5000, "1", kind="hybrid").day is None


@pytest.mark.parametrize(("name", "epsilon"), [("households", "1"), ("phones", "4"), ("heavy-tail", "0.5")])
def test_the_predicted_error_is_the_mechanisms_own(name, epsilon):
    of = known(name)
    predictor = Predictor(of, epsilon, "hybrid")
    design = predictor.design(1000)
    threshold, mechanism = design.threshold, design.mechanism
    theta = threshold.theta
    values, _ = population(name, 1).part(0, 1024, range(of.per_day))
    drawn = np.random.default_rng(1).choice(values.ravel(), 300)
    variances = [_variance(mechanism, int(min(x, theta)), theta) for x in drawn]
    # The variance hardly depends on the reading. The readings within a cell are assumed to be evenly distributed.
    assert predictor.prediction(1000).standard_error ** 2 == pytest.approx(np.mean(variances) / 1000, rel=0.03)


def test_readings_far_from_zero_are_truncated_at_both_ends_with_the_bias_of_each_slot():
    of = known("temperature")
    planned = plan_fleet(of, 300, "1", kind="hybrid", wanted=2.0)
    low, theta = planned.bottom, planned.theta
    assert 500 < low < theta < 700
    values, _ = population("temperature", 1).part(0, 1024, range(of.per_day))
    bias = (values - np.clip(values, low, theta)).mean(axis=1)
    prediction = of.predicted(theta, 4.29, planned.reports, low)
    assert prediction.variance == pytest.approx(np.full(of.per_day, 4.29 * (theta - low) ** 2 / 4 / planned.reports))
    # The density is known for each slot of the day, in cells of 5 tenths of a degree.
    assert np.abs(prediction.bias - bias).max() < 1.5
    assert planned.bias == pytest.approx(bias.mean(), abs=0.5)
    # A range from 0 to θ would be 14 times as wide, and its noise 14 times as large.
    assert planned.spans[0].error < 4.0
    assert 300 < planned.devices_needed < 3000
    assert planned.far_from_zero
    assert all("%" not in fact for name, fact in planned.facts().items() if name.startswith("error"))


@pytest.mark.slow
def test_a_higher_reach_lowers_the_noise_and_lets_one_false_report_count_for_more(households):
    tight, wide = (plan_fleet(households, 500, "2", kind="optimal", reach=reach) for reach in (1.1, 1.25))
    assert (tight.reach, wide.reach) == (1.1, 1.25)
    assert tight.reach_cost > 0.03
    assert wide.reach_cost == 0.0
    assert wide.gain > tight.gain + 0.02
    width = tight.theta
    assert tight.one_lie * tight.reports == pytest.approx(width / 2 * (1 + 1.1 / math.tanh(1)), rel=0.02)
    assert wide.one_lie / wide.theta > 1.05 * tight.one_lie / width
    assert plan_fleet(households, 500, "2", kind="hybrid").reach is None


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["1", "2"])
def test_the_default_reach_has_the_smaller_error_with_one_false_report_in_a_hundred(households, epsilon):
    def error(reports, reach):
        predictor = Predictor(households, Fraction(epsilon), reach=reach)
        width = predictor.design(reports).threshold.width
        return width**2 / 4 * predictor.variance(reports) / reports + (0.01 * reports * predictor.one_lie(reports)) ** 2

    chosen = []
    for reports in (10, 10_000):
        design = Predictor(households, Fraction(epsilon)).design(reports)
        better = min((1.1, 1.25), key=lambda reach: error(reports, reach))
        assert design.reach == better
        chosen.append(better)
    assert chosen == [1.25, 1.1]


@pytest.mark.parametrize(
    ("options", "said"), [({"reach": 3.0}, "reach is 3.0"), ({"reach": 1.2, "mechanism": "hybrid"}, "no table")]
)
def test_a_reach_is_a_tables(options, said):
    with pytest.raises(Invalid, match=said):
        undertone.plan(**options)


def test_an_error_in_per_cent_of_readings_far_from_zero_is_refused():
    with pytest.raises(Invalid, match="error is '5%', expected a number"):
        undertone.plan(population="temperature", devices=300, error="5%")


def _variance(mechanism, x, theta):
    """The variance of the decoded report of x, with the rounding to a level, from the mechanism's exact rationals."""
    level, rest = divmod(x * mechanism.levels, theta)
    moments = [
        Fraction(*mechanism.variance(k, theta)) + Fraction(*mechanism.value(k, theta)) ** 2
        for k in (level, min(level + 1, mechanism.levels))
    ]
    up = Fraction(rest, theta)
    return float((1 - up) * moments[0] + up * moments[1] - x * x)


def test_the_predicted_error_is_the_simulated_one():
    of, n, repeats = known("phones"), 1000, 500
    predictor = Predictor(of, "4", "hybrid")
    design = predictor.design(n)
    threshold, mechanism = design.threshold, design.mechanism
    decoder = Decoder(ReportRule(0, threshold.theta, mechanism), 0)
    values, _ = population("phones", 1).part(0, 1024, range(of.per_day))
    readings = np.minimum(np.random.default_rng(1).choice(values.ravel(), n), threshold.theta)
    seeded, devices = Seeded(3), np.arange(n)
    errors = [
        decoder.mean(histogram(mechanism, readings, threshold.theta, seeded.words(slot, devices)))[0] - readings.mean()
        for slot in range(repeats)
    ]
    # The standard deviation of 500 normal values has a standard error of 3.2 %; five of them are allowed.
    assert np.std(errors) == pytest.approx(predictor.prediction(n).standard_error, rel=0.16)


def test_hours_and_days_average_the_noise_and_keep_the_bias(households):
    plan = plan_fleet(households, 1000, "1", kind="hybrid")
    slot, hour, day = plan.spans
    assert (slot.slots, hour.slots, day.slots) == (1, 2, 48)
    assert day.standard_error == pytest.approx(slot.standard_error / math.sqrt(48))
    assert day.error == pytest.approx(math.hypot(day.standard_error, plan.bias))
    assert plan.mechanism == "hybrid"
    assert plan.gain == 0


@pytest.mark.slow
def test_what_is_needed_reaches_the_error(households):
    plan = plan_fleet(households, 1000, "1", kind="hybrid", wanted=12.0)
    assert plan.devices_needed > 1000
    enough = plan_fleet(households, plan.devices_needed, "1", kind="hybrid")
    assert enough.spans[0].error == pytest.approx(12.0, rel=0.03)
    dearer = plan_fleet(households, 1000, str(plan.epsilon_needed), kind="hybrid")
    assert dearer.spans[0].error == pytest.approx(12.0, rel=0.03)


def test_out_of_reach_is_said(households):
    plan = plan_fleet(households, 10, "1", kind="hybrid", wanted=1e-9)
    assert plan.devices_needed is None
    assert plan.epsilon_needed is None


def test_traffic_counts_the_packets(households):
    traffic = plan_fleet(households, 10, "1", kind="hybrid", campaign="demo", device="load-001").traffic
    # A report takes 2 bytes of header, 2 for the topic's length and the topic, 2 of identifier and 24 of report. Its
    # PUBACK takes 4.
    topic = len("undertone/v2/demo/12/load-001/report")
    assert traffic.mqtt_bytes == 48 * (2 + 2 + topic + 2 + 24 + 4)
    assert traffic.packets == 96


@pytest.mark.slow_but("400-220.0-")
@pytest.mark.parametrize(
    ("devices", "mean", "sentence"),
    [
        (5, 110.0, "even over a day its standard error"),
        (5, 220.0, "nothing would be visible in a single slot"),
        (400, 220.0, ""),
    ],
)
def test_what_could_not_be_seen(households, devices, mean, sentence):
    warnings = plan_fleet(replace(households, mean=mean), devices, "1", kind="hybrid").warnings
    assert (sentence in warnings[0]) if sentence else not warnings


def test_a_flat_curve_hides_in_the_noise(households):
    flat = replace(households, profile=np.full(48, 220.0))
    assert "not the daily curve" in plan_fleet(flat, 100, "1", kind="hybrid").warnings[0]


def test_bad_numbers():
    with pytest.raises(Invalid, match="devices is 0"):
        plan_fleet(known(), 0, "1")


@pytest.mark.parametrize("window", [None, "24h"])
def test_readings_that_tell_nothing_are_a_sentence(tmp_path, window):
    np.savez(tmp_path / "readings.npz", wh=np.zeros((5, 96), int), step_min=30)
    with pytest.raises(Invalid, match="no reading is above 0 in the first days"):
        undertone.plan(data=tmp_path / "readings.npz", bound=1000, window=window)


def test_days_without_a_reading_are_a_sentence(tmp_path):
    """The only reading comes after the days that the planner looks at."""
    np.savez(tmp_path / "readings.npz", kwh=np.where(np.arange(480) < 479, np.nan, 1.0)[None], step_min=30)
    with pytest.raises(Invalid, match="no reading is above 0 in the first days"):
        undertone.plan(data=tmp_path / "readings.npz")


def test_a_window_needs_a_whole_day_and_slots_within_it(tmp_path):
    for shape, minutes, said in (((5, 40), 30, "0 days of 48 slots"), ((5, 20), 1440, "20 days of 1 slot")):
        np.savez(tmp_path / "readings.npz", wh=np.ones(shape, int), step_min=minutes)
        with refused(said, 2):
            undertone.plan(data=tmp_path / "readings.npz", window="24h")


@pytest.mark.parametrize("bound", [0, 1])
@pytest.mark.parametrize("window", [None, "24h"])
def test_a_bound_that_leaves_nothing_to_truncate_is_refused(window, bound):
    with refused("bound", bound, 2):
        undertone.plan(bound=bound, window=window)


def test_a_design_has_one_error_whoever_plans_it():
    """Both planners use one predictor. With the same θ and mechanism, they differ only by their samples."""
    source = population("households", 1)
    of = KnownPopulation.of(source, source.bound, 1024, 7)
    slots = DaySlots.of(source, source.bound, 1, 7, 1024)
    theta, devices = 600, 20_000
    variance = of.population.mean_variance(hybrid("1"), theta)
    by_law = of.predicted(theta, variance, devices)
    means, _ = slots.moments(np.array([theta]))
    by_readings = Prediction(np.broadcast_to(noise(theta, variance, devices), 48), slots.raw - means[0])
    assert by_law.error == pytest.approx(by_readings.error, rel=0.002)
    assert by_law.over(48)[1] == pytest.approx(by_readings.over(48)[1], rel=0.002)


def test_moments_of_truncated_readings_are_those_of_the_readings():
    source = population("heavy-tail", 1)
    slots = DaySlots.of(source, source.bound, 1, 3, 200).joined(4)
    by_slot = slots.values.reshape(3, slots.per_day, 200)
    thetas = np.array([1, 7, 300, slots.edges[-1]])
    means, variances = slots.moments(thetas)
    for i, theta in enumerate(thetas):
        truncated = np.minimum(by_slot, theta)
        assert means[i] == pytest.approx(truncated.mean(axis=(0, 2)), rel=1e-12)
        assert variances[i] == pytest.approx(truncated.var(axis=(0, 2)), rel=1e-9, abs=1e-9)
    assert slots.raw == pytest.approx(by_slot.mean(axis=(0, 2)), rel=1e-12)
    slewed = [np.minimum(by_slot, 50).astype(float)[:, 0]]
    for reading in np.minimum(by_slot, 50).transpose(1, 0, 2)[1:]:
        slewed.append(np.clip(reading, slewed[-1] - 2.5, slewed[-1] + 2.5))
    assert slots.slewed_means(50, 2.5) == pytest.approx([each.mean() for each in slewed], rel=1e-12)


def test_a_window_of_readings_far_from_zero_is_planned_with_both_ends_and_in_their_unit():
    source = population("temperature", 1)
    planned = plan_window(source, source.bound, 3_000, "1", 86_400, days=3)
    slots = DaySlots.of(source, source.bound, 1, 3)
    way = planned.ways[0]
    assert 500 < way.bottom < way.theta < 700
    away = slots.values.mean(axis=1) - np.clip(slots.values, way.bottom, way.theta).mean(axis=1)
    bias = away.reshape(3, -1).mean(axis=0)
    assert way.bias * planned.mean == pytest.approx(np.sqrt(np.mean(np.square(bias))), rel=1e-6)
    # 61 devices report in a slot. With a range that begins at 0, the range would be fifteen times as wide.
    assert way.raw * planned.mean < 10.0
    assert planned.text(way.raw).endswith(planned.unit)


def test_a_missing_reading_does_not_count_in_the_slots_of_a_day():
    present = np.add.outer(np.arange(30), np.arange(96)) % 3 == 2
    readings = np.where(present, 300 + np.arange(30)[:, None], 0)
    slots = DaySlots.of(Readings(readings, present, "Wh", "", 1800), 1000, 1, 2, 30)
    assert slots.values.min() >= 300
    # Two of three devices miss each slot. The reading of the third one takes their place, so it counts three times.
    expected = [readings[present[:, slot], slot].mean() for slot in range(48)]
    assert slots.raw == pytest.approx(np.array(expected))
    assert np.array_equal(slots.values.T[present], readings[present])


def test_a_plan_without_a_mechanism_has_the_variance_of_the_table_for_the_readings():
    source = population("households", 1)
    slots = DaySlots.of(source, source.bound, 1, 2, 512)
    by_table = predict_day(slots, 5_000, 1, Fraction(4))
    by_hybrid = predict_day(slots, 5_000, 1, Fraction(4), lambda epsilon, theta: hybrid(epsilon, most_levels(theta)))
    assert by_table.theta == by_hybrid.theta
    readings = Population(slots.density.mean(axis=0), slots.edges)
    gained = gain(population_table("4", by_table.theta, readings), "4", by_table.theta, readings)
    assert 1 - by_table.standard_error**2 / by_hybrid.standard_error**2 == pytest.approx(gained, abs=0.02)


@pytest.mark.parametrize("slots", [1, 2, 5, 48, 96, 49])
def test_the_mean_over_slots_averages_noise_and_bias(slots):
    rng = np.random.default_rng(1)
    prediction = Prediction(rng.random(48), rng.random(48))
    error, whole = prediction.over(slots)
    biases = [np.take(prediction.bias, range(i, i + slots), mode="wrap").mean() for i in range(48)]
    assert error**2 == pytest.approx(prediction.variance.mean() / slots)
    assert whole**2 == pytest.approx(error**2 + np.mean(np.square(biases)))


def test_the_papers_way_shows_the_error_of_truncated_means(households):
    """It has no filter and no model of what truncation removes, so no campaign is simulated."""
    papers = plan_fleet(households, 1000, "1", kind="hybrid", as_papers=True)
    assert papers.as_papers
    assert [span.shown for span in papers.spans] == [span.error for span in papers.spans]
    assert [span.shown for span in plan_fleet(households, 1000, "1", kind="hybrid").spans] == [None] * 3
    with pytest.raises(Invalid, match="campaigns cannot be given with as_papers"):
        undertone.plan(devices=10, as_papers=True, campaigns=2)


@pytest.mark.slow
def test_the_number_that_people_read_is_nearer_than_the_truncated_mean():
    slot, hour, day = undertone.plan(devices=1000, epsilon=1, mechanism="hybrid", campaigns=2).spans
    assert slot.shown < slot.error
    assert slot.shown < hour.shown
    assert day.shown < day.error
