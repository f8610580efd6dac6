"""What servers of several sizes need: the arithmetic, and a trial run on this machine."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.base.open_files import RESERVE
from undertone_aggregator.base.room import CONNECTION_BYTES, by_files, by_memory
from undertone_operate.examine.capacity import FILES, HOMES, MANY, MEMORY, ONE, Speed, measure, need

REPO = Path(__file__).parents[2]
SPEED = Speed(report=10e-6, login=0.5e-3, slot_bytes=1000.0)
GB = 1 << 30
HERE = {FILES: by_files(20_256), MEMORY: by_memory(16 * GB)}


def test_a_server_of_20_000_homes() -> None:
    found = need(20_000, 1800, SPEED, HERE)
    assert found.reports_per_second == pytest.approx(20_000 / 1800)
    assert found.core == pytest.approx(found.reports_per_second * 10e-6)
    # The logins of these homes take 10 s, so all are back within a minute. Those of 200,000 homes take longer.
    assert found.back_seconds == 60
    assert need(200_000, 1800, SPEED, HERE).back_seconds == pytest.approx(100)
    assert found.files == 20_000 + RESERVE
    assert found.memory_bytes == GB // 2 + 20_000 * CONNECTION_BYTES
    # A machine with 3 GB has room for 100,000 homes.
    assert need(100_000, 1800, SPEED, HERE).memory_bytes < 3e9
    # Three years have 48 slots a day of 1,000 bytes each. Each device takes some bytes more.
    assert 3 * 365 * 48 * 1000 < found.disk_bytes < 3 * 365 * 48 * 1000 + 20_000 * 1000
    assert found.way == ONE


@pytest.mark.parametrize(
    ("homes", "slot_seconds", "way"),
    [
        (20_000, 1800, ONE),
        (20_001, 1800, FILES),
        (10**6, 1800, f"{FILES}, {MEMORY}"),
        (10**8, 1800, MANY),
        (10**6, 1, MANY),
    ],
)
def test_the_way_follows_from_room_and_processor(homes: int, slot_seconds: int, way: str) -> None:
    assert need(homes, slot_seconds, SPEED, HERE).way == way


def test_what_is_short_is_said_with_the_way_to_more() -> None:
    files = need(100_000, 1800, SPEED, HERE).advice
    assert "the limit of 20256 open files is enough for only 20,000 devices: use LimitNOFILE=100256 in the" in files
    assert "ulimit -Hn 100256 as root" in files
    assert "memory" not in files
    both = need(10**6, 1800, SPEED, HERE).advice
    assert "LimitNOFILE=1000256" in both
    assert "the memory of 16384 MB is enough for only 699,050 devices: use more memory, or" in both
    raised = {**HERE, FILES: by_files(1 << 20)}
    assert need(100_000, 1800, SPEED, raised).way == ONE
    assert need(10**6, 1800, SPEED, raised).way == MEMORY


def test_the_stored_table_is_what_the_measured_speeds_give() -> None:
    """docs/scale.md shows the stored rows. `undertone capacity` measured the speeds in them."""
    stored = json.loads((REPO / "docs/results/capacity.json").read_text(encoding="utf-8"))["rows"]
    assert [row["homes"] for row in stored] == list(HOMES)
    for row in stored:
        speed = Speed(row["µs a report"] / 1e6, row["ms a login"] / 1e3, row["store bytes a slot"])
        found = need(row["homes"], 1800, speed, HERE)
        # The rows are rounded as they are shown, so the tolerance is half a unit of the last digit.
        assert row == {
            "homes": found.homes,
            "reports a second": pytest.approx(found.reports_per_second, abs=0.005),
            "GB of memory": pytest.approx(found.memory_bytes / 1e9, abs=0.005),
            "GB of disk after three years": pytest.approx(found.disk_bytes / 1e9, abs=0.005),
            "open files": found.files,
            "% of a core": pytest.approx(100 * found.core, abs=0.0005),
            "s until all are back": pytest.approx(found.back_seconds, abs=0.5),
            "Mbit/s": pytest.approx(found.network_bits_per_second / 1e6, abs=0.005),
            "µs a report": row["µs a report"],
            "ms a login": row["ms a login"],
            "store bytes a slot": row["store bytes a slot"],
        }


def test_a_slower_machine_needs_more_of_a_core() -> None:
    slow = need(20_000, 1800, replace(SPEED, report=100e-6), HERE)
    assert slow.core == pytest.approx(10 * need(20_000, 1800, SPEED, HERE).core)


@pytest.mark.slow
def test_the_trial_measures_this_machine() -> None:
    found = measure()
    # The limits are wide: a report takes some microseconds, and a login some hundreds of microseconds.
    assert 1e-6 < found.report < found.login < 1.0
    assert 100 < found.slot_bytes < 100_000


def test_the_command_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertone_operate.examine.capacity.measure", lambda: SPEED)
    table = undertone("capacity", "--homes", 5000, "--homes", 100_000_000, "--slot", "15m")
    assert table.returncode == 0, table.stderr
    for words in ("5,000", "100,000,000", "reports a second", "5.56", "one process", "several machines: brokers"):
        assert words in table.stdout
    assert "a report takes 10 µs of processor time, and a login with TLS and a password 0.5 ms" in table.stdout
    monkeypatch.setattr("undertone_operate.examine.capacity.here", lambda: HERE)
    short = undertone("capacity", "--homes", 20_000, "--homes", 100_000).stdout
    assert (
        "too few files for 100,000 homes: the limit of 20256 open files is enough for only 20,000 devices: use" in short
    )
    assert "too few files for 20,000" not in short
    assert "or connections = 1000000 in [broker]" in undertone("capacity", "--homes", 10**6).stdout
    rows = json.loads(undertone("capacity", "--json").stdout)
    assert [row["homes"] for row in rows["needs"]] == [1000, 20_000, 100_000, 1_000_000]
    for words, said in ((("--homes", 0), "--homes is 0"), (("--slot", "2d"), "--slot is '2d', expected 1s to 24h")):
        refused = undertone("capacity", *words)
        assert refused.returncode == 2
        assert said in refused.stderr
