import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from support.command import Done, undertone
from support.refusal import refused
from support.rows import alike
from support.server import FIRST, campaign, two_epochs
from undertone_aggregator.base.durations import utc
from undertone_aggregator.campaign.results import open_public, open_results
from undertone_aggregator.counts.epochs import Epoch, threshold_to_json
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.design import square_wave
from undertone_aggregator.estimate import query
from undertone_aggregator.estimate.estimates import ABSENT, LONGEST_GAP, Estimate, Estimates, Series, with_absent
from undertone_aggregator.estimate.opened import MODELS
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.selection import Hours
from undertone_aggregator.store import store as stores
from undertone_aggregator.store.store import Batch
from undertone_aggregator.threshold import Threshold
from undertone_shared import report
from undertone_shared.off_board.issue import build
from undertone_shared.scalar import Cohort
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import histogram

EDGES = (0, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1001)
CHOSEN = Threshold(
    500, 450, 600, 3.0, 1.0, 9.0, np.array([0.5, 0.4, 0.1]), (0, 100, 500, 1001), "robust", ["few reports"]
)


def draw(mechanism: Any, readings: np.ndarray, theta: int, chance: np.random.Generator) -> Any:  # type: ignore[type-arg]
    words = GivenWords(chance.integers(0, 2**32, (len(readings), 24), dtype=np.uint32))
    return histogram(mechanism, np.minimum(readings, theta), theta, words)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with one threshold round and three days of four slots in the report phase.

    Readings are exponential.
    """
    path = tmp_path_factory.mktemp("query") / "s.sqlite"
    chance = np.random.default_rng(8)
    shape = campaign()
    rounds = build(
        name="meters",
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=1000,
        slot_seconds=1,
        cycle=4,
        epoch=FIRST,
        last_slot=shape.last_slot,
        default=0,
        cohort=Cohort(square_wave(4, EDGES)),
        report=None,
    )
    second = two_epochs()[1].campaign
    rule = second.report
    assert rule is not None
    batch = Batch()
    for slot in range(FIRST, FIRST + 4):
        key = Key("meters", rounds.fingerprint, report.COHORT, "all", slot)
        batch.partial = batch.partial.merge(
            type(batch.partial)(
                {key: draw(rounds.cohort.mechanism, chance.exponential(100, 2000).astype(int), 1000, chance)}
            )
        )
    for slot in range(FIRST + 100, FIRST + 112):
        for group, size in (("north", 300), ("south", 500)):
            key = Key("meters", second.fingerprint, report.REPORT, group, slot)
            counts = draw(rule.mechanism, chance.exponential(100, size).astype(int), rule.theta, chance)
            batch.partial = batch.partial.merge(type(batch.partial)({key: counts}))
    batch.outcomes["counted"] = batch.partial.reports
    batch.outcomes["duplicate"] = 3
    with stores.open_store(path) as made:
        made.set_meta({"campaign": "meters", "epsilon": "4", "time_zone": "Europe/London", "settle_slots": "2"})
        made.add_epoch(Epoch(rounds, FIRST - 10))
        made.add_epoch(Epoch(second, FIRST + 90, threshold_to_json(CHOSEN)))
        made.commit("0of1", batch)
    return path


def test_results_say_everything(store: Path) -> None:
    with open_results(store) as results:
        assert results.theta == 500
        assert results.certificate <= np.exp(4)
        assert "event-level" in results.guarantee
        assert "ε = 16" in results.guarantee
        assert results.outcomes() == {"counted": 8000 + 12 * 800, "duplicate": 3, "received": 8003 + 12 * 800}
        estimates = results.estimates()
        assert [estimate.slot - FIRST for estimate in estimates] == [0, 1, 2, 3, *range(100, 112)]
        for estimate in estimates[4:]:
            assert estimate.reports == 800
            assert estimate.standard_error is not None
            assert estimate.bias is not None
            assert estimate.truncated_se is not None
            assert abs(estimate.truncated_mean - 100) < 5 * np.hypot(estimate.truncated_se, 100 / 800**0.5)
        few, stale = results.warnings(estimates)
        assert few == "few reports"
        # θ was chosen from a distribution with a mean of about 220, but the readings have a mean of 100.
        assert stale.startswith("theta is stale: readings are about 0.")
        assert len(results.estimates(FIRST + 100, FIRST + 101, None)) == 6
        columns = results.arrays(FIRST + 100)
        assert columns["estimate"].shape == (12,)
        assert np.isfinite(columns["standard_error"]).all()


def test_a_warning_about_liars_has_a_time_and_words(store: Path) -> None:
    with open_results(store) as results:
        estimates = results.estimates()
        slot = FIRST + 100
        misfit = np.where(estimates.slot == slot, 37.0, np.nan)
        *_, said = results.warnings(replace(estimates, misfit=misfit))
        assert said == (
            "some reports behind 1 of 16 estimates can hardly be from honest devices, most clearly those of"
            f" {utc(slot)}, group all: honest devices send such reports in at most one slot of a million"
        )


def test_ranges_and_quantiles(store: Path) -> None:
    with open_results(store) as results:
        days = results.ranges(4)
        assert [day.slots for day in days] == [4, 4, 4]
        assert all(day.truncated_se < 3 for day in days)
        median, tail = results.quantiles((0.5, 0.95), every=8, last=FIRST + 10)
        assert (median.cohort, median.reports) == (8000, 0)
        # 8,000 reports at ε = 4. An exponential distribution of mean 100 has the median 69 and the 95 % quantile 300.
        assert 60 < median.value < 78
        assert 240 < tail.value < 370
        assert median.low <= median.value <= median.high
        with refused("quantile", "1.5"):
            results.quantiles((1.5,))


def test_a_frame_for_pandas(store: Path) -> None:
    pytest.importorskip("pandas")
    with open_results(store) as results:
        frame = results.frame(groups=["north", "south"])
    assert sorted(set(frame["group"])) == ["north", "south"]
    assert len(frame) == 24


@pytest.mark.slow
def test_the_public_module_imports_nothing_until_asked(store: Path) -> None:
    code = (
        "import sys, undertone; assert not [m for m in sys.modules if 'numpy' in m or 'aggregator' in m];"
        f"r = undertone.open_store({str(store)!r}); print(r.theta, undertone.Estimate.__name__, dir(undertone)[-1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["500", "Estimate"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        __import__("undertone").nothing  # noqa: B018


def command(*arguments: object) -> Done:
    return undertone("query", *arguments)


def test_the_command_in_all_its_forms(store: Path, tmp_path: Path) -> None:
    table = command(store, "--newest", 2)
    assert table.returncode == 0, table.stderr
    assert "event-level" in table.stdout
    assert "warning: few reports" in table.stdout
    answer = json.loads(command(store, "--json", "--first", FIRST + 100, "--group", "all").stdout)
    assert answer["theta"] == 500
    assert len(answer["slots"]) == 12
    assert answer["slots"][0]["reports"] == 800
    assert answer["outcomes"]["duplicate"] == 3
    days = json.loads(command(store, "--json", "--every", 4, "--group", "all").stdout)["ranges"]
    assert [day["slots"] for day in days] == [4, 4, 4]
    # Runs of 8 divide the 12 slots into 8 and 4, and the rows show these numbers.
    cells = [line.split("│") for line in command(store, "--every", 8, "--group", "all").stdout.splitlines()]
    assert sorted(row[3].strip() for row in cells if len(row) > 3 and row[2].strip() == "all") == ["4", "8"]
    parquet = tmp_path / "x.parquet"
    lines = command(store, "--format", "csv", "--newest", 1, "--groups").stdout.splitlines()
    assert lines[0].startswith("slot,start,group,coordinate,filtered,kind,reports")
    assert lines[0].endswith(",unit,epsilon,guarantee")
    assert all("event-level" in line for line in lines[1:])
    assert len(lines) == 4
    assert command(store, "--format", "parquet", "--newest", 1, "--groups", "--output", parquet).returncode == 0
    pq = pytest.importorskip("pyarrow.parquet")
    read = pq.read_table(parquet)
    assert read.num_rows == 3
    assert json.loads(read.schema.metadata[b"undertone"])["epsilon"] == 4.0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["/nowhere/s.sqlite"], "there is no store at /nowhere/s.sqlite"),
        (["STORE", "--format", "xml"], "--format is 'xml', expected one of table, json, csv"),
        (["STORE", "--format", "csv", "--output", "/dev/full"], "error: /dev/full: No space left on device"),
        (["STORE", "--format", "parquet"], "--format parquet needs --output FILE"),
        (["STORE", "--group", "nrth"], "group is 'nrth', expected one of all, north, south"),
        (["STORE", "--every", "4", "--group", "nrth"], "group is 'nrth', expected one of all, north, south"),
        (["STORE", "--since", "yesterday"], "--since is 'yesterday', expected a whole number and s, m, h, d or w"),
        (["STORE", "--since", "4h", "--from", "2026-01-01"], "--from cannot be given with --since"),
        (["STORE", "--to", "2026-01-01", "--last", "7"], "--last cannot be given with --to"),
        (["STORE", "--from", "today"], "--from is 'today', expected a date and time"),
        (["STORE", "--tz", "Europe/Nowhere"], "--tz is 'Europe/Nowhere', expected a name such as Europe/London"),
        (["STORE", "--first", "9", "--last", "3"], "the selection is 9 to 3, expected times after 1970"),
        (["STORE", "--filtered", "--every", "4"], "--filtered cannot be given with --every or --quantiles"),
        (["STORE", "--quantiles", "half"], "--quantiles is 'half', expected numbers between 0 and 1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(store: Path, arguments: list[str], part: str) -> None:
    done = command(*[store if argument == "STORE" else argument for argument in arguments])
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_since_reaches_back_before_all_there_is(store: Path, tmp_path: Path) -> None:
    every = command(store, "--json")
    assert command(store, "--json", "--since", "999999w").stdout == every.stdout
    with stores.open_store(store) as full, stores.open_store(tmp_path / "new.sqlite") as empty:
        empty.set_meta(full.meta())
        for epoch in full.epochs():
            empty.add_epoch(epoch)
    done = command(tmp_path / "new.sqlite", "--json", "--since", "24h")
    assert (done.returncode, json.loads(done.stdout)["slots"]) == (0, [])


def test_a_store_without_an_epoch_says_so(tmp_path: Path) -> None:
    stores.open_store(tmp_path / "s.sqlite").close()
    with refused(tmp_path / "s.sqlite", "no epoch"):
        open_results(tmp_path / "s.sqlite")


def test_slots_are_chosen_by_local_time(store: Path) -> None:
    zone = ZoneInfo("Europe/London")
    begin = datetime.fromtimestamp(FIRST + 103, zone)
    with open_results(store) as results:
        by_slot = results.estimates(FIRST + 103, FIRST + 106)
        assert results.estimates(begin, begin + timedelta(seconds=4)) == by_slot
        assert results.estimates(begin.replace(tzinfo=None), begin + timedelta(seconds=3.5)) == by_slot
        with refused("first", "last"):
            results.estimates(begin, begin - timedelta(days=1))
    text = begin.replace(tzinfo=None).isoformat()
    answer = json.loads(command(store, "--json", "--from", text, "--to", text[:-2] + f"{begin.second + 4:02}").stdout)
    assert [slot["slot"] - FIRST for slot in answer["slots"]] == [103, 104, 105, 106]
    # The newest slot with reports is FIRST + 111. A slot settles two slots after its end, so FIRST + 108 has settled.
    settled = json.loads(command(store, "--json", "--since", "9m", "--settled").stdout)
    assert settled["settled"] == FIRST + 108
    assert settled["slots"][-1]["slot"] == FIRST + 108


def test_an_unknown_group_is_an_error_everywhere(store: Path) -> None:
    with open_results(store) as results:
        for ask in (results.estimates, results.frame, lambda groups: results.ranges(4, groups=groups)):
            with refused("group", "'west'"):
                ask(groups=["west"])
            assert len(ask(groups="north")) == len(ask(groups=["north"]))
        with refused("group", "'west'"):
            results.arrays(group="west")


def test_a_slot_that_nobody_reported_is_a_row_without_a_number(store: Path) -> None:
    with open_results(store) as results:
        without = results.estimates(groups=None)
        rows = results.estimates(groups=None, absent=True)
        assert [row for row in rows if not row.is_absent] == without
        for group in ("all", "north", "south"):
            assert [row.slot - FIRST for row in rows if row.group == group] == list(range(112))
        absent = [row for row in rows if row.is_absent and row.group == "all"]
        assert [row.slot - FIRST for row in absent] == list(range(4, 100))
        for row in absent:
            columns = row.row()
            assert (columns["kind"], columns["reports"], columns["cohort"]) == ("absent", 0, 0)
            assert columns["start"] == row.slot * results.campaign.slot_seconds
            assert all(columns[name] is None for name in ("estimate", "model", "standard_error", "low", "high"))
            assert alike([type(row).of_row(columns)], [row])
        # The warnings about the estimates are the same with and without the rows of slots that have no report.
        assert results.warnings(rows) == results.warnings(without)
        assert results.world(rows) == results.world(without)
        assert results.world(rows.take(rows.kind == ABSENT)) is None
        pytest.importorskip("pandas")
        frame = results.frame(absent=True)
        assert len(frame) == 112
        assert frame["estimate"].isna().sum() == 100
        assert len(results.arrays()["slot"]) == 16
    answer = json.loads(command(store, "--json", "--first", FIRST + 98, "--last", FIRST + 100).stdout)
    assert [(slot["kind"], slot["reports"], slot["estimate"] is None) for slot in answer["slots"]] == [
        ("absent", 0, True),
        ("absent", 0, True),
        ("report", 800, False),
    ]
    table = command(store, "--first", FIRST + 98, "--last", FIRST + 100)
    assert table.stdout.count("no report") == 2
    influx = command(store, "--format", "influx", "--first", FIRST + 99, "--last", FIRST + 99).stdout
    assert ",kind=absent " in influx
    assert "reports=0i" in influx
    assert "estimate=" not in influx


def absent(slot: int, series: Series) -> Estimate:
    return Estimate(slot, slot, series, ABSENT, 0, 0, math.nan, None, None, None, None)


def test_a_gap_of_more_than_a_year_of_half_hours_has_no_rows() -> None:
    ends = [absent(slot, Series()) for slot in (0, LONGEST_GAP + 1, 2 * LONGEST_GAP + 3)]
    made = with_absent(Estimates.of(ends), 0, ends[-1].slot, 1, ["all"])
    assert [row.slot for row in made] == [*range(LONGEST_GAP + 2), ends[-1].slot]
    two = [absent(5, Series("north", 2)), absent(5, Series("north", 2, True))]
    made = with_absent(Estimates.of(two), 5, 6, 1, ["north"])
    assert [(row.slot, row.series) for row in made] == [
        (5, Series("north", 2)),
        (5, Series("north", 2, True)),
        (6, Series("north", 2)),
    ]


def test_raw_and_filtered_stand_side_by_side(store: Path) -> None:
    with open_results(store) as results:
        both = results.estimates(groups=None, filtered=True)
        raw = {(e.slot, e.group): e for e in both if not e.series.filtered}
        filtered = {(e.slot, e.group): e for e in both if e.series.filtered}
        assert list(raw.values()) == results.estimates(groups=None)
        # Threshold rounds have no standard error, and no filtered value.
        assert filtered.keys() == {key for key in raw if key[0] >= FIRST + 100}
        for key, estimate in filtered.items():
            assert estimate.truncated_se <= raw[key].truncated_se * (1 + 1e-9)
            assert estimate.bias is not None
            assert estimate.reports == raw[key].reports
        assert "repeats every 4 slots" in results.frame(filtered=True).attrs["filter"]
        only = results.arrays(FIRST + 100, filtered=True)
        assert only["filtered"].all()
        assert len(only["slot"]) == 12


def test_the_mean_of_a_selection_by_group(store: Path) -> None:
    answer = json.loads(command(store, "--between", "00:00-24:00", "--by", "group", "--format", "json").stdout)
    with open_results(store) as results:
        expected = results.selection(groups=None, hours=Hours.parse("--between", "00:00-24:00"))
    assert [row["group"] for row in answer["selections"]] == list(results.groups)
    assert [row["estimate"] for row in answer["selections"]] == [row.estimate for row in expected]
    assert "slots" not in answer
    table = command(store, "--by", "all").stdout
    assert "absent" in table
    for wrong in (("--by", "north"), ("--by", "all", "--every", "4"), ("--between", "18-23")):
        done = command(store, *wrong)
        assert done.returncode == 2
        assert wrong[0] in done.stderr


def test_a_mean_against_another(store: Path) -> None:
    span = ("--first", str(FIRST + 104), "--last", str(FIRST + 107))
    answer = json.loads(command(store, *span, "--against", "group:north", "--groups", "--json").stdout)
    with open_results(store) as results:
        expected = results.difference(FIRST + 104, FIRST + 107, None, against="group:north")
        others = [group for group in results.groups if group != "north"]
    assert [row["group"] for row in answer["differences"]] == others
    assert [row["estimate"] for row in answer["differences"]] == [row.estimate for row in expected]
    table = command(store, *span, "--against", "group:north").stdout
    assert "by chance" in table
    assert "north at" in table
    for wrong in (
        ("--against", "north"),
        ("--against", "7d", "--total"),
        ("--against", "7d", "--every", "4"),
        ("--against", "group:nowhere"),
    ):
        done = command(store, *span, *wrong)
        assert done.returncode == 2, wrong
        assert "against" in done.stderr or "'nowhere'" in done.stderr


def test_frames_carry_unit_and_guarantee(store: Path) -> None:
    pytest.importorskip("pandas")
    with open_results(store) as results:
        frames = results.frame(), results.ranges_frame(4), results.quantiles_frame((0.5,), every=8, last=FIRST + 10)
        for frame in frames:
            assert frame.attrs["unit"] == "Wh"
            assert frame.attrs["epsilon"] == 4.0
            assert frame.attrs["guarantee"] == results.guarantee
            assert str(frame.index.tz) == "Europe/London"
        assert set(frames[0]["group"]) == {"all"}
        assert "meters" in repr(results)
        assert "event-level" in results._repr_html_()


def test_threshold_rounds_are_fitted_once(store: Path, tmp_path: Path) -> None:
    """A reader uses the models of threshold rounds that the store keeps, and fits none again."""
    copy = tmp_path / "s.sqlite"
    copy.write_bytes(store.read_bytes())
    with open_results(store) as results:
        first = results.estimates(last=FIRST + 10)
        models = results._estimator.models
        assert len(models) == 4
    with stores.open_store(copy) as made:
        made.set_meta({MODELS: json.dumps({key: value + 1000 for key, value in models.items()})})
    with open_results(copy) as results:
        assert [e.model for e in results.estimates(last=FIRST + 10)] == [e.model + 1000 for e in first]


def test_line_protocol_and_json_lines(store: Path) -> None:
    lines = command(store, "--format", "influx", "--newest", 1).stdout.splitlines()
    assert len(lines) == 1
    head, fields, stamp = lines[0].split(" ")
    assert head == "meters,group=all,coordinate=1,filtered=false,kind=report"
    assert int(stamp) == (FIRST + 111) * 10**9
    assert "reports=800i" in fields.split(",")
    (row,) = [json.loads(line) for line in command(store, "--format", "jsonl", "--newest", 1).stdout.splitlines()]
    assert row["group"] == "all"
    assert row["reports"] == 800


@pytest.mark.slow_but("csv")
@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_pipe_that_closes_early_is_no_error(store: Path, form: str) -> None:
    line = f"{sys.executable} -m undertone query {store} --format {form} --groups | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_newest_slots_are_those_of_their_span(store: Path) -> None:
    """A query for the newest slots gives the same numbers as a query for these slots by number."""
    with open_results(store) as results:
        first, last = results.newest_slots(3, None, None)
        assert (first, last) == (last - 2, results.ends - 1)
        assert results.newest_slots(3, None, last - 5) == (last - 7, last - 5)
        assert results.newest_slots(3, last - 1, None) == (last - 1, last)
        assert results.newest_slots(1, None, None, settled=True) == (results.settled, results.settled)
        assert results.newest_slots(2, last + 5, None) == (last + 5, last + 4)
        by_number = results.estimates(first, last, None)
    shown = [
        json.loads(line) for line in command(store, "--format", "jsonl", "--newest", 3, "--groups").stdout.splitlines()
    ]
    kept = [row for row in shown if row["kind"] != "absent"]
    assert [(row["slot"], row["group"], row["estimate"]) for row in kept] == [
        (row.slot, row.group, row.row()["estimate"]) for row in by_number
    ]


def test_a_filtered_selection_is_given_the_memory_around_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_results(store) as results:
        first, last = FIRST + 40, FIRST + 60
        whole = results.estimates(first, last, filtered=True)
        memory = results.filter.memory
        assert memory >= 112, "the whole store is within the memory of any slot"
        read: list[tuple[int, int]] = []
        of_store = results._parts
        monkeypatch.setattr(
            results, "_parts", lambda low, high, groups: read.append((low, high)) or of_store(low, high, groups)
        )
        assert results.estimates(first, last, filtered=True) == whole
        before = results._estimator.memory
    assert read == [(first - memory - before, last + memory)]


@pytest.mark.parametrize("opened", [open_results, open_public])
def test_a_series_read_piece_by_piece_is_that_of_the_whole(
    store: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[Path], Results]
) -> None:
    with opened(store) as results:
        groups = ["all", results.groups[1]]
        whole = [
            results.estimates(groups=groups),
            results.ranges(10, groups=groups),
            results.world(results.estimates()),
        ]
        monkeypatch.setattr(query, "_PIECE", 7)
        assert len(list(results._pieces(0, 0xFFFFFFFF, 1))) > 10
        pieces = [
            results.estimates(groups=groups),
            results.ranges(10, groups=groups),
            results.world(results.estimates()),
        ]
        assert pieces == whole
        monkeypatch.setattr(query, "_PIECE", 10**6)
        assert [results.estimates(groups=groups), results.ranges(10, groups=groups)] == whole[:2]
