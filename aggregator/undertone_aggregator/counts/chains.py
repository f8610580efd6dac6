"""Pairs of a device's slots on one chain, from which the covariance of two slots' means is estimated.

A *chain* is a sequence of reports of one device, each of which uses the noise of the one before. If a report at slot t
has the chain index i, and the campaign's lag is j, the *origin* of its chain is t - ij. Two reports are on one chain,
with no missed slot between them, iff their origins are equal: a chain that began later has a larger origin. (A chain
that a device continued over missed slots counts as two chains. The covariance of two reports across the gap is then
taken as 0.)
"""

import struct
from collections.abc import Iterable, Iterator

import numpy as np

from undertone_aggregator.counts.moments import LAGS
from undertone_shared.topics import SHARDS

_RECORD = struct.Struct("<QIq")
RECORD_BYTES = _RECORD.size
# A chain is forgotten once its newest report is more than this number of slots older than the device's newest report.
# So a late report can still be paired with its neighbours.
_KEPT = LAGS + 96
_WINDOW = (1 << (LAGS + 1)) - 1


def record(key: int, slot: int, origin: int) -> bytes:
    """Return the record of one counted report, as the store holds it for `Chains.load`."""
    return _RECORD.pack(key, slot, origin)


class Chains:
    """The chains of all devices: for each chain its newest slot, and which of its last 65 slots have reports."""

    def __init__(self) -> None:
        self._devices: dict[int, dict[int, tuple[int, int]]] = {}

    def observe(self, key: int, slot: int, origin: int) -> list[tuple[int, int]]:
        """Remember a report. Return (later slot, lag) of each pair that it forms with a remembered report of its chain.

        There is no pair for a report that is remembered already, or that is more than 64 slots older than the newest.
        """
        chains = self._devices.setdefault(key, {})
        newest, window = chains.get(origin, (slot, 0))
        if slot >= newest:
            window = window << (slot - newest) & _WINDOW
            newest, age = slot, 0
        else:
            age = newest - slot
        if age > LAGS or window >> age & 1:
            return []
        pairs = [(newest - min(age, other), abs(age - other)) for other in _ones(window) if other != age]
        chains[origin] = (newest, window | 1 << age)
        if len(chains) > 1:
            horizon = max(at for at, _ in chains.values()) - _KEPT
            for old in [o for o, (at, _) in chains.items() if at < horizon]:
                del chains[old]
        return pairs

    def snapshot(self) -> bytes:
        """Return the whole state as records."""
        return b"".join(
            record(key, newest - age, origin)
            for key, chains in self._devices.items()
            for origin, (newest, window) in chains.items()
            for age in reversed(list(_ones(window)))
        )

    def load(self, segments: Iterable[tuple[bool, bytes]], shards: Iterable[int] = range(SHARDS)) -> None:
        """Load a store's segments, in the order in which they were written. Only devices of these shards are loaded."""
        is_loaded = np.zeros(SHARDS, dtype=bool)
        is_loaded[list(shards)] = True
        for _, data in segments:
            for key, slot, origin in _RECORD.iter_unpack(data):
                if is_loaded[(key >> 56) % SHARDS]:
                    self.observe(key, slot, origin)

    def __len__(self) -> int:
        return len(self._devices)


def _ones(window: int) -> Iterator[int]:
    while window:
        low = window & -window
        yield low.bit_length() - 1
        window ^= low
