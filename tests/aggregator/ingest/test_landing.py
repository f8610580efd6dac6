"""Landed reports are on the disk before they are acknowledged, in whole files, and SQL counts the same reports."""

import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support.hostile import EPOCHS, GROUPS, stream_of
from support.list_intake import ListIntake
from support.memory_store import MemoryStore
from support.refusal import refused
from support.server import FIRST, PREFIX, config, delivery, two_epochs
from undertone_aggregator.campaign.binding import bind_counting
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.seen import Seen
from undertone_aggregator.ingest import ingest as ingest_module
from undertone_aggregator.ingest import landing as module
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.ingest.landing import COLUMNS, LANDED, RAW, Landing, files_of, gathered_files, rows_of
from undertone_aggregator.ingest.landing_batches import counted_names, forget_batches, note_batch, waiting_files
from undertone_aggregator.ingest.shared_plan import read_plan, write_plan
from undertone_aggregator.settings.landing_plan import SERVER, SPARK, LandingPlan
from undertone_operate.examine import recount as recount_module
from undertone_operate.examine.recount import compare, merged, recount
from undertone_shared.errors import Invalid

OLD = two_epochs()[0]
NOW = FIRST + 900


def make_store(epochs: list[Epoch]) -> MemoryStore:
    store = MemoryStore()
    store.set_meta({"campaign": "meters"})
    for epoch in epochs:
        store.add_epoch(epoch)
    return store


def landing(folder: Path, counts: str = SERVER, seconds: float = 3600) -> LandingPlan:
    return LandingPlan(str(folder), seconds, 7, counts)


def make(
    store: MemoryStore, plan: LandingPlan, deliveries: list[Delivery], **options: Any
) -> tuple[Ingest, ListIntake]:
    intake = ListIntake(deliveries, batch=options.pop("batch", 500))
    made = IngestPlan(PREFIX, "meters", 1, cells_of, landing=plan, groups=GROUPS)
    return Ingest(made, store, intake, clock=lambda: NOW, **options), intake


def reports(count: int, slot: int = FIRST + 1) -> list[Delivery]:
    return [Delivery(*delivery(OLD.campaign, f"d{number}", slot), False) for number in range(count)]


def rows(folder: Path) -> int:
    return sum(pq.read_table(file).num_rows for file in files_of(folder))


@pytest.mark.slow_but("0-turns", "1-scalar", "1-stream")
@pytest.mark.parametrize("kind", EPOCHS)
@pytest.mark.parametrize("seed", range(2))
def test_counted_again_by_sql_it_is_what_the_server_counted(kind: str, seed: int, tmp_path: Path) -> None:
    """Reports are late, repeated, contradicting or damaged.

    The server and a recount by SQL agree on every histogram.
    """
    chance = random.Random(seed)
    devices, steps = chance.choice([(30, 3), (200, 65), (1000, 120)])
    deliveries = stream_of(EPOCHS[kind], chance, devices, 5000, 0.1, steps)
    store = make_store(EPOCHS[kind])
    ingest, intake = make(store, landing(tmp_path), deliveries, batch=chance.choice([60, 300, 2000]))
    while intake.waiting:
        ingest.step()
        if chance.random() < 0.2:
            ingest._gather(Landing.gather)
    again = recount(tmp_path, store.epochs())
    assert again.partial == store.partial()
    assert again.partial.reports > 500
    assert merged(again.outcomes) == merged(store.outcomes())
    assert {"again", "counted", "other_campaign", "topic", "retained"} <= set(merged(again.outcomes))
    middle = FIRST + 200
    assert compare(recount(tmp_path, store.epochs(), middle), store, middle) == []
    assert compare(again, store, middle), "what is outside of the range differs"


