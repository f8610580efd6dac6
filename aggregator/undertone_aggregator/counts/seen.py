"""Deduplication: remembers which of its newest 96 slots each device has reported, in 32 bytes per device.

Four words of 64 bits: the device's key; the newest slot and the upper 32 bits of the window; the lower 64 bits of the
window; digests of 21 bits of the three newest reports. Bit i of the window is set if slot newest - i was counted.
"""

import hashlib
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS

COUNTED = "counted"
DUPLICATE = "duplicate"
CONFLICT = "conflict"
UNVERIFIED = "duplicate_unverified"

WINDOW = 96
DIGESTS = 3
_DIGEST_BITS = 21
_DIGEST = (1 << _DIGEST_BITS) - 1
# The digest that stands for an unknown one: the report was counted, but its digest was not kept.
UNKNOWN = 0
_WINDOW = (1 << WINDOW) - 1
_DIGESTS = (1 << DIGESTS * _DIGEST_BITS) - 1
_LOW = (1 << 64) - 1
_U32 = 0xFFFFFFFF
_RECORD = struct.Struct("<QII")
RECORD_BYTES = _RECORD.size
_RECORDS = np.dtype([("key", "<u8"), ("slot", "<u4"), ("code", "<u4")])
# The largest step in slots, from a device's newest report to any later one, that `newer` handles: a shift by 64 bits or
# more is undefined in numpy.
NEWER = 63
# New devices wait in a dictionary until there are enough of them for a merge into the sorted words.
_YOUNG = 4096

Entry = tuple[int, int, int]


def device_key(device: str) -> tuple[int, int]:
    """Return (shard, key), both from one SHA-256 of the name.

    Among 10^6 devices, two have the same 64-bit key with a probability below 3e-8.
    """
    head = hashlib.sha256(device.encode()).digest()[:8]
    return head[0] % SHARDS, int.from_bytes(head, "big")


def digest(payload: bytes) -> int:
    """Return 21 bits that distinguish a repeated report from a different one.

    These bits only decide whether an alarm is raised. Whether a report is counted does not depend on them.
    """
    return zlib.crc32(payload) & _DIGEST or _DIGEST


def digest_bytes(is_snapshot: bool, data: bytearray) -> NDArray[np.uint8]:
    """Return the bytes of the digests in a segment's data, as a view that changes it."""
    if is_snapshot:
        # The digests are the last of the four words of each device. A segment of another length has further bytes after
        # them.
        devices = len(data) // 32
        return np.frombuffer(data, dtype=np.uint8)[24 * devices : 32 * devices]
    rows = len(data) // RECORD_BYTES
    # The code is the last word of a record.
    at = RECORD_BYTES - _RECORDS["code"].itemsize
    return np.frombuffer(data, dtype=np.uint8)[: rows * RECORD_BYTES].reshape(rows, RECORD_BYTES)[:, at:]


def record(key: int, slot: int, code: int) -> bytes:
    """Return the record of a counted report, 16 bytes. The store keeps such records until a snapshot replaces them."""
    return _RECORD.pack(key, slot, code)


