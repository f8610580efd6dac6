"""The mean of a selection of slots, and the total of a fleet."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from support.stores import simulated_store
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.estimate import export
from undertone_aggregator.estimate.calendar import Days
from undertone_aggregator.estimate.estimates import Estimate, RangeEstimate, Series
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.selection import Hours, OnDays, RegisteredFleet, chosen_slots, selection
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import open_store
from undertone_shared.errors import Invalid

HALF_HOUR = 1800


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory)


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Iterator[Results]:
    with open_results(Path(shutil.copy(made, tmp_path / "load.sqlite"))) as opened:
        yield opened


def test_hours_by_the_clock_of_a_zone() -> None:
    evening = Hours.parse("--between", "18:00-23:00")
    assert str(evening) == "18:00-23:00"
    zone = Days(ZoneInfo("Europe/Amsterdam"))
    # In this zone, the clock goes from 02:00 to 03:00 on 2026-03-29.
    for day, shift in ((28, 1), (29, 2)):
        for hour, inside in ((17, False), (18, True), (22, True), (23, False)):
            slot = int(datetime(2026, 3, day, hour - shift, 30, tzinfo=UTC).timestamp()) // HALF_HOUR
            assert chosen_slots(slot, slot, HALF_HOUR, evening, None, zone) == [slot] * inside
    night = Hours.parse("--between", "22:30-06:00")
    assert [night.hold(datetime(2026, 1, 1, hour, 30)) for hour in (22, 23, 5, 6, 12)] == [True] * 3 + [False] * 2
    whole = Hours.parse("--between", "00:00-24:00")
    assert chosen_slots(0, 95, HALF_HOUR, whole, None, Days()) == list(range(96))


def test_days_by_the_campaigns_calendar() -> None:
    # 1970-01-01 was a Thursday, and this calendar has it as a holiday.
    calendar = Days(holidays=[date(1970, 1, 1)])

    def chosen(words: str, days: Days = calendar) -> list[int]:
        slots = chosen_slots(0, 7 * 48 - 1, HALF_HOUR, None, OnDays.parse("--days", words), days)
        return sorted({slot // 48 for slot in slots if slot % 48 == 20})

    assert chosen("workdays") == [1, 4, 5, 6]
    assert chosen("days-off") == [0, 2, 3]
    assert chosen("thu,sat") == [0, 2]
    assert chosen("workdays", Days(holidays=None)) == [0, 1, 4, 5, 6]
    # In 1970, Auckland was 12 hours ahead of UTC: Friday began there at 12:00 UTC, that is with slot 24.
    east = Days(ZoneInfo("Pacific/Auckland"))
    assert OnDays("fri").hold(datetime(1970, 1, 2).date(), east)
    assert chosen_slots(20, 26, HALF_HOUR, None, OnDays("fri"), east) == [24, 25, 26]


@pytest.mark.parametrize("text", ["", "monday", "workdays,mon", "mon;tue", "mon, tue"])
def test_days_that_are_none_are_named(text: str) -> None:
    with pytest.raises(Invalid, match="--days"):
        OnDays.parse("--days", text)


@pytest.mark.parametrize("text", ["", "18-23", "18:00", "18:00-18:00", "25:00-26:00", "24:30-25:00", "24:00-06:00"])
def test_hours_that_are_none_are_named(text: str) -> None:
    with pytest.raises(Invalid, match="--between"):
        Hours.parse("--between", text)


def test_the_mean_of_evenings_is_the_mean_of_their_slots(results: Results) -> None:
    hours = Hours.parse("--between", "18:00-23:00")
    first, last = results.timeline.epochs[0].campaign.first_slot, results.estimates()[-1].slot
    (mean,) = results.selection(first, last, hours=hours, zone=UTC)
    assert results.selection(first, last, hours="18:00-23:00", zone=UTC) == [mean]
    with pytest.raises(Invalid, match="days is 'someday'"):
        results.selection(days="someday")
    slots = [slot for slot in range(first, last + 1) if 36 <= slot % 48 < 46]
    rows = [row for row in results.estimates() if row.slot in slots and row.kind == "report"]
    assert len(rows) >= 10
    assert (mean.first, mean.last, mean.start) == (slots[0], slots[-1], slots[0] * HALF_HOUR)
    assert (mean.slots, mean.absent) == (len(rows), len(slots) - len(rows))
    assert mean.reports == sum(row.reports for row in rows)
    assert mean.estimate == pytest.approx(sum(row.estimate for row in rows) / len(rows))
    errors = [row.truncated_se or 0.0 for row in rows]
    assert mean.truncated_se == pytest.approx(math.sqrt(sum(e * e for e in errors)) / len(rows))
    assert mean.high - mean.low == pytest.approx(2 * 1.959963984540054 * mean.standard_error)
    assert mean.bias == pytest.approx(sum(row.bias or 0.0 for row in rows) / len(rows))
    # The biases' errors are partly shared: the mean's error is larger than with independent errors and smaller than
    # with one common error.
    errors = [row.bias_se or 0.0 for row in rows]
    assert mean.bias_se is not None
    assert math.sqrt(sum(e * e for e in errors)) / len(rows) < mean.bias_se < sum(errors) / len(rows)
    assert (mean.devices, mean.total, mean.total_se) == (None, None, None)


def test_a_selection_without_a_slot_is_refused(results: Results) -> None:
    last = results.estimates()[-1].slot
    with pytest.raises(Invalid, match="has no slot"):
        results.selection(last + 100, last + 200)
    with pytest.raises(Invalid, match="has no slot"):
        results.selection(last, last, hours=Hours((30 * last + 60) % 1440, (30 * last + 90) % 1440), zone=UTC)


def test_a_mean_of_the_last_evening_needs_no_more_than_the_store(results: Results) -> None:
    """The level of the readings comes from the slots around the selection, as it does for single slots."""
    last = results.estimates()[-1].slot
    (mean,) = results.selection(last, last)
    (row,) = results.estimates(last, last)
    assert (mean.estimate, mean.standard_error) == pytest.approx((row.estimate, row.standard_error))


@pytest.mark.parametrize("devices", [400, 1600])
def test_a_total_is_of_all_registered_devices(made: Path, tmp_path: Path, devices: int) -> None:
    path = Path(shutil.copy(made, tmp_path / "load.sqlite"))
    with open_store(path) as store:
        inventory = [Device(f"meter-{i}", "north", ACTIVE, 0) for i in range(devices)]
        store.set_devices([*inventory, Device("stolen", "north", "revoked", 0)])
    with open_results(path) as results:
        (mean,) = results.selection()
        epoch = next(e for e in reversed(results.timeline.epochs) if e.campaign.theta is not None)
        rows = [row for row in results.estimates() if row.kind == "report"]
    slots = mean.slots + mean.absent
    assert mean.devices == devices
    assert mean.total == pytest.approx(devices * slots * mean.estimate)
    # One report in cohort_stride is for the threshold. The device that sends it takes part, too.
    stride = epoch.campaign.schedule.cohort_stride
    part = min(mean.reports / mean.slots * stride / (stride - 1), devices)
    assert epoch.threshold is not None
    middles = (np.array(epoch.threshold.edges[:-1]) + np.array(epoch.threshold.edges[1:]) - 1) / 2
    variance = np.average(
        (middles - np.average(middles, weights=epoch.threshold.density)) ** 2, weights=epoch.threshold.density
    )
    means, noise = zip(*((row.estimate, row.truncated_se or 0.0) for row in rows), strict=True)
    spread = math.sqrt(np.var(means, ddof=1) - np.mean(np.square(noise)))
    others = (1 - part / devices) * variance / part
    expected = math.sqrt(mean.standard_error**2 + others + (mean.absent / slots * spread) ** 2)
    assert mean.total_se == pytest.approx(devices * slots * expected)


def test_the_parts_of_a_totals_error() -> None:
    one = RangeEstimate(5, 5, 9000, Series(), 1, 100, 50.0, 2.0, 46.0, 54.0)
    fleet = RegisteredFleet(100, 1.0, 400.0)
    alone = selection(one, [5], fleet)
    assert (alone.total, alone.total_se) == (5000.0, pytest.approx(200.0))
    # Nobody reported in slot 6. How much slots differ cannot be seen from slot 5 alone, so the spread of single
    # readings takes its place.
    assert selection(one, [5, 6], fleet).total_se == pytest.approx(200 * math.sqrt(4 + (20 / 2) ** 2))
    two = selection(replace(one, slots=2, spread=6.0), [5, 6, 7], fleet)
    assert (two.absent, two.total) == (1, 15_000.0)
    # 50 of 100 devices take part in each slot.
    assert two.total_se == pytest.approx(300 * math.sqrt(4 + 0.5 * 400 / 50 + (6 / 3) ** 2))
    # With turns of two slots, all devices take part within two slots.
    assert selection(replace(one, slots=2, spread=6.0), [5, 6], fleet._replace(share=0.5)).total_se == pytest.approx(
        400
    )
    assert selection(one, [5], fleet._replace(devices=None)).total is None


def test_a_threshold_round_is_shown_as_no_estimate(results: Results) -> None:
    rows = results.estimates()
    learning = [row for row in rows if row.is_learning]
    assert learning
    assert len(learning) < len(rows)
    for row in rows:
        columns = row.row()
        assert (columns["estimate"] is None) is row.is_learning
        assert (columns["model"] is None) is not row.is_learning
        # The rows are compared by their columns, because a nan in an estimate is equal to nothing.
        assert type(row).of_row(columns).row() == columns
    header, *lines = b"".join(export.to_csv(results, [learning], Estimate)).decode().splitlines()
    place = {name: i for i, name in enumerate(header.split(","))}
    for line in lines:
        cells = line.split(",")
        assert cells[place["kind"]] == "model"
        assert cells[place["estimate"]] == ""
        assert cells[place["model"]] != ""
    for line in map(bytes.decode, export.to_influx(results, [learning], Estimate)):
        fields = line.split(" ")[1]
        assert "estimate=" not in fields
        assert "model=" in fields