def test_a_missing_file_shows(tmp_path: Path) -> None:
    store = make_store([OLD])
    ingest, intake = make(store, landing(tmp_path), reports(40) + reports(40, FIRST + 2), batch=40)
    ingest.step()
    ingest._gather(Landing.gather)
    (kept,) = files_of(tmp_path)
    ingest.step()
    ingest._gather(Landing.gather)
    assert intake.waiting == 0
    assert compare(recount(tmp_path, store.epochs()), store) == []
    kept.unlink()
    said = [str(difference) for difference in compare(recount(tmp_path, store.epochs()), store)]
    assert said
    assert all(
        sentence.startswith(f"slot {FIRST + 1}, group ") and ": 0 reports in the files, " in sentence
        for sentence in said
    )


def test_what_is_gathered_while_it_is_read_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store([OLD])
    ingest, _ = make(store, landing(tmp_path), reports(40), batch=10)
    for _ in range(4):
        ingest.step()
    listed: list[list[Path]] = []

    def list_then_gather(folder: Path) -> list[Path]:
        listed.append(files_of(folder))
        ingest._gather(Landing.gather)
        return listed[-1]

    monkeypatch.setattr(recount_module, "files_of", list_then_gather)
    assert recount(tmp_path, store.epochs()).partial == store.partial()
    assert [len(files) for files in listed] == [4, 1]
    monkeypatch.setattr(recount_module, "files_of", lambda _: [tmp_path / "gone"])
    with pytest.raises(Invalid, match="moved 50 times while this command read them"):
        recount(tmp_path, store.epochs())
    (tmp_path / "gone").write_text("no Parquet", encoding="utf-8")
    with pytest.raises(Invalid, match="cannot be read: "):
        recount(tmp_path, store.epochs())


def test_each_row_is_what_the_rules_without_memory_say() -> None:
    admission = Admission(PREFIX, "meters", 1, Seen(), cells=cells_of, groups=GROUPS)
    admission.timeline = Timeline(EPOCHS["turns"])
    deliveries = stream_of(EPOCHS["turns"], random.Random(9), 200, 3000, 0.2, 3)
    columns = rows_of(admission, deliveries, NOW)
    assert set(columns) == set(COLUMNS) - {"place"}
    for i, (topic, payload, retained, _) in enumerate(deliveries):
        refused, device, key, came, _ = admission.examine(topic, payload, retained, NOW)
        assert (columns["outcome"][i], columns["device"][i]) == (refused or RAW, device)
        if not refused:
            assert came is not None
            assert int(columns["key"][i]) % (1 << 64) == key
            values = (came.kind, came.slot, came.values[0], came.sequence)
            assert tuple(columns[name][i] for name in ("kind", "slot", "value", "sequence")) == values
    assert len(set(columns["outcome"])) > 5
    assert len(admission.seen) == 0, "nothing is remembered"


@pytest.mark.parametrize("counts", [SERVER, SPARK])
def test_killed_between_landing_and_acknowledgement_nothing_is_lost(
    counts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def failpoint(place: str) -> None:
        if place == deadly:
            raise Killed

    store = make_store([OLD])
    for number, deadly in enumerate(("after_landing", "before_commit", "after_commit", "during_acknowledgement")):
        ingest, intake = make(store, landing(tmp_path, counts), reports(50, FIRST + number), failpoint=failpoint)
        if counts == SERVER or deadly != "before_commit":
            with pytest.raises(Killed):
                ingest.step()
            assert rows(tmp_path) >= 50 - intake.waiting, "what is acknowledged is landed"
        ingest, _ = make(store, landing(tmp_path, counts), [])
        ingest._intake = intake
        intake.break_connection()
        ingest.step()
        assert intake.waiting == 0
    again = recount(tmp_path, store.epochs())
    assert again.partial.reports == 4 * 50
    assert again.outcomes["duplicate"] >= 100
    assert (compare(again, store) == []) == (counts == SERVER)
    assert (store.outcomes()["received"] == 0) == (counts == SPARK)


def test_a_full_disk_acknowledges_nothing_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "RETRY_SECONDS", 0.0)
    said: list[str] = []
    store = make_store([OLD])
    ingest, intake = make(store, landing(tmp_path), reports(30), say=said.append)
    sync, left = module.sync, [3]

    def full(path: Path) -> None:
        if left[0] and path.is_file():
            left[0] -= 1
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(28, "No space left on device")
        sync(path)

    monkeypatch.setattr(module, "sync", full)
    ingest._stop = threading.Event()
    ingest._stop.set()
    assert ingest.step() == 0
    assert intake.waiting == 30
    with pytest.raises(Invalid, match="holds no landed file"):
        files_of(tmp_path)
    ingest._stop.clear()
    intake.break_connection()
    assert ingest.step() == 30
    why = "landing: [Errno 28] No space left on device"
    assert said == [f"the store or the landing folder cannot be written, trying again: {why}"] * 3
    assert rows(tmp_path) == 30
    assert store.outcomes() == {"counted": 30, "received": 30}


