import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertone_aggregator.counts.seen import (
    CONFLICT,
    COUNTED,
    DUPLICATE,
    UNVERIFIED,
    WINDOW,
    Seen,
    device_key,
    digest,
    record,
)
from undertone_shared.errors import Invalid
from undertone_shared.topics import shard

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1000, 1250), st.integers(0, 2)), max_size=150)


class Model:
    """The rules in the plainest words: everything is remembered, then forgotten by rule."""

    def __init__(self) -> None:
        self.counted: dict[int, dict[int, int]] = {}

    def judge(self, key: int, slot: int, code: int) -> str:
        mine = self.counted.setdefault(key, {})
        if mine and slot <= max(mine) - WINDOW:
            return UNVERIFIED
        if slot not in mine:
            mine[slot] = code
            return COUNTED
        if slot not in sorted(mine)[-3:]:
            return UNVERIFIED
        return DUPLICATE if mine[slot] == code else CONFLICT


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
    seen = Seen()
    for number in range(20_000):
        seen.judge(device_key(f"meter-{number}")[1], 1000, 1)
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
        with pytest.raises(Invalid, match="expected whole rows"):
            Seen().load([segment])


def test_a_snapshot_replaces_a_record_of_the_same_device() -> None:
    # The record is of an older report: what the snapshot counts after it must stay counted.
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
