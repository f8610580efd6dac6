"""The filter of series turns estimates into filtered estimates, for whole series and slot by slot as in a server."""

from dataclasses import replace

import numpy as np
import pytest

from undertone_aggregator.estimate.calendar import Days
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate, Estimates, Load, Series
from undertone_aggregator.estimate.filter import FEWEST
from undertone_aggregator.estimate.series_filter import LiveFilter, SeriesFilter, own_chance

HALF_HOUR, DAY = 1800, 48
FIRST = 1_798_416_000 // HALF_HOUR
HOW = SeriesFilter(HALF_HOUR, DAY, Days())


def truth(slots):
    return 200 + 60 * np.sin(2 * np.pi * (slots % DAY) / DAY)


def estimates(slots, error=25.0, seed=1, series=Series(), reports=500, **more):  # noqa: B008
    rng = np.random.default_rng(seed)
    values = truth(slots) + error * rng.standard_normal(len(slots))
    return [
        Estimate(*(slot, slot * HALF_HOUR, series, MEASURED, reports, 0, v, error, 0.0, 0.0, 700), **more)
        for slot, v in zip(slots.tolist(), values.tolist(), strict=True)
    ]


def test_each_series_is_filtered_by_itself_and_keeps_its_facts():
    slots = np.arange(FIRST, FIRST + 4 * DAY)
    raw = estimates(slots, misfit=0.5) + estimates(slots, seed=2, series=Series("north", 2))
    model = Estimate(FIRST - 1, 0, Series(), MODEL, 0, 90, np.nan, None, None, None, None, model=180.0)
    smoothed = HOW.smoothed(Estimates.of([model, *raw]))
    assert {estimate.series for estimate in smoothed} == {Series("all", 1, True), Series("north", 2, True)}
    alone = list(HOW.smoothed(Estimates.of(raw[: len(slots)])))
    assert [e for e in smoothed if e.group == "all"] == alone
    for estimate in alone:
        assert estimate.reports == 500
        assert estimate.misfit is None
        assert estimate.standard_error < 25.0
    errors = np.array([estimate.estimate for estimate in alone]) - truth(slots)
    assert np.sqrt(np.mean(errors**2)) < 0.6 * 25.0


def test_what_truncation_removes_is_the_raw_estimate_s():
    raw = estimates(np.arange(FIRST, FIRST + 4 * DAY))
    with_bias = [replace(e, **Load.of(e.estimate, e.standard_error, 10.0, 4.0)._asdict()) for e in raw]
    for without, after in zip(HOW.smoothed(Estimates.of(raw)), HOW.smoothed(Estimates.of(with_bias)), strict=True):
        assert (after.bias, after.bias_se) == (10.0, 4.0)
        # The mean of a slot's readings varies a little more by chance where readings are larger.
        assert after.estimate == pytest.approx(without.estimate + 10.0, abs=0.1)
        assert after.truncated_mean == pytest.approx(after.estimate - 10.0)
        assert after.standard_error == pytest.approx(np.hypot(without.standard_error, 4.0), rel=0.01)
        assert after.low == pytest.approx(after.estimate - 1.959964 * after.standard_error)


def test_where_raw_is_as_good_it_stays_to_the_last_digit():
    raw = estimates(np.arange(FIRST, FIRST + FEWEST - 1), reports=7)
    for before, after in zip(raw, HOW.smoothed(Estimates.of(raw)), strict=True):
        assert (after.estimate, after.standard_error) == (before.estimate, before.standard_error)


def test_few_reports_that_agree_by_chance_do_not_count_for_more():
    slots = np.arange(FIRST, FIRST + 40)
    raw = estimates(slots, reports=10)
    lucky = Estimate(*(FIRST + 40, 0, Series(), MEASURED, 10, 0, 900.0, 0.1, 0.0, 0.0, 700))
    variance = HOW.noise(Estimates.of([*raw, lucky])).variance
    assert variance[-1] > 0.7 * 25.0**2
    # With many reports, a slot's own variance is kept.
    many = Estimates.of([*estimates(slots, reports=10_000), lucky])
    assert HOW.noise(many).variance[0] == pytest.approx(25.0**2, rel=0.01)


@pytest.mark.slow
def test_live_is_causal_and_becomes_better_than_raw():
    slots = np.arange(FIRST, FIRST + 5 * DAY)
    raw = estimates(slots)
    live, seen = LiveFilter(HOW), []
    for estimate in raw:
        seen += live.take(Estimates.of([estimate]))
        assert seen[-1].series == Series(filtered=True)
        assert seen[-1].slot == estimate.slot
    first, last = seen[: FEWEST - 1], seen[-DAY:]
    assert [e.estimate for e in first] == [e.estimate for e in raw[: FEWEST - 1]]
    errors = np.array([e.estimate for e in last]) - truth(slots[-DAY:])
    assert np.sqrt(np.mean(errors**2)) < 0.7 * 25.0
    assert all(e.standard_error < 25.0 for e in last)


def test_a_server_that_comes_back_goes_on_where_it_was():
    slots = np.arange(FIRST, FIRST + 3 * DAY)
    raw = Estimates.of(estimates(slots))
    live = LiveFilter(HOW)
    live.take(raw[:-1])
    (newest,) = live.take(raw[-1:])
    assert newest.standard_error < 25.0


def test_what_a_fleet_has_by_chance_is_of_its_size():
    """The chance error of a mean m of n readings in [0, θ] is at most √(m(θ - m)/n), and 0 for m = θ and for m < 0."""
    half = own_chance(500.0, 1000.0, 100.0)
    assert 0 < half <= 500.0 / 10
    assert own_chance(500.0, 1000.0, 400.0) == pytest.approx(half / 2)
    assert own_chance(1000.0, 1000.0, 100.0) == own_chance(-1.0, 1000.0, 100.0) == 0.0


def test_series_name_their_topics():
    assert Series().topic == "all/raw"
    assert Series("north", 1, True).topic == "north/filtered"
    assert Series("north", 2).topic == "north/raw/2"
