"""Partial: the counts of reports, as integer histograms of symbols with an associative, commutative merge.

For streams it holds vectors of moments, which add up in the same way (`undertone_aggregator.counts.moments`).

One process, several processes and the store use the same object. Estimates use nothing else of a report. (To find
duplicates, the server also keeps the slots and digests of a device's newest reports.)
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_shared.errors import Invalid
from undertone_shared.report import STREAM

Counts = NDArray[np.int64]

# Name of the group of all devices together. The reports of devices that are in no other group are counted under it.
EVERYBODY = "all"
LARGEST_CELLS = 1 << 22
_WIDTHS = (1, 2, 4, 8)
_TYPES = tuple(np.dtype(f"<u{width}") for width in _WIDTHS)
_INDEX = np.dtype("<u4")
_HEAD = struct.Struct("<BI")
_SPARSE = 4
_NOTHING: Counts = np.zeros(0, dtype=np.int64)


class Key(NamedTuple):
    """The key of a histogram. ``fingerprint``: the epoch's; ``kind``: see `undertone_shared.report`."""

    campaign: str
    fingerprint: bytes
    kind: int
    group: str
    slot: int


class Partial(Mapping[Key, Counts]):
    """Histograms [symbols] by `Key`. An absent key means no reports."""

    def __init__(self, counts: Mapping[Key, Counts] | None = None) -> None:
        self._counts: dict[Key, Counts] = dict(counts or {})

    def __getitem__(self, key: Key) -> Counts:
        return self._counts[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: Key, symbol: int, symbols: int) -> None:
        """Count one report of ``symbol`` out of ``symbols``, in place."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = np.zeros(symbols, dtype=np.int64)
        counts[symbol] += 1

    def add_counts(self, key: Key, added: Counts) -> None:
        """Add a whole histogram, in place."""
        counts = self._counts.get(key)
        self._counts[key] = added if counts is None else add_counts(counts, added)

    def add_moments(self, key: Key, added: Iterable[tuple[int, int]], cells: int) -> None:
        """Add (cell, amount) to a stream's vector of moments of length ``cells``, in place."""
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = np.zeros(cells, dtype=np.int64)
        for cell, amount in added:
            counts[cell] += amount

    def merge(self, other: "Partial") -> "Partial":
        """Return the Partial of both sets of reports. Associative and commutative; the empty Partial is neutral.

        Raises Invalid for histograms of different lengths under one key, which no epoch produces.
        """
        return Partial.gather(chain(self.items(), other.items()))

    @staticmethod
    def gather(rows: Iterable[tuple[Key, Counts]]) -> "Partial":
        """Return the merge of many rows: histograms with equal keys are added. Raises Invalid as ``merge`` does."""
        merged: dict[Key, Counts] = {}
        for key, counts in rows:
            merged[key] = add_counts(merged[key], counts) if key in merged else counts
        return Partial(merged)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partial):
            return NotImplemented
        return self._counts.keys() == other._counts.keys() and all(
            np.array_equal(counts, other._counts[key]) for key, counts in self._counts.items()
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def reports(self) -> int:
        """Number of reports counted."""
        return sum(reports_in(key.kind, counts) for key, counts in self._counts.items())


def reports_in(kind: int, counts: Counts) -> int:
    """Return the number of reports in a histogram, or in a vector of moments, of this kind."""
    return int(counts[0] if kind == STREAM else counts.sum())


def add_counts(left: Counts, right: Counts) -> Counts:
    """Return the sum of two histograms. Raises Invalid for different lengths."""
    if left.shape != right.shape:
        raise Invalid(f"histograms have {len(left)} and {len(right)} cells, expected the same number")
    return left + right


def pack_counts(counts: Counts) -> bytes:
    """Pack a histogram: the number of its form (u8), the number of its cells (u32), then its counts.

    The counts are either all counts, or the indices (u32) and values of those that are not 0, whichever is shorter. The
    number of the form is log2 of a count's width in bytes, plus 4 if there are indices.
    """
    largest = int(counts.max(initial=0))
    width = next(i for i, size in enumerate(_WIDTHS) if largest < 1 << (8 * size))
    kind = f"<u{_WIDTHS[width]}"
    filled = np.flatnonzero(counts)
    if len(filled) * (4 + _WIDTHS[width]) < len(counts) * _WIDTHS[width]:
        body = filled.astype("<u4").tobytes() + counts[filled].astype(kind).tobytes()
        return struct.pack("<BI", width + _SPARSE, len(counts)) + body
    return struct.pack("<BI", width, len(counts)) + counts.astype(kind).tobytes()


def unpack_counts(data: bytes) -> Counts:
    """Return the histogram that `pack_counts` packed. Raises Invalid for anything else."""
    return unpack_each([data])[0]


def unpack_each(packed: Sequence[bytes]) -> list[Counts]:
    """Return the histograms that `pack_counts` packed. Those of equal form and length are unpacked together.

    Raises Invalid for anything else.
    """
    unpacked: list[Counts] = [_NOTHING] * len(packed)
    for places, table in unpack_tables(packed):
        for place, counts in zip(places, table, strict=True):
            unpacked[place] = counts
    return unpacked


def unpack_tables(packed: Sequence[bytes]) -> Iterator[tuple[list[int], Counts]]:
    """Yield (places in ``packed``, their histograms [n, cells]) for each form and length. Raises as `unpack_each`."""
    alike: dict[tuple[bytes, int], list[int]] = {}
    for place, data in enumerate(packed):
        alike.setdefault((data[:5], len(data)), []).append(place)
    for (head, _), places in alike.items():
        yield places, _table(head, [packed[place] for place in places])


def _table(head: bytes, packed: Sequence[bytes]) -> Counts:
    """Return histograms [n, cells] whose heads are equal and whose lengths are equal."""
    length = len(packed[0])
    if length < 5 or head[0] >= 2 * _SPARSE:
        raise Invalid("a histogram is damaged: it has no valid head")
    form, cells = _HEAD.unpack(head)
    size = _WIDTHS[form % _SPARSE]
    kind = _TYPES[form % _SPARSE]
    if cells > LARGEST_CELLS:
        raise Invalid(f"a histogram has {cells} cells, expected at most {LARGEST_CELLS}")
    rows = np.frombuffer(b"".join(packed), np.uint8).reshape(len(packed), length)
    if form < _SPARSE:
        if length != 5 + cells * size:
            raise Invalid(f"a histogram of {cells} cells has {length} bytes, expected {5 + cells * size}")
        return _numbers(rows[:, 5:], kind).astype(np.int64)
    filled, rest = divmod(length - 5, 4 + size)
    index = _numbers(rows[:, 5 : 5 + 4 * filled], _INDEX)
    # Indices ascend, so the last one is the largest.
    if rest or (filled and index[:, -1].max() >= cells) or (index[:, 1:] <= index[:, :-1]).any():
        raise Invalid(f"a sparse histogram of {cells} cells is damaged")
    counts = np.zeros((len(packed), cells), dtype=np.int64)
    counts[np.arange(len(packed))[:, None], index] = _numbers(rows[:, 5 + 4 * filled :], kind)
    return counts


def _numbers(rows: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return rows of bytes as rows of numbers."""
    numbers = np.frombuffer(rows.tobytes(), kind)
    return numbers.reshape(len(rows), rows.shape[1] // kind.itemsize)
