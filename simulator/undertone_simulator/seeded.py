"""Seeded entropy, for simulations only: every word is addressed by (seed, device, slot, word).

64 bits for device number d and word pair i of a slot are mix(start_i + (d + 1) G) mod 2^64, with G and mix of
SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) and start_i from shake_256(seed, slot, refill). The low half is word 2i,
the high half word 2i + 1. So neither chunking nor order can matter, and the bytes that a scalar `Entropy` reads are
the words that numpy computes for millions of devices. Predictable by design: no device may reach it.
"""

import hashlib
import struct
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertone_shared.entropy import BUFFER_BYTES, EntropyError
from undertone_shared.mechanism import check_integer

Words = NDArray[np.uint32]
Pairs = NDArray[np.uint64]
Kind = TypeVar("Kind", bound=np.generic)

# Words that one refill of a device's buffer holds.
WORDS = BUFFER_BYTES // 4
_PAIRS = WORDS // 2
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST = np.uint64(31)


def _mix(z: Pairs, spare: Pairs) -> Pairs:
    """The finaliser of SplitMix64, in place; ``spare`` is memory of the same shape."""
    for shift, factor in _ROUNDS:
        np.right_shift(z, shift, out=spare)
        z ^= spare
        z *= factor
    np.right_shift(z, _LAST, out=spare)
    z ^= spare
    return z


@lru_cache(maxsize=256)
def _starts(seed: int, slot: int, refill: int) -> Pairs:
    digest = hashlib.shake_256(b"undertone seeded" + struct.pack("<QQQ", seed, slot, refill)).digest(8 * _PAIRS)
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


class Memory:
    """Named arrays that are allocated once and used again for every block."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str, size: int, kind: "type[Kind]") -> "NDArray[Kind]":
        """An array of ``size`` elements with whatever is in it; the same memory whenever ``name`` is."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = self._arrays[name] = np.empty(size, dtype=kind)
        return array[:size]


class SeededWords:
    """The words of one slot's first refill for many devices; see `Seeded.words`."""

    def __init__(self, starts: Pairs, devices: Pairs) -> None:
        self._starts = starts
        self._devices = devices

    def __len__(self) -> int:
        return len(self._devices)

    def block(self, index: "slice | NDArray[np.intp]", memory: Memory) -> "SeededBlock":
        """The words of the devices at ``index``, kept in ``memory``: valid until the next block is asked for."""
        return SeededBlock(self._starts, self._devices[index], memory)


class SeededBlock:
    """The words of some of the devices, computed when asked for."""

    def __init__(self, starts: Pairs, devices: Pairs, memory: Memory) -> None:
        self._starts = starts
        self._memory = memory
        self._positions = memory("positions", len(devices), np.uint64)
        np.add(devices, np.uint64(1), out=self._positions)
        self._positions *= _STEP
        self._columns: list[Words] = []

    def column(self, word: int) -> Words:
        """Word number ``word`` of every device, shape [devices]. Raises EntropyError from word 64 on."""
        while word >= len(self._columns):
            self._extend()
        return self._columns[word]

    def _extend(self) -> None:
        word = len(self._columns)
        if word >= WORDS:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        size = len(self._positions)
        z = self._memory("mixed", size, np.uint64)
        np.add(self._positions, self._starts[word >> 1], out=z)
        halves = _mix(z, self._memory("spare", size, np.uint64)).astype("<u8", copy=False).view("<u4")
        for half in (0, 1):
            column = self._memory(f"word {word + half}", size, np.uint32)
            column[:] = halves[half::2]
            self._columns.append(column)


class SeededSource:
    """A byte source for one device's `Entropy`: ``seek`` a slot, then draw in it."""

    def __init__(self, seed: int, device: int) -> None:
        self._seed = seed
        self._position = np.array([(device + 1) % 2**64], dtype=np.uint64) * _STEP
        self.seek(0)

    def seek(self, slot: int) -> None:
        """The next byte is the first one of ``slot``."""
        self._slot = check_integer("slot", slot, 0, 2**64 - 1)
        self._refill = 0
        self._bytes = b""

    def __call__(self, n: int) -> bytes:
        """The next ``n`` bytes of the slot."""
        while len(self._bytes) < n:
            pairs = self._position + _starts(self._seed, self._slot, self._refill)
            _mix(pairs, np.empty_like(pairs))
            self._bytes += pairs.astype("<u8").tobytes()
            self._refill += 1
        taken, self._bytes = self._bytes[:n], self._bytes[n:]
        return taken


class Seeded:
    """All entropy of a simulation with one ``seed``, 0 to 2^64 - 1; devices and slots are numbers below 2^64."""

    def __init__(self, seed: int) -> None:
        self.seed = check_integer("seed", seed, 0, 2**64 - 1)

    def source(self, device: int) -> SeededSource:
        """What `Entropy(source)` reads for device number ``device``. Raises Invalid."""
        return SeededSource(self.seed, check_integer("device", device, 0, 2**64 - 1))

    def words(self, slot: int, devices: "NDArray[np.integer] | range") -> SeededWords:
        """The words of ``slot`` for these device numbers, as `vectorised` takes them. Raises Invalid."""
        starts = _starts(self.seed, check_integer("slot", slot, 0, 2**64 - 1), 0)
        return SeededWords(starts, np.asarray(devices, dtype=np.uint64))
