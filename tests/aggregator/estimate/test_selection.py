"""The mean of a selection of slots, and the total of a fleet."""

import math
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from support.stores import simulated_store
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.estimate import export
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.selection import Hours, chosen_slots
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
    zone = ZoneInfo("Europe/Amsterdam")
    # The clock there goes from 02:00 to 03:00 on 2026-03-29.
    for day, shift in ((28, 1), (29, 2)):
        for hour, inside in ((17, False), (18, True), (22, True), (23, False)):
            second = int(datetime(2026, 3, day, hour - shift, 30, tzinfo=UTC).timestamp())
            assert evening.hold(second, zone) is inside
    night = Hours.parse("--between", "22:30-06:00")
    at = [int(datetime(2026, 1, 1, hour, 30, tzinfo=UTC).timestamp()) for hour in (22, 23, 5, 6, 12)]
    assert [night.hold(second, UTC) for second in at] == [True, True, True, False, False]
    whole = Hours.parse("--between", "00:00-24:00")
    assert chosen_slots(0, 95, HALF_HOUR, whole, UTC) == list(range(96))


@pytest.mark.parametrize("text", ["", "18-23", "18:00", "18:00-18:00", "25:00-26:00", "24:30-25:00", "24:00-06:00"])
def test_hours_that_are_none_are_named(text: str) -> None:
    with pytest.raises(Invalid, match="--between"):
        Hours.parse("--between", text)


def test_the_mean_of_evenings_is_the_mean_of_their_slots(results: Results) -> None:
    hours = Hours.parse("--between", "18:00-23:00")
    first, last = results.timeline.epochs[0].campaign.first_slot, results.estimates()[-1].slot
    (mean,) = results.selection(first, last, hours=hours, zone=UTC)
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
    assert mean.bias_se == pytest.approx(sum(row.bias_se or 0.0 for row in rows) / len(rows))
    assert (mean.devices, mean.total, mean.total_se) == (None, None, None)


def test_a_selection_without_a_slot_is_refused(results: Results) -> None:
    last = results.estimates()[-1].slot
    with pytest.raises(Invalid, match="has no slot"):
        results.selection(last + 100, last + 200)
    with pytest.raises(Invalid, match="has no slot"):
        results.selection(last, last, hours=Hours((30 * last + 60) % 1440, (30 * last + 90) % 1440), zone=UTC)


@pytest.mark.parametrize("devices", [400, 1600])
def test_a_total_is_of_all_registered_devices(made: Path, tmp_path: Path, devices: int) -> None:
    path = Path(shutil.copy(made, tmp_path / "load.sqlite"))
    with open_store(path) as store:
        inventory = [Device(f"meter-{i}", "north", ACTIVE, 0) for i in range(devices)]
        store.set_devices([*inventory, Device("stolen", "north", "revoked", 0)])
    with open_results(path) as results:
        (mean,) = results.selection()
        theta = results.theta
    assert theta is not None
    slots = mean.slots + mean.absent
    assert mean.devices == devices
    assert mean.bias is not None
    assert mean.bias_se is not None
    assert mean.total == pytest.approx(devices * slots * mean.estimate)
    reports = min(mean.reports / mean.slots, devices)
    variance = mean.standard_error**2 + (1 - reports / devices) * theta**2 / 4 / reports
    assert mean.total_se == pytest.approx(devices * slots * math.sqrt(variance))


def test_a_threshold_round_is_shown_as_no_estimate(results: Results) -> None:
    rows = results.estimates()
    learning = [row for row in rows if row.is_learning]
    assert learning
    assert len(learning) < len(rows)
    for row in rows:
        columns = row.row()
        assert (columns["estimate"] is None) is row.is_learning
        assert (columns["model"] is None) is not row.is_learning
        assert type(row).of_row(columns) == row
    header, *lines = export.to_csv(results, learning).splitlines()
    place = {name: i for i, name in enumerate(header.split(","))}
    for line in lines:
        cells = line.split(",")
        assert cells[place["kind"]] == "model"
        assert cells[place["estimate"]] == ""
        assert cells[place["model"]] != ""
    for line in export.to_influx("load", learning).splitlines():
        fields = line.split(" ")[1]
        assert "estimate=" not in fields
        assert "model=" in fields
