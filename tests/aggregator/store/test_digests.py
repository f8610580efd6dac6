"""Somebody who has a store but not its key cannot recognise reports by the digests that the store keeps."""

import contextlib
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from support.server import FIRST, PREFIX, delivery, two_epochs
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.seen import DIGESTS, UNKNOWN, Seen, device_key, digest, digest_bytes, digests, record
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.store.digests import DigestMask, key_beside, mask_beside
from undertone_aggregator.store.store import Batch, Store, open_store
from undertone_shared.errors import Invalid

SLOTS = range(FIRST + 150, FIRST + 150 + DIGESTS)
CAMPAIGN = two_epochs()[1].campaign
PLACES = {name: CAMPAIGN.schedule.place(name) for name in (f"d{i}" for i in range(150))}
# In these slots, none of these devices sends reports for the threshold, so all reports have the same set of symbols.
DEVICES = [
    name
    for name, place in PLACES.items()
    if not any(CAMPAIGN.schedule.is_member(place, slot) for slot in range(SLOTS[0], SLOTS[-1] + 2))
][:80]


def sent(device: str, slot: int, symbol: int) -> bytes:
    return delivery(CAMPAIGN, device, slot, symbol, sequence=slot - FIRST)[1]


def judge(store: Store, drawn: dict[tuple[str, int], int]) -> list[str]:
    """Judge a report of each (device, slot) with its symbol, as a worker does after its start; return the outcomes."""
    seen = Seen()
    seen.load(store.segments(SEEN))
    admission = Admission(PREFIX, "meters", 1, seen, cells=cells_of)
    admission.timeline = Timeline(two_epochs())
    batch, outcomes = Batch(), []
    for (device, slot), symbol in drawn.items():
        topic = delivery(CAMPAIGN, device, slot)[0]
        outcomes.append(admission.judge(topic, sent(device, slot, symbol), False, FIRST + 200, batch))
    store.commit("0of1", batch)
    return outcomes


