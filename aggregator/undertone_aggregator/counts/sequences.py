"""Missing reports: counts reports that devices drew and that never arrived, by sequence numbers; 24 bytes per device.

The state of a device is its newest counted slot t, with the sequence number n of that report, and the number of its
missing reports.

- A report for a slot u > t with number m > n shows that m - n - 1 reports were drawn between the two and have not
  arrived. At most u - t - 1 are counted, because a device draws once in a slot.
- A number that goes back, m <= n, comes from a ledger that was begun anew. It shows m - 1 missing reports, of which at
  most u - t - 1 are counted, too.
- A report for an older slot with a smaller number is one of the device's missing reports. If the device has none, it
  changes nothing: so no device's numbers can hide another device's missing reports.
- The first report of a device shows m - 1 missing reports, if the campaign has had so many slots.

Three words of 64 bits: the device's key; the newest slot and its number; the number of missing reports. Only counted
reports are used. A refused report is in the counter of its outcome, and leaves a gap in the numbers.
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
# New devices wait in a dictionary until there are enough of them for a merge into the sorted words.
_YOUNG = 4096

CLOSES = -1


def step(newest: int, number: int, slot: int, sequence: int) -> int:
    """Return how many missing reports a counted report shows, or `CLOSES` if it may be one that was missing so far.

    ``newest``, ``number``: the slot and the sequence number of the device's newest report.
    """
    if slot > newest:
        return min(sequence - number - 1 if sequence > number else max(sequence - 1, 0), slot - newest - 1)
    return CLOSES if slot < newest and sequence < number else 0


def start(first_slot: int, slot: int, sequence: int) -> int:
    """Return how many missing reports a device's first report shows; 0 if its number exceeds the campaign's slots."""
    return sequence - 1 if 0 < sequence <= slot - first_slot + 1 else 0


class Sequences:
    """The newest sequence number and the missing reports of all devices."""

    def __init__(self) -> None:
        # Device's key -> its other two words: the newest slot with its number, and the number of missing reports.
        self._young: dict[int, tuple[int, int]] = {}
        self._set(np.empty((3, 0), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._keys) + len(self._young)

    def observe(self, key: int, first_slot: int, slot: int, sequence: int) -> int:
        """Remember a counted report.

        Return how many missing reports it shows, or `CLOSES` if it is one that was missing so far. ``first_slot``: the
        campaign's first slot.
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

    def observe_all(
        self, keys: NDArray[np.uint64], slots: NDArray[np.int64], numbers: NDArray[np.int64], first_slot: int
    ) -> tuple[NDArray[np.bool_], bytes]:
        """Remember the reports of those devices whose reports [n] here follow each other without a gap.

        Without a gap means: each report is for a later slot than the device's report before it, and has the next
        sequence number. Then none of the device's reports is missing in between. The first report of a new device also
        counts as following if it shows nothing missing, see `start`.

        ``keys`` ascend, and each device's reports are in their order. ``first_slot``: the campaign's first slot. Return
        (a mask [n] of the remembered reports, the records of their devices).
        """
        self._merge()
        if not len(keys):
            return np.zeros(0, dtype=bool), b""
        first = np.ones(len(keys), dtype=bool)
        first[1:] = keys[1:] != keys[:-1]
        starts = np.flatnonzero(first)
        devices, reports = keys[starts], np.diff(starts, append=len(keys))
        at, is_known = self._look_up(devices)
        # Compare each report with the report of the same device before it. For a device's first report of this batch,
        # that is the report remembered from earlier batches.
        follows = np.empty(len(keys), dtype=bool)
        follows[1:] = (slots[1:] > slots[:-1]) & (numbers[1:] == numbers[:-1] + 1)
        slot, number, word = slots[starts], numbers[starts], np.zeros(len(starts), dtype=np.uint64)
        word[is_known] = self._words[1, at[is_known]]
        newest, before = (word >> np.uint64(32)).astype(np.int64), (word & np.uint64(_U32)).astype(np.int64)
        begins = (number == 1) | (number > slot - first_slot + 1)
        follows[starts] = np.where(is_known, (slot > newest) & (number == before + 1), begins)
        whole = np.logical_and.reduceat(follows, starts)
        new = devices[whole & ~is_known]
        if len(new):
            blank = np.zeros_like(new)
            where = np.searchsorted(self._words[0], new)
            self._set(np.insert(self._words, where, np.stack([new, blank, blank]), axis=1))
            at, _ = self._look_up(devices)
        at, last = at[whole], (starts + reports - 1)[whole]
        self._words[1, at] = slots[last].astype(np.uint64) << np.uint64(32) | numbers[last].astype(np.uint64)
        return np.repeat(whole, reports), self._words[:, at].T.astype("<u8").tobytes()

    def _look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the columns [n] of devices in the sorted words, and a mask of the devices that are there.

        The column of a device that is not there is undefined.
        """
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
        at = np.minimum(np.searchsorted(self._words[0], keys), len(self._keys) - 1)
        return at, self._words[0, at] == keys

    def record(self, key: int) -> bytes:
        """Return the record of a device's state."""
        words = self._young.get(key)
        if words is None:
            at = bisect_left(self._keys, key)
            words = self._words_of[at], self._open_of[at]
        return _RECORD.pack(key, *words)

    def snapshot(self) -> bytes:
        """Return the records of all devices."""
        self._merge()
        return self._words.T.astype("<u8").tobytes()

    def load(self, segments: Iterable[tuple[bool, bytes]], shards: Iterable[int] = range(SHARDS)) -> None:
        """Load a store's segments, in the order in which they were written. Only devices of these shards are loaded.

        A later record of a device replaces an earlier one. Raises Invalid for a damaged segment.
        """
        is_loaded = np.zeros(256, dtype=bool)
        is_loaded[[value for value in range(256) if value % SHARDS in set(shards)]] = True
        rows = [self._words]
        for _, data in segments:
            if len(data) % RECORD_BYTES:
                raise Invalid(
                    f"the store is damaged: a record of sequence numbers has {len(data)} bytes,"
                    f" expected a multiple of {RECORD_BYTES}"
                )
            words = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(-1, 3).T
            rows.append(words[:, is_loaded[(words[0] >> np.uint64(56)).astype(np.intp)]])
        words = np.concatenate(rows, axis=1)
        # Of several records of a device the last one counts. `unique` finds the first, so the order is reversed.
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
        # Single words are read and written through memoryviews, several times faster than through numpy scalars.
        self._keys, self._words_of, self._open_of = (memoryview(row) for row in self._words)


