"""A copy of a store is complete even if its server writes meanwhile."""

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support.server import two_epochs
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.store.store import Batch, DiskFull, open_store
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