def test_what_a_dead_worker_left_is_gathered_by_the_next(tmp_path: Path) -> None:
    store = make_store([OLD])
    zombie, _ = make(store, landing(tmp_path, SPARK), reports(20), batch=10)
    zombie.step()
    assert list((tmp_path / LANDED).rglob("*.parquet")) == []
    heir, _ = make(store, landing(tmp_path, SPARK), [])
    assert [pq.read_table(file).num_rows for file in (tmp_path / LANDED).rglob("*.parquet")] == [10]
    # The first process still lives. The reports that it takes now are landed after its earlier ones.
    assert zombie.step() == 10
    zombie._gather(Landing.gather)
    heir._gather(Landing.gather)
    files = sorted((tmp_path / LANDED).rglob("*.parquet"))
    tables = [pq.read_table(file) for file in files]
    assert [table.num_rows for table in tables] == [10, 10]
    assert tables[0]["place"][-1].as_py() < tables[1]["place"][0].as_py()
    assert list((tmp_path / ".pending").rglob("*.parquet")) == []


def test_the_first_worker_gathers_what_another_number_of_workers_left(tmp_path: Path) -> None:
    Landing(landing(tmp_path), "1of3").land(one_row())
    Landing(landing(tmp_path), "1of2")
    assert list((tmp_path / LANDED).rglob("*.parquet")) == []
    Landing(landing(tmp_path), "0of2")
    assert len(list((tmp_path / LANDED).rglob("*.parquet"))) == 1


