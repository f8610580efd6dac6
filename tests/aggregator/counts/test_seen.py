import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertone_aggregator.counts.seen import (
    CONFLICT,
    COUNTED,
    DUPLICATE,
    NEWER,
    UNKNOWN,
    UNVERIFIED,
    WINDOW,
    Seen,
    device_key,
    digest,
    newer,
    newest_slots,
    record,
    unseen,
)
from undertone_shared.errors import Invalid
from undertone_shared.topics import shard

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1000, 1250), st.integers(0, 2)), max_size=150)


class Model:
    """The rules in their simplest form. The model remembers every counted report with its digest."""

    def __init__(self) -> None:
        self.counted: dict[int, dict[int, int]] = {}

    def judge(self, key: int, slot: int, code: int) -> str:
        mine = self.counted.setdefault(key, {})
        if mine and slot <= max(mine) - WINDOW:
            return UNVERIFIED
        if slot not in mine:
            mine[slot] = code
            return COUNTED
        if slot not in sorted(mine)[-3:] or mine[slot] == UNKNOWN:
            return UNVERIFIED
        return DUPLICATE if mine[slot] == code else CONFLICT


@pytest.mark.slow
@settings(max_examples=300)
@given(EVENTS)
def test_judgements_follow_the_rules(events: list[tuple[int, int, int]]) -> None:
    seen, model = Seen(), Model()
    for key, slot, code in events:
        assert seen.judge(key, slot, code) == model.judge(key, slot, code)


@given(EVENTS, EVENTS, st.booleans())
def test_a_restart_changes_no_judgement(before: list, after: list, compacted: bool) -> None:  # type: ignore[type-arg]
    kept, segments = Seen(), bytearray()
    for event in before:
        if kept.judge(*event) == COUNTED:
            segments += record(*event)
    resumed = Seen()
    resumed.load([(True, kept.snapshot())] if compacted else [(False, bytes(segments))])
    assert resumed.snapshot() == kept.snapshot()
    assert [resumed.judge(*event) for event in after] == [kept.judge(*event) for event in after]


def test_sorted_words_agree_with_the_young_dictionary() -> None:
    chance = random.Random(5)
    seen, model = Seen(), Model()
    for _ in range(30_000):
        key = chance.randrange(12_000) << 50
        slot, code = chance.randrange(1000, 1120), chance.randrange(2)
        assert seen.judge(key, slot, code) == model.judge(key, slot, code)
    assert seen.nbytes > 0
    assert len(seen) == len(model.counted)


def test_a_million_devices_would_take_32_megabytes() -> None:
    """Each device takes 32 bytes in the arrays of words.

    New devices wait outside the arrays: at most 4,096, or a 64th of all devices if that is more.
    """
    seen = Seen()
    for number in range(20_000):
        seen.judge(device_key(f"meter-{number}")[1], 1000, 1)
        if number < 5000 or number % 1000 == 999:
            assert 0 <= len(seen) - seen.nbytes // 32 <= max(4096, len(seen) >> 6)
    assert len(seen.snapshot()) == 32 * len(seen)
    assert seen.nbytes == 32 * len(seen)


def test_the_key_tells_the_shard() -> None:
    for name in ("a", "meter-17", "z" * 32):
        home, key = device_key(name)
        assert home == shard(name) == (key >> 56) % 64


def test_each_worker_takes_its_shards() -> None:
    names = [f"meter-{number}" for number in range(500)]
    whole = Seen()
    for name in names:
        whole.judge(device_key(name)[1], 1000, 1)
    for segment in ((True, whole.snapshot()), (False, b"".join(record(device_key(n)[1], 1000, 1) for n in names))):
        parts = [Seen(), Seen()]
        for worker, part in enumerate(parts):
            part.load([segment], range(worker, 64, 2))
        assert len(parts[0]) + len(parts[1]) == len(whole)
        for name in names:
            home, key = device_key(name)
            assert parts[home % 2].judge(key, 1000, 1) == DUPLICATE


def test_the_digest_tells_other_bytes_apart() -> None:
    assert len({digest(bytes([number] * 16)) for number in range(200)}) == 200


def test_a_damaged_segment_is_refused() -> None:
    for segment in ((True, b"x" * 33), (False, b"x" * 17)):
        with pytest.raises(Invalid, match="expected a multiple of"):
            Seen().load([segment])


def test_a_snapshot_replaces_a_record_of_the_same_device() -> None:
    # The record knows only the report of slot 1000, the snapshot also those of later slots. These must stay counted.
    whole = Seen()
    for slot in range(1000, 1010):
        whole.judge(7, slot, 1)
    resumed = Seen()
    resumed.load([(False, record(7, 1000, 1)), (True, whole.snapshot())])
    assert len(resumed) == 1
    assert resumed.snapshot() == whole.snapshot()
    resumed.load([(False, record(9, 1000, 1)), (True, whole.snapshot())])
    assert [resumed.judge(7, slot, 1) for slot in range(1000, 1010)] == [UNVERIFIED] * 7 + [DUPLICATE] * 3
    assert resumed.judge(9, 1000, 1) == DUPLICATE