class MissingReports:
    """Missing reports by group, and by the slot in which each was noticed.

    ``missing``: the missing reports that the store holds at the start.
    """

    def __init__(self, missing: Mapping[tuple[str, int], int] | None = None) -> None:
        self._open: dict[str, Counter[int]] = {}
        for (group, slot), n in (missing or {}).items():
            self._open.setdefault(group, Counter())[slot] += n
        self._newest = {group: max(slots) for group, slots in self._open.items()}

    def open(self) -> dict[tuple[str, int], int]:
        """Return all missing reports, in the form of ``missing``."""
        return {(group, slot): n for group, slots in self._open.items() for slot, n in slots.items()}

    def note(self, missing: int, group: str, slot: int) -> list[tuple[tuple[str, int], int]]:
        """Note what a report for ``slot`` shows, and return the changes of the counts: ((group, slot), amount).

        ``missing`` > 0: so many reports before this one are missing. -1: this report itself was counted as missing, so
        one is taken off the count of a later slot, if any is left there.
        """
        slots = self._open.setdefault(group, Counter())
        if missing > 0:
            slots[slot] += missing
            self._newest[group] = max(slot, self._newest.get(group, slot))
            return [((group, slot), missing)]
        # The report that arrived was missing. That was noticed at a later slot, but the store does not say at which
        # one. So the next later slot at which a missing report was noticed is taken.
        newest = self._newest.get(group, slot)
        # If many reports are missing, such a slot is near. So the few slots that follow are tried first, and then all
        # slots at which a missing report was noticed.
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