def recognised(file: Path, drawn: dict[tuple[str, int], int], *, compacted: bool) -> int:
    """Return how many of the reports ``drawn`` have a digest that occurs in the data of the file."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT data FROM segments WHERE state = ?", (SEEN,)).fetchall()
    stored = b"".join(data for (data,) in rows)
    # Every word of the data is tried, since a thief need not know where the digests are.
    size, step = (8, 8) if compacted else (4, 1)
    words = {int.from_bytes(stored[i : i + size], "little") for i in range(0, len(stored), step)}
    codes = {word >> shift * 21 & (1 << 21) - 1 for word in words for shift in range(DIGESTS)}
    return sum(digest(sent(*place, symbol)) in codes for place, symbol in drawn.items())


@pytest.mark.parametrize("compacted", [False, True])
def test_the_newest_reports_cannot_be_recognised_from_the_store_alone(tmp_path: Path, compacted: bool) -> None:
    """By chance, fewer than two of the 240 reports are found on average; the test allows 39."""
    chance = random.Random(4)
    drawn = {(device, slot): chance.randrange(8) for slot in SLOTS for device in DEVICES}
    file = tmp_path / "s.sqlite"
    with open_store(file) as store:
        assert set(judge(store, drawn)) == {"counted"}
        if compacted:
            seen = Seen()
            seen.load(store.segments(SEEN))
            store.compact(SEEN, seen.snapshot())
    assert recognised(file, drawn, compacted=compacted) < 40
    # In data without the mask, which the store keeps in memory only, the same search finds every report.
    with open_store(file) as store:
        plain = b"".join(data for _, data in store.segments(SEEN))
        with store.transaction():
            store.compact("other", plain)
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM segments WHERE state = ?", (SEEN,))
        database.execute("UPDATE segments SET state = ?", (SEEN,))
    assert recognised(file, drawn, compacted=compacted) == len(drawn)


def test_a_store_with_its_key_tells_repeated_reports_from_others(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    drawn = {(device, slot): 3 for slot in SLOTS for device in DEVICES}
    with open_store(file) as store:
        judge(store, drawn)
    assert key_beside(file).stat().st_mode & 0o777 == 0o600
    with open_store(file) as store:
        assert set(judge(store, drawn)) == {"duplicate"}
        assert set(judge(store, dict.fromkeys(drawn, 4))) == {"conflict"}


def test_without_its_key_it_raises_no_alarm_and_counts_nothing_twice(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    drawn = {(device, slot): 3 for slot in SLOTS for device in DEVICES}
    with open_store(file) as store:
        judge(store, drawn)
    key_beside(file).unlink()
    with open_store(file, read_only=True) as store:
        assert len(list(store.segments(SEEN))) == 1
    assert not key_beside(file).exists(), "a reader makes no key"
    with open_store(file) as store:
        assert set(judge(store, drawn)) == {"duplicate_unverified"}
        assert set(judge(store, dict.fromkeys(drawn, 4))) == {"duplicate_unverified"}
        later = {(device, SLOTS[-1] + 1): 3 for device in DEVICES}
        assert set(judge(store, later)) == {"counted"}
    with open_store(file) as store:
        assert set(judge(store, dict.fromkeys(later, 4))) == {"conflict"}, "what came since has the new key"
        assert set(judge(store, drawn)) == {"duplicate_unverified"}


def test_a_mask_is_its_own_inverse_and_leaves_out_what_it_cannot_hide() -> None:
    key, other = bytes(range(32)), bytes(32)
    rows = bytearray(b"".join(record(device_key(name)[1], 7, digest(name.encode())) for name in DEVICES))
    seen = Seen()
    seen.load([(False, bytes(rows))])
    for is_snapshot, data in ((False, bytes(rows)), (True, seen.snapshot())):
        stored = DigestMask(key).hide(is_snapshot, data)
        assert DigestMask(key).show(is_snapshot, stored) == data
        assert DigestMask(key).hide(is_snapshot, data) != stored, "each segment has random bytes of its own"
        blank = bytearray(data)
        digest_bytes(is_snapshot, blank)[...] = UNKNOWN
        for mask in (DigestMask(other), DigestMask()):
            assert mask.show(is_snapshot, stored) == bytes(blank)
        assert DigestMask().hide(is_snapshot, data)[24:] == bytes(blank)
    with pytest.raises(Invalid, match="has 23 bytes, expected at least 24"):
        DigestMask(key).show(False, bytes(23))


@pytest.mark.slow
def test_no_report_has_the_digest_of_an_unknown_one() -> None:
    payloads = [i.to_bytes(3, "big") for i in range(1 << 22)]
    codes = digests(payloads, len(payloads))
    assert codes.min() > UNKNOWN
    zero = [payload for payload, code in zip(payloads, codes.tolist(), strict=True) if code == (1 << 21) - 1]
    assert all(digest(payload) == (1 << 21) - 1 for payload in zero)
    assert len(zero) >= 2, "reports whose digest would be 0 get the digest of all ones"


def test_the_first_of_several_processes_makes_the_key(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite"
    mask = mask_beside(file, create=True)
    data = record(1, 2, 3)
    assert mask_beside(file, create=True).show(False, mask.hide(False, data)) == data
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite.key"]
    key_beside(file).write_bytes(b"short")
    with pytest.raises(Invalid, match="has 5 bytes, expected the 32 of a key"):
        open_store(file)
    assert np.array_equal(digest_bytes(False, bytearray(data)), [[3, 0, 0, 0]])


@pytest.mark.parametrize("devices", [1, 2, 40])
def test_of_a_snapshot_the_digests_alone_are_masked(devices: int) -> None:
    """Who reported when can be read without the key, because counting each report once depends on it."""
    seen = Seen()
    for key in range(1, devices + 1):
        seen.judge(key, 1000 + key, 7)
    words = np.frombuffer(seen.snapshot(), dtype="<u8").reshape(4, -1)
    assert (
        digest_bytes(True, bytearray(words.tobytes())).tobytes()
        == words[3].tobytes()
        == devices * (7).to_bytes(8, "little")
    )
