"""Sequence numbers: how many reports devices drew that never arrived, from the numbers in counted reports; 24 bytes
each.

For each device the newest counted slot t and the number n in that report are stored. A report for a slot u > t with
number m > n shows that m - n - 1 were drawn between and did not arrive, at most u - t - 1, because a device draws once
a slot. A number that decreases, m <= n, means a restarted ledger and shows m - 1. A report for an older slot with a
smaller number closes a gap of its own device. If the device has no open gap, the report changes nothing, so that one
device's numbers cannot hide another's gaps. The first report of a device shows m - 1, if the campaign is old enough for
that many.

There are three words of 64 bits: the device's key, (newest slot, its number), and the number of its missing reports.
Only counted reports are used: a refused report appears in its counter, and as a gap.
"""

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS

_RECORD = struct.Struct("<QQQ")
RECORD_BYTES = _RECORD.size
_U32 = 0xFFFFFFFF
# New devices wait in a dictionary until there are enough for a merge into the sorted words.
_YOUNG = 4096

CLOSES = -1


def step(newest: int, number: int, slot: int, sequence: int) -> int:
    """Return how many missing reports a counted report shows, or `CLOSES`.

    ``newest``, ``number``: the device's newest.
    """
    if slot > newest:
        return min(sequence - number - 1 if sequence > number else max(sequence - 1, 0), slot - newest - 1)
    return CLOSES if slot < newest and sequence < number else 0


def start(first_slot: int, slot: int, sequence: int) -> int:
    """Return how many missing reports a device's first report shows; 0 if its number exceeds the campaign's age."""
    return sequence - 1 if 0 < sequence <= slot - first_slot + 1 else 0