def test_new_devices_are_looked_up_once_they_are_more_than_a_64th() -> None:
    seen = Seen()
    column, words = seen.look_up(np.array([5], dtype=np.uint64))
    assert (column.tolist(), words.tolist()) == ([-1], [[0]] * 4)
    for number in range(128):
        seen.judge(1000 + number, 7, 1)
    seen.settle()
    # Of these keys, one lies below the known ones, two are known, and two lie above.
    keys = np.array([3, 1000, 1127, 1128, 1 << 60], dtype=np.uint64)
    assert seen.look_up(keys)[0].tolist() == [-1, 0, 127, -1, -1]
    for number, found in ((1, [-1]), (2, [-1]), (3, [0])):
        seen.judge(10 * number, 7, 1)
        seen.settle()
        assert seen.look_up(np.array([10], dtype=np.uint64))[0].tolist() == found


@pytest.mark.parametrize("gap", [1, 2, 31, 32, 33, 62, NEWER])
def test_many_newer_reports_at_once_are_what_they_are_one_by_one(gap: int) -> None:
    """One device has reported in all 96 slots of the window, one in four of them, one in one.

    `newer` gives the same words as `Seen.judge`.
    """
    histories = [range(1000, 1096), [1000, 1003, 1064, 1095], [1095]]
    seen = Seen()
    for key, slots in enumerate(histories):
        for slot in slots:
            seen.judge(key, slot, (slot * 7919 + key) & 0x1FFFFF)
    seen.settle()
    keys, slots, codes = np.arange(3, dtype=np.uint64), np.full(3, 1095 + gap), np.arange(3, dtype=np.uint64) + 9
    column, words = seen.look_up(keys)
    assert newest_slots(words).tolist() == [1095] * 3
    many = newer(words, slots, codes, np.arange(3))
    for key in range(3):
        assert seen.judge(key, 1095 + gap, key + 9) == COUNTED
    assert seen.look_up(keys)[1].tolist() == many.tolist()
    assert column.tolist() == [0, 1, 2]


@pytest.mark.parametrize("reports", [[1], [1, 2], [1, 2, 3], [1, 3, 7, 30], [33, 34, 35, 62, 63], [63]])
def test_several_newer_reports_of_a_device_are_what_they_are_one_by_one(reports: list[int]) -> None:
    """Three devices have sent one report so far, one device 96. Then each sends one or several newer reports."""
    seen = Seen()
    for key, slots in enumerate(([1095], range(1000, 1096), [1095], [1095])):
        for slot in slots:
            seen.judge(key, slot, slot & 0x1FFFFF)
    seen.settle()
    of_device = [reports, reports, [5], [2, 60]]
    keys = np.arange(4, dtype=np.uint64)
    slots = np.array([1095 + step for steps in of_device for step in steps])
    codes = np.arange(len(slots), dtype=np.uint64) + 9
    starts = np.cumsum([0, *map(len, of_device)])[:-1]
    many = newer(seen.look_up(keys)[1], slots, codes, starts)
    owners = [key for key, steps in enumerate(of_device) for _ in steps]
    for key, slot, code in zip(owners, slots.tolist(), codes.tolist(), strict=True):
        assert seen.judge(key, slot, code) == COUNTED
    assert seen.look_up(keys)[1].tolist() == many.tolist()


@pytest.mark.parametrize("added", [3, 500])
def test_new_devices_are_written_as_they_are_judged(added: int) -> None:
    """A few new devices wait outside the sorted words, and many are merged into them.

    In both cases, the state equals that of devices whose reports are judged one by one.
    """
    fast, slow = Seen(), Seen()
    for key in range(1, 1001):
        for seen in (fast, slow):
            seen.judge(2 * key, 50, 7)
    fast.settle()
    keys = np.arange(1, 2 * added, 2, dtype=np.uint64)
    slots, codes = np.full(added, 60), np.arange(added, dtype=np.uint64)
    column, _ = fast.look_up(keys)
    assert (column == -1).all()
    assert not fast.waits(keys).any()
    fast.write(column, newer(unseen(keys, slots), slots, codes, np.arange(added)))
    assert fast.waits(keys).all() == (added == 3)
    assert {slow.judge(key, 60, code) for key, code in zip(keys.tolist(), codes.tolist(), strict=True)} == {COUNTED}
    assert fast.snapshot() == slow.snapshot()
