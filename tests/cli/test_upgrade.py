"""`undertone upgrade` brings stores of an earlier version up to date, without a server."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.command import undertone
from support.server import two_epochs
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.store import migrations, tables
from undertone_aggregator.store.sqlite_store import copy_before
from undertone_aggregator.store.store import Batch, open_store
from undertone_shared.errors import Invalid

Old = Callable[[Path], Path]
OLD = tables.HEAD
LATER = f"{int(OLD) + 1:04}"


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Return a function that makes a store of an earlier version.

    Today's version stands for the earlier one. A later version stands for today's: its only migration changes nothing.
    """

    def made(path: Path) -> Path:
        with monkeypatch.context() as today:
            today.setattr(tables, "HEAD", OLD)
            with open_store(path, campaign="meters") as store:
                store.set_meta({"campaign": "meters"})
                store.commit("0of1", Batch(outcomes=Counter(counted=11)))
                for epoch in two_epochs():
                    store.add_epoch(replace(epoch, budget=Budget.parse("1")))
        return path

    monkeypatch.setattr(migrations, "STEPS", {OLD: (LATER, lambda connection: None)})
    monkeypatch.setattr(tables, "HEAD", LATER)
    return made


def test_a_store_and_a_folder_of_stores_are_brought_up_to_date(tmp_path: Path, old: Old) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    (tmp_path / "stores").mkdir()
    alone, within = old(tmp_path / "s.sqlite"), old(tmp_path / "stores/meters.sqlite")
    for path, place in ((alone, alone), (within, tmp_path)):
        with pytest.raises(Invalid, match="undertone upgrade"):
            open_store(path, read_only=True)
        done = undertone("upgrade", str(place))
        assert (done.returncode, "2 epochs" in done.stdout) == (0, True), done.stderr
        with open_store(path, read_only=True) as store:
            assert store.outcomes()["counted"] == 11
    missing = undertone("upgrade", str(tmp_path / "none.sqlite"))
    assert (missing.returncode, "no store" in missing.stderr) == (2, True)
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "empty.csv").touch()
    empty = undertone("upgrade", str(tmp_path / "empty.csv"))
    assert (empty.returncode, "empty.csv is empty, expected a store" in empty.stderr) == (2, True)
    assert (tmp_path / "empty.csv").stat().st_size == 0


def revision(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return str(database.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_check_says_what_would_change_and_changes_nothing(tmp_path: Path, old: Old) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    (tmp_path / "stores").mkdir()
    path = old(tmp_path / "stores/meters.sqlite")
    before, beside = path.read_bytes(), sorted(path.parent.iterdir())
    done = undertone("upgrade", str(tmp_path), "--check")
    assert (done.returncode, f"revision {OLD}" in done.stdout, tables.HEAD in done.stdout) == (1, True, True)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == beside, "neither a copy nor a log"
    assert undertone("upgrade", str(tmp_path)).returncode == 0
    done = undertone("upgrade", str(tmp_path), "--check")
    assert (done.returncode, done.stdout) == (0, "nothing would change\n")


def test_a_copy_is_kept_of_each_store_before_it_changes(tmp_path: Path, old: Old) -> None:
    path = old(tmp_path / "s.sqlite")
    assert undertone("upgrade", str(path)).returncode == 0
    copy = copy_before(path)
    assert revision(copy) == OLD
    assert revision(path) == tables.HEAD
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith(".")) == []
    kept = copy.read_bytes()
    again = tmp_path / "again.sqlite"
    again.write_bytes(kept)
    with open_store(again) as store:
        assert store.outcomes()["counted"] == 11, "the copy is a whole store"
    open_store(tmp_path / "new.sqlite", campaign="new").close()
    assert not copy_before(tmp_path / "new.sqlite").exists(), "a new store has nothing to keep"


def test_a_store_of_a_later_version_is_refused_in_a_sentence(tmp_path: Path, old: Old) -> None:
    path = old(tmp_path / "s.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    done = undertone("upgrade", str(path), "--check")
    assert (done.returncode, "9999" in done.stdout, "expected at most" in done.stdout) == (1, True, True)
    refused = undertone("upgrade", str(path))
    assert (refused.returncode, "9999" in refused.stderr) == (2, True)
    assert revision(path) == "9999"
    assert not copy_before(path).exists()


def test_a_plan_that_this_version_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "managed"\n', encoding="utf-8")
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns/power.toml").write_text('[campaign]\nname = "power"\n', encoding="utf-8")
    done = undertone("upgrade", str(tmp_path), "--check")
    assert (done.returncode, done.stdout.startswith("power: ")) == (1, True)
