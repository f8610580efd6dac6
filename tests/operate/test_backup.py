"""A backup is whole while its server writes; a restore says what it cannot know, and destroys nothing."""

import shutil
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support.refusal import refused, told
from support.server import two_epochs
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.store.store import Batch, DiskFull, open_store
from undertone_operate.backup import restore
from undertone_shared.errors import Invalid

OLD, NEW = (replace(epoch, budget=Budget.parse(4)) for epoch in two_epochs())


def fill(path: Path, batches: int = 1) -> None:
    with open_store(path) as store:
        store.set_meta({"campaign": "meters"})
        if not store.epoch_count():
            store.add_epoch(OLD)
        for _ in range(batches):
            store.commit("0of1", Batch(outcomes=Counter(counted=10), seen=bytearray(16)))


def test_a_backup_is_consistent_while_others_write(tmp_path: Path) -> None:
    store, copy = tmp_path / "s.sqlite", tmp_path / "copy.sqlite"
    fill(store)
    writing = threading.Thread(target=fill, args=(store, 100))
    writing.start()
    with open_store(store, read_only=True) as opened:
        opened.backup(copy)
    writing.join()
    with open_store(copy, read_only=True) as copied:
        counted = copied.outcomes()["counted"]
        assert counted >= 10
        assert sum(len(data) for _, data in copied.segments(SEEN)) == 16 * counted // 10, (
            "one transaction, whole or not at all"
        )
    assert copy.stat().st_mode & 0o777 == 0o600
    with open_store(store, read_only=True) as opened, pytest.raises(Invalid, match="exists already"):
        opened.backup(copy)


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copy = tmp_path / "s.sqlite", tmp_path / "copy.sqlite"
    fill(store)

    def full(*_: object) -> None:
        raise DiskFull("database or disk is full")

    with open_store(store, read_only=True) as opened:
        with monkeypatch.context() as patched:
            patched.setattr(opened, "execute", full)
            with pytest.raises(DiskFull):
                opened.backup(copy)
        assert not copy.exists()
        opened.backup(copy)


def test_a_restore_says_what_it_cannot_know_and_keeps_what_was_there(tmp_path: Path) -> None:
    store, copy = tmp_path / "s.sqlite", tmp_path / "copy.sqlite"
    fill(store)
    with open_store(store, read_only=True) as opened:
        opened.backup(copy)
    fill(store, 2)
    with open_store(store) as opened:
        opened.add_epoch(NEW)
        for hold in (opened.shared, opened.serving):
            with hold(0), refused(store):
                restore(copy, store)
    said = "\n".join(restore(copy, store))
    assert "it had counted 20 reports more" in said
    assert told(said, "1 epochs", NEW.campaign.epoch)
    assert "will show them as lost" in said
    with open_store(store, read_only=True) as opened:
        assert (opened.epoch_count(), opened.outcomes()["counted"]) == (1, 10)
    with open_store(tmp_path / "s.sqlite.before-restore", read_only=True) as aside:
        assert (aside.epoch_count(), aside.outcomes()["counted"]) == (2, 30)
    with refused(tmp_path / "s.sqlite.before-restore"):
        restore(copy, store)


def test_the_log_of_a_store_that_is_gone_is_not_taken_for_the_backups(tmp_path: Path) -> None:
    """SQLite would replay it into whatever file has its name."""
    store, copy, killed = tmp_path / "s.sqlite", tmp_path / "copy.sqlite", tmp_path / "killed.sqlite"
    fill(killed)
    with open_store(killed, read_only=True) as opened:
        opened.backup(copy)
    with open_store(killed):
        fill(killed, 2)
        shutil.copyfile(f"{killed}-wal", f"{store}-wal")
    said = "\n".join(restore(copy, store))
    assert f"{store}.before-restore-wal" in said
    with open_store(store, read_only=True) as opened:
        assert opened.outcomes()["counted"] == 10
    assert Path(f"{store}.before-restore-wal").stat().st_size


def test_a_store_that_was_copied_with_its_log_is_a_backup_too(tmp_path: Path) -> None:
    store, copy, killed = tmp_path / "s.sqlite", tmp_path / "copy.sqlite", tmp_path / "killed.sqlite"
    with open_store(killed):
        fill(killed, 2)
        for end in ("", "-wal"):
            shutil.copyfile(f"{killed}{end}", f"{copy}{end}")
    assert "20 reports" in restore(copy, store)[0]
    with open_store(store, read_only=True) as opened:
        assert opened.outcomes()["counted"] == 20
    assert store.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("s.")} == {"s.sqlite"}


def test_another_campaigns_backup_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "s.sqlite")
    with open_store(tmp_path / "other.sqlite") as other:
        other.set_meta({"campaign": "water"})
    with refused("meters", "water"):
        restore(tmp_path / "other.sqlite", tmp_path / "s.sqlite")