class Sequences:
    """The sequence state of all devices."""

    def __init__(self) -> None:
        # Key -> the other two words.
        self._young: dict[int, tuple[int, int]] = {}
        self._set(np.empty((3, 0), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._keys) + len(self._young)

    def observe(self, key: int, first_slot: int, slot: int, sequence: int) -> int:
        """Remember a counted report.

        Return how many missing reports it shows, `CLOSES` if it was missing itself, else 0.

        ``first_slot``: the campaign's first slot.
        """
        young = self._young.get(key)
        at = -1
        if young is None:
            at = bisect_left(self._keys, key)
            if at == len(self._keys) or self._keys[at] != key:
                missing = start(first_slot, slot, sequence)
                self._young[key] = slot << 32 | sequence, missing
                if len(self._young) > max(_YOUNG, len(self._keys) >> 6):
                    self._merge()
                return missing
            young = self._words_of[at], self._open_of[at]
        word, open_ones = young
        newest = word >> 32
        missing = step(newest, word & _U32, slot, sequence)
        if missing == CLOSES and not open_ones:
            missing = 0
        if slot > newest:
            word = slot << 32 | sequence
        if at < 0:
            self._young[key] = word, open_ones + missing
        else:
            self._words_of[at], self._open_of[at] = word, open_ones + missing
        return missing

    def expected(
        self, keys: NDArray[np.uint64], slots: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Return a mask [n] of reports of known devices whose reports are all newer and have consecutive numbers."""
        self._merge()
        mask = np.zeros(len(keys), dtype=bool)
        if not len(self._keys) or not len(keys):
            return mask
        order = np.argsort(keys, kind="stable")
        key, slot, number = keys[order], slots[order], numbers[order]
        first = np.ones(len(keys), dtype=bool)
        first[1:] = key[1:] != key[:-1]
        at = np.minimum(np.searchsorted(self._words[0], key), len(self._keys) - 1)
        word = self._words[1, at]
        # Each report is compared with the device's report before it, here or in the state.
        newest = np.where(first, (word >> np.uint64(32)).astype(np.int64), np.roll(slot, 1))
        before = np.where(first, (word & np.uint64(_U32)).astype(np.int64), np.roll(number, 1))
        next_one = (self._words[0, at] == key) & (slot > newest) & (number == before + 1)
        whole = np.logical_and.reduceat(next_one, np.flatnonzero(first))
        mask[order] = whole[np.cumsum(first) - 1]
        return mask

    def advance(self, keys: NDArray[np.uint64], slots: NDArray[np.int64], numbers: NDArray[np.int64]) -> bytes:
        """Remember the ``expected`` reports, each device's in their order; return the records."""
        words = slots.astype(np.uint64) << np.uint64(32) | numbers.astype(np.uint64)
        at = np.searchsorted(self._words[0], keys)
        self._words[1, at] = words
        return np.stack([keys, words, self._words[2, at]]).T.astype("<u8").tobytes()

    def record(self, key: int) -> bytes:
        """Return a device's state, encoded for the store."""
        words = self._young.get(key)
        if words is None:
            at = bisect_left(self._keys, key)
            words = self._words_of[at], self._open_of[at]
        return _RECORD.pack(key, *words)

    def snapshot(self) -> bytes:
        """Return the state of all devices: their records."""
        self._merge()
        return self._words.T.astype("<u8").tobytes()

    def load(self, segments: Iterable[bytes], shards: Iterable[int] = range(SHARDS)) -> None:
        """Load a store's segments of these shards, in the order of writing; a later record replaces an earlier one.

        Raises Invalid for a damaged segment.
        """
        mine = np.zeros(256, dtype=bool)
        mine[[value for value in range(256) if value % SHARDS in set(shards)]] = True
        rows = [self._words]
        for data in segments:
            if len(data) % RECORD_BYTES:
                raise Invalid(f"a segment of sequence numbers has {len(data)} bytes, expected whole rows")
            words = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 3).T
            rows.append(words[:, mine[(words[0] >> np.uint64(56)).astype(np.intp)]])
        words = np.concatenate(rows, axis=1)
        # The last of equal keys is kept, which is the first in reverse order.
        keys, at = np.unique(words[0, ::-1], return_index=True)
        self._set(np.concatenate([keys[np.newaxis], words[1:, ::-1][:, at]]))

    def _merge(self) -> None:
        if self._young:
            young = np.array(sorted((key, *words) for key, words in self._young.items()), dtype=np.uint64).T
            self._young.clear()
            at = np.searchsorted(self._words[0], young[0])
            self._set(np.insert(self._words, at, young, axis=1))

    def _set(self, words: NDArray[np.uint64]) -> None:
        self._words = np.ascontiguousarray(words)
        # Memoryviews read and write Python integers several times faster than numpy scalars.
        self._keys, self._words_of, self._open_of = (memoryview(row) for row in self._words)


class MissingReports:
    """Missing reports by group and slot in which they were noticed; ``known``: the store's numbers."""

    def __init__(self, known: Mapping[tuple[str, int], int] | None = None) -> None:
        self._open: dict[str, Counter[int]] = {}
        for (group, slot), n in (known or {}).items():
            self._open.setdefault(group, Counter())[slot] += n
        self._newest = {group: max(slots) for group, slots in self._open.items()}

    def open(self) -> dict[tuple[str, int], int]:
        """Return all missing reports, in the form of ``known``."""
        return {(group, slot): n for group, slots in self._open.items() for slot, n in slots.items()}

    def note(self, missing: int, group: str, slot: int) -> list[tuple[tuple[str, int], int]]:
        """Return the changes caused by a report for ``slot``: ((group, slot), amount)."""
        slots = self._open.setdefault(group, Counter())
        if missing > 0:
            slots[slot] += missing
            self._newest[group] = max(slot, self._newest.get(group, slot))
            return [((group, slot), missing)]
        # A missing report is noticed after its slot, so the closest later entry is the best guess.
        newest = self._newest.get(group, slot)
        # With many open entries the next one is near; with few, all of them are searched.
        near = range(slot + 1, min(newest, slot + len(slots)) + 1) if missing else ()
        later = next((noticed for noticed in near if slots[noticed] > 0), None)
        if missing and later is None and newest > slot + len(slots):
            later = min((noticed for noticed, n in slots.items() if noticed > slot and n > 0), default=None)
        if later is None:
            return []
        slots[later] -= 1
        if not slots[later]:
            del slots[later]
        return [((group, later), -1)]


def by_group(losses: Mapping[tuple[str, int], int]) -> dict[str, tuple[int, int]]:
    """Return group -> (missing reports, slot in which the oldest was noticed), from a store's losses."""
    totals: dict[str, tuple[int, int]] = {}
    for (group, slot), n in losses.items():
        if n > 0:
            total, oldest = totals.get(group, (0, slot))
            totals[group] = (total + n, min(oldest, slot))
    return totals
