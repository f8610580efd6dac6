"""If the database was restored and the server's folder was not, slots that were published before are withheld."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.memory_store import MemoryStore
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.restored import SettledMark
from undertone_aggregator.campaign.settling import Settling
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


def test_a_restored_database_raises_an_alarm(tmp_path: Path) -> None:
    mark, store, journal = SettledMark(tmp_path, "load"), MemoryStore(), Journal(io.StringIO())
    mark.note(7)
    settle(store, 4, 1)
    plan = SimpleNamespace(min_reports=1)
    context = SimpleNamespace(plan=plan, store=store, journal=journal, due_slot=lambda _: 9)
    settling: Any = SimpleNamespace(_mark=mark, _compared=False, _context=context, _settled=4)
    Settling._compare(settling, 0)
    assert [alarm.event for alarm in journal.alarms] == ["restored"]
    assert "No number is published for slots 5 to 9" in journal.alarms[0].sentence
    assert settling._settled == 9
