"""If the database was restored and the server's folder was not, slots that were published before are withheld."""

from pathlib import Path

from support.memory_store import MemoryStore
from undertone_aggregator.campaign.restored import SettledMark
from undertone_aggregator.estimate.publication import publication_of, settle


def test_a_database_that_has_settled_less_than_the_server_noted_was_restored(tmp_path: Path) -> None:
    mark, store = SettledMark(tmp_path, "load"), MemoryStore()
    assert mark.settled == -1
    for slot in (3, 7, 5):
        settle(store, slot, 1)
        mark.note(slot)
    assert SettledMark(tmp_path, "load").settled == 7
    assert mark.path.stat().st_mode & 0o777 == 0o600
    assert mark.withhold(store, 9, 1) is None, "the database is the one that this server knows"
    assert SettledMark(tmp_path, "water").withhold(store, 9, 1) is None, "a new server knows nothing"

    # This database is from the time when slot 4 had settled.
    restored = MemoryStore()
    settle(restored, 4, 1)
    assert SettledMark(tmp_path, "load").withhold(restored, 9, 1) == (5, 9)
    assert publication_of(restored, 1).withheld == ((5, 9),)
    assert SettledMark(tmp_path, "load").withhold(restored, 12, 1) is None
    # Slots that were published are withheld even if the clock is behind.
    behind = MemoryStore()
    settle(behind, 4, 1)
    assert SettledMark(tmp_path, "load").withhold(behind, 5, 1) == (5, 7)


def test_a_damaged_mark_is_none(tmp_path: Path) -> None:
    (tmp_path / "load.settled").write_text("seven", encoding="utf-8")
    assert SettledMark(tmp_path, "load").settled == -1