class Seen:
    """The state of all devices. ``judge`` counts each of a device's newest 96 slots exactly once, and no older slot."""

    def __init__(self) -> None:
        self._young: dict[int, Entry] = {}
        self._set(np.empty((4, 0), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self._keys) + len(self._young)

    @property
    def nbytes(self) -> int:
        """Memory of the sorted words, in bytes.

        New devices that wait for a merge into these words are left out: at most 4096, or 1/64 of all devices if that is
        more.
        """
        return self._words.nbytes

    def judge(self, key: int, slot: int, code: int) -> str:
        """Decide whether this report is the first of its device and slot, and record it only then.

        Returns ``counted`` for the first; ``duplicate`` for the same bytes again; ``conflict`` for other bytes;
        ``duplicate_unverified`` for a report that cannot be compared, or is older than the window.
        """
        row = self._young.get(key)
        at = -1
        if row is None:
            at = bisect_left(self._keys, key)
            if at == len(self._keys) or self._keys[at] != key:
                self._young[key] = (slot, 1, code)
                if len(self._young) > max(_YOUNG, len(self._keys) >> 6):
                    self._merge_young()
                return COUNTED
            head = self._heads[at]
            row = (head >> 32, (head & _U32) << 64 | self._lows[at], self._codes[at])
        newest, window, codes = row
        age = newest - slot
        if age < 0:
            window = (window << -age | 1) & _WINDOW if age > -WINDOW else 1
            row = (slot, window, (codes << _DIGEST_BITS | code) & _DIGESTS)
        elif age >= WINDOW:
            return UNVERIFIED
        else:
            newer = (window & ((1 << age) - 1)).bit_count()
            shift = newer * _DIGEST_BITS
            if window >> age & 1:
                if newer >= DIGESTS:
                    return UNVERIFIED
                known = codes >> shift & _DIGEST
                if known == UNKNOWN:
                    return UNVERIFIED
                return DUPLICATE if known == code else CONFLICT
            if newer < DIGESTS:
                newer_codes = codes & ((1 << shift) - 1)
                codes = (newer_codes | code << shift | codes >> shift << shift + _DIGEST_BITS) & _DIGESTS
            row = (newest, window | 1 << age, codes)
        if at < 0:
            self._young[key] = row
        else:
            self._heads[at] = row[0] << 32 | row[1] >> 64
            self._lows[at] = row[1] & _LOW
            self._codes[at] = row[2]
        return COUNTED

    def settle(self) -> None:
        """Once there are enough new devices, merge them into the sorted words, where `look_up` finds them."""
        if len(self._young) > len(self._keys) >> 6:
            self._merge_young()

    def look_up(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return (column or -1 [n], words [4, n]) of devices by key; -1: not in the sorted words."""
        if not len(self._keys):
            return np.full(len(keys), -1), np.zeros((4, len(keys)), dtype=np.uint64)
        column = np.minimum(np.searchsorted(self._words[0], keys), len(self._keys) - 1)
        words = self._words[:, column]
        return np.where(words[0] == keys, column, -1), words

    def waits(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which devices [n] were seen and are not in the sorted words yet, where `look_up` finds them."""
        return np.fromiter((key in self._young for key in keys.tolist()), bool, len(keys))

    def write(self, column: NDArray[np.int64], words: NDArray[np.uint64]) -> None:
        """Replace the words [4, n] of devices that `look_up` found; add those of new devices, whose column is -1."""
        found = column >= 0
        self._words[:, column[found]] = words[:, found]
        added = words[:, ~found]
        if added.shape[1] > len(self._keys) >> 6:
            self._insert(added[:, np.argsort(added[0])])
        else:
            for key, head, low, codes in added.T.tolist():
                self._young[key] = (head >> 32, (head & _U32) << 64 | low, codes)

    def snapshot(self) -> bytes:
        """Return the whole state: 32 bytes per device, little-endian words in the order that the module describes."""
        self._merge_young()
        return self._words.astype("<u8").tobytes()

    def load(self, segments: Iterable[tuple[bool, bytes]], shards: Iterable[int] = range(SHARDS)) -> None:
        """Load a store's segments, in the order in which they were written. Only devices of these shards are loaded.

        Raises Invalid for a damaged segment.
        """
        is_loaded = np.zeros(256, dtype=bool)
        is_loaded[[value for value in range(256) if value % SHARDS in set(shards)]] = True
        for is_snapshot, data in segments:
            row_bytes = 32 if is_snapshot else RECORD_BYTES
            if len(data) % row_bytes:
                raise Invalid(
                    f"the store is damaged: a record of reported slots has {len(data)} bytes,"
                    f" expected a multiple of {row_bytes}"
                )
            if is_snapshot:
                words = np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(4, -1)
                self._replace(words[:, is_loaded[(words[0] >> np.uint64(56)).astype(np.intp)]])
            else:
                for key, slot, code in _RECORD.iter_unpack(data):
                    if is_loaded[key >> 56]:
                        self.judge(key, slot, code)

    def _merge_young(self) -> None:
        if self._young:
            rows = [(k, n << 32 | w >> 64, w & _LOW, codes) for k, (n, w, codes) in sorted(self._young.items())]
            self._young.clear()
            self._insert(np.array(rows, dtype=np.uint64).T)

    def _replace(self, words: NDArray[np.uint64]) -> None:
        self._merge_young()
        self._set(self._words[:, ~np.isin(self._words[0], words[0])])
        self._insert(words[:, np.argsort(words[0])])

    def _insert(self, words: NDArray[np.uint64]) -> None:
        self._set(np.insert(self._words, np.searchsorted(self._words[0], words[0]), words, axis=1))

    def _set(self, words: NDArray[np.uint64]) -> None:
        self._words = np.ascontiguousarray(words)
        # Single words are read and written through memoryviews, several times faster than through numpy scalars.
        self._keys, self._heads, self._lows, self._codes = (memoryview(row) for row in self._words)


def unseen(keys: NDArray[np.uint64], slots: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words [4, n] of devices without a report.

    The newest slot in them is the one before ``slots`` (at least 1), so that `newer` can take a report for ``slots``.
    """
    blank = np.zeros_like(keys)
    return np.stack([keys, (slots - 1).astype(np.uint64) << np.uint64(32), blank, blank])


def newer(
    words: NDArray[np.uint64], slots: NDArray[np.int64], codes: NDArray[np.uint64], starts: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the words [4, m] of m devices after reports [n] for slots that are 1 to `NEWER` after their newest slots.

    The reports of a device stand together, in ascending order of their slots; ``starts`` [m]: where those of each
    device begin. The function does for such reports what `Seen.judge` does for one report, but as arrays.
    """
    keys, heads, lows, digests = words
    reports = np.diff(starts, append=len(slots))
    last = starts + reports - 1
    newest = slots[last]
    # Each report sets a bit, counted from the window's lowest bit, which stands for the device's newest slot.
    bits = np.uint64(1) << (np.repeat(newest, reports) - slots).astype(np.uint64)
    step = newest.astype(np.uint64) - (heads >> np.uint64(32))
    high = (heads & np.uint64(_U32)) << step | lows >> np.uint64(64) - step
    after = np.empty_like(words)
    after[0] = keys
    after[1] = newest.astype(np.uint64) << np.uint64(32) | high & np.uint64(_U32)
    after[2] = lows << step | np.bitwise_or.reduceat(bits, starts)
    for back in range(min(DIGESTS, int(reports.max())) - 1, -1, -1):
        at = np.maximum(last - back, starts)
        digests = np.where(reports > back, digests << np.uint64(_DIGEST_BITS) | codes[at], digests)
    after[3] = digests & np.uint64(_DIGESTS)
    return after


def newest_slots(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the newest slot [m] of devices with these words [4, m]."""
    newest: NDArray[np.int64] = (words[1] >> np.uint64(32)).astype(np.int64)
    return newest


def digests(payloads: Iterable[bytes], count: int) -> NDArray[np.uint64]:
    """Return `digest` of each payload; there are ``count`` payloads."""
    codes = np.fromiter(map(zlib.crc32, payloads), np.uint64, count) & np.uint64(_DIGEST)
    codes[codes == UNKNOWN] = _DIGEST
    return codes


def records(keys: NDArray[np.uint64], slots: NDArray[np.int64], codes: NDArray[np.uint64]) -> bytes:
    """Return the concatenated `record` of each counted report."""
    table = np.empty(len(keys), dtype=_RECORDS)
    table["key"], table["slot"], table["code"] = keys, slots, codes
    return table.tobytes()