def test_what_was_gathered_before_its_worker_died_is_not_gathered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker gathers the rows of several files in one file, and dies before it removes the several files.

    Still, each row is kept only once.
    """
    dead = Landing(landing(tmp_path, SPARK), "0of1")
    dead.land(one_row())
    dead.land(one_row())
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        dead.gather()
    Landing(landing(tmp_path, SPARK), "0of1")
    files = gathered_files(tmp_path / LANDED)
    assert [pq.read_table(file).num_rows for file in files] == [2]
    # Files that were not gathered are gathered later: rows of a later batch, and rows taken over after a change of the
    # number of workers.
    later = Landing(landing(tmp_path, SPARK), "0of1")
    later.land(one_row())
    Landing(landing(tmp_path, SPARK), "0of2")
    assert sum(pq.read_table(file).num_rows for file in gathered_files(tmp_path / LANDED)) == 3


def test_what_is_not_ours_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / LANDED, tmp_path / ".pending" / "0of1-stray"):
        (place / "part-00000-ab.snappy.parquet").mkdir(parents=True)
        (place / "notes.parquet").write_text("mine", encoding="utf-8")
    (tmp_path / ".pending" / "lost-found").mkdir()
    made = Landing(landing(tmp_path), "0of1")
    made.land(one_row())
    made.gather()
    assert [file.name.startswith("0of1-") for file in files_of(tmp_path)] == [True]
    assert (tmp_path / LANDED / "notes.parquet").read_text(encoding="utf-8") == "mine"


def test_files_wait_until_their_batch_is_in_the_store(tmp_path: Path) -> None:
    made = Landing(landing(tmp_path, SPARK), "0of1")
    for _ in range(3):
        made.land(one_row())
        made.gather()
    names = [file.name for file in gathered_files(tmp_path / LANDED)]
    assert [file.name for file in waiting_files(tmp_path, None, -1)] == names
    note_batch(tmp_path, "c1", 0, names[:1])
    note_batch(tmp_path, "c1", 1, names[1:2])
    # Batch 1 is recorded and not in the store yet.
    assert [file.name for file in waiting_files(tmp_path, "c1", 0)] == names[1:]
    assert [file.name for file in waiting_files(tmp_path, "c1", 1)] == names[2:]
    assert counted_names(tmp_path, "c1", 1) == set(names[:2])
    assert counted_names(tmp_path, "another", 9) == set()
    gathered_files(tmp_path / LANDED)[0].unlink()
    forget_batches(tmp_path)
    assert counted_names(tmp_path, "c1", 1) == {names[1]}


def one_row() -> dict[str, Any]:
    admission = Admission(PREFIX, "meters", 1, Seen(), cells=cells_of)
    admission.timeline = Timeline([OLD])
    return rows_of(admission, reports(1), NOW)


def test_files_are_gathered_after_their_time_and_removed_after_their_days(tmp_path: Path) -> None:
    made = Landing(landing(tmp_path, seconds=0.0), "0of1")
    made.land(one_row())
    made.step()
    (file,) = (tmp_path / LANDED).rglob("*.parquet")
    # This day is in the distant past: files of it are old enough to be removed.
    old = tmp_path / LANDED / "2001-01-01"
    shutil.copytree(file.parent, old)
    waiting = tmp_path / "counted" / "a" / "2001-01-01"
    shutil.copytree(file.parent, waiting)
    made.gather()
    assert not old.exists()
    assert waiting.exists(), "the server counts: nobody sets files aside"
    shutil.copytree(file.parent, old)
    counted = Landing(landing(tmp_path, SPARK), "0of1")
    counted.gather()
    assert old.exists(), "Spark has not counted it"
    assert not waiting.exists()
    assert oct((tmp_path / LANDED).stat().st_mode & 0o77) == "0o0"


def test_it_is_off_unless_a_folder_is_named_and_says_what_it_means(tmp_path: Path) -> None:
    assert config(tmp_path).landing.plan(tmp_path) is None
    options = config(tmp_path, '[landing]\nfolder = "kept"\n').landing
    plan = options.plan(tmp_path)
    assert plan is not None
    assert (plan.folder, plan.days, plan.counts) == (str(tmp_path / "kept"), 7, SERVER)
    assert "under its device's name in kept, for 7 days" in options.warning()
    with refused("landing.counts", "'spark'", "[landing]"):
        config(tmp_path, '[landing]\ncounts = "spark"\n')


def test_workers_on_other_machines_are_told(tmp_path: Path) -> None:
    store = make_store([OLD])
    plan = IngestPlan(PREFIX, "meters", 1, cells_of, landing=landing(tmp_path, SPARK))
    write_plan(store, plan, {})
    assert read_plan(store, cells_of) == plan
    write_plan(store, replace(plan, landing=None), {})
    assert read_plan(store, cells_of).landing is None


def test_who_counts_cannot_change(tmp_path: Path) -> None:
    store = make_store([OLD])
    bind_counting(store, SPARK)
    bind_counting(store, SPARK)
    with refused("landing.counts", "'server'", "'spark'"):
        bind_counting(store, SERVER)
    before = make_store([OLD])
    ingest, _ = make(before, landing(tmp_path), reports(3))
    ingest.step()
    with refused("'spark'", "'server'"):
        bind_counting(before, SPARK)
