"""`undertone migrate`: a store of an earlier version is read without a server."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.store.store import open_store
from undertone_shared.errors import Invalid

OLD = Path(__file__).parents[1] / "aggregator/store/store_0005.sql"


def old(path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(OLD.read_text(encoding="utf-8"))
    return path


def test_a_store_and_a_folder_of_stores_are_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n')
    (tmp_path / "stores").mkdir()
    alone, within = old(tmp_path / "s.sqlite"), old(tmp_path / "stores/meters.sqlite")
    for path, place in ((alone, alone), (within, tmp_path)):
        with pytest.raises(Invalid, match="undertone migrate"):
            open_store(path, read_only=True)
        done = undertone("migrate", str(place))
        assert (done.returncode, "2 epochs" in done.stdout) == (0, True), done.stderr
        with open_store(path, read_only=True) as store:
            assert store.outcomes()["counted"] == 11
    missing = undertone("migrate", str(tmp_path / "none.sqlite"))
    assert (missing.returncode, "no store" in missing.stderr) == (2, True)
    assert not (tmp_path / "none.sqlite").exists()
