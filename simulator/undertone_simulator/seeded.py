"""Seeded random words, for simulations only: every word is a function of (seed, device, slot, word number).

A word is hash(device · G + key) mod 2^32, G = 0x9E3779B9: one round of xor-shift and multiply, a second key, another
round (the constants of a two-round 32-bit hash of low bias by Wellons, 2018). Each word number has its own two keys,
which are taken from shake_256(seed, slot, refill). So devices can be simulated in any order and in chunks of any size.
A single device's `Entropy` reads the same words that numpy computes for millions of devices. The words are predictable
by design: no real device may use them.
"""

import hashlib
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertone_shared.checks import check_integer
from undertone_shared.entropy import BUFFER_BYTES, EntropyError

Words = NDArray[np.uint32]
Index = NDArray[np.intp]
Kind = TypeVar("Kind", bound=np.generic)

# Number of words in one refill of a device's buffer.
WORDS = BUFFER_BYTES // 4
LARGEST_DEVICE = 2**32 - 1

_STEP = np.uint32(0x9E3779B9)
_FIRST = np.uint32(0x21F0AAAD)
_SECOND = np.uint32(0xD35A2D97)
_15 = np.uint32(15)
_16 = np.uint32(16)


class Memory:
    """Named arrays that are allocated once and reused for every block."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str, size: int, kind: "type[Kind]") -> "NDArray[Kind]":
        """Return an uninitialised array of ``size`` elements. Arrays of the same ``name`` share their memory."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            array = self._arrays[name] = np.empty(size, dtype=kind)
        return array[:size]


def _hash(positions: Words, key: "Words | np.uint32", other: "Words | np.uint32", spare: Words, out: Words) -> None:
    """Write words to ``out``; ``spare`` is memory of the same shape."""
    np.add(positions, key, out=out)
    np.right_shift(out, _16, out=spare)
    out ^= spare
    out *= _FIRST
    np.right_shift(out, _15, out=spare)
    out ^= spare
    out += other
    out *= _SECOND
    np.right_shift(out, _15, out=spare)
    out ^= spare


@lru_cache(maxsize=256)
def _keys(seed: int, slot: int, refill: int) -> Words:
    """Return two keys for each word of a refill, shape [2, WORDS]."""
    digest = hashlib.shake_256(b"undertone seeded" + struct.pack("<QQQ", seed, slot, refill)).digest(8 * WORDS)
    return np.frombuffer(digest, dtype="<u4").astype(np.uint32).reshape(2, WORDS)


class SeededWords:
    """The words of one slot's first refill for some devices; see `Seeded.words`."""

    def __init__(self, keys: Words, positions: Words) -> None:
        self.keys = keys
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, index: "slice | Index") -> "SeededWords":
        """Return the words of the devices at ``index``, in that order."""
        return SeededWords(self.keys, self.positions[index])

    def column(self, word: "int | Index", memory: Memory, out: Words) -> None:
        """Write word number ``word`` (one number, or one per device) to ``out``.

        Raises EntropyError if ``word`` is 64 or more.
        """
        if np.max(word, initial=0) >= WORDS:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        spare = memory("spare", len(out), np.uint32)
        _hash(self.positions, self.keys[0, word], self.keys[1, word], spare, out)


class SlotWords:
    """The words of the first refills of several slots, one slot for each entry; see `Seeded.words_of_slots`."""

    def __init__(self, keys: Words, rows: Index, positions: Words) -> None:
        # The keys [2, WORDS, slots]; entry i is the device at ``positions[i]`` in the slot number ``rows[i]``.
        self._keys = keys
        self._rows = rows
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def part(self, index: "slice | Index") -> "SlotWords":
        """Return the words of the entries at ``index``, in that order."""
        return SlotWords(self._keys, self._rows[index], self._positions[index])

    def column(self, word: "int | Index", memory: Memory, out: Words) -> None:
        """Write one word of every entry to ``out``, as `SeededWords.column` does."""
        if np.max(word, initial=0) >= WORDS:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        first, second = self._keys[:, word, self._rows]
        _hash(self._positions, first, second, memory("spare", len(out), np.uint32), out)


class Buffers:
    """`undertone_shared.entropy.Entropy` for many devices in one slot, each with its own position in its words.

    The first buffers are already filled. ``failed`` marks the devices whose buffer ran out within a draw: their values
    must not be used.
    """

    def __init__(self, seed: int, slot: int, positions: Words) -> None:
        self.failed = np.zeros(len(positions), dtype=np.bool_)
        self._seed = seed
        self._slot = slot
        self._positions = positions
        # For each device: the index of its next word, counted over all refills of the slot, and the index at which its
        # buffer ends.
        self._next = np.zeros(len(positions), dtype=np.int64)
        self._end = np.full(len(positions), WORDS)
        self._keys = _keys(seed, slot, 0)

    def refill(self, index: Index) -> None:
        """Discard the rest of the buffers of the devices at ``index``."""
        self._next[index] = self._end[index]
        self._end[index] += WORDS

    def reserve(self, index: Index, words: int) -> None:
        """Refill the buffers at ``index`` that have fewer than ``words`` words."""
        self.refill(index[self._end[index] - self._next[index] < words])

    def below(self, index: Index, n: int) -> Words:
        """Draw a uniform integer in [0, n), 1 <= n <= 2^30, for each device at ``index``, as `Entropy.below` does."""
        mask = np.uint32((1 << (n - 1).bit_length()) - 1)
        value = self._words(index) & mask
        waiting = np.flatnonzero(value >= n)
        while len(waiting):
            again = self._words(index[waiting]) & mask
            value[waiting] = again
            waiting = waiting[again >= n]
        return value

    def _words(self, index: Index) -> Words:
        at = self._next[index]
        dry = at >= self._end[index]
        self._next[index] = at + 1
        last = int(at.max(initial=0))
        while last >= self._keys.shape[1]:
            refill = self._keys.shape[1] // WORDS
            self._keys = np.concatenate((self._keys, _keys(self._seed, self._slot, refill)), axis=1)
        words = np.empty(len(index), dtype=np.uint32)
        keys = self._keys[:, at]
        _hash(self._positions[index], keys[0], keys[1], np.empty_like(words), words)
        if dry.any():
            self.failed[index[dry]] = True
            # A word of zero is accepted for any n, so the draw ends.
            words[dry] = 0
        return words


class SeededSource:
    """A byte source for one device's `Entropy`: call ``seek`` for a slot, then draw in it."""

    def __init__(self, seed: int, device: int) -> None:
        self._seed = seed
        self._position = np.array([device], dtype=np.uint32) * _STEP
        self.seek(0)

    def seek(self, slot: int) -> None:
        """Set the next byte to the first one of ``slot``."""
        self._slot = _checked(slot)
        self._refill = 0
        self._bytes = b""

    def __call__(self, n: int) -> bytes:
        """Return the next ``n`` bytes of the slot."""
        while len(self._bytes) < n:
            key, other = _keys(self._seed, self._slot, self._refill)
            words = np.empty_like(key)
            _hash(self._position, key, other, np.empty_like(key), words)
            self._bytes += words.astype("<u4").tobytes()
            self._refill += 1
        taken, self._bytes = self._bytes[:n], self._bytes[n:]
        return taken


class Seeded:
    """All random words of a simulation with one ``seed``, 0 to 2^64 - 1. Devices are numbers below 2^32."""

    def __init__(self, seed: int) -> None:
        self.seed = check_integer("seed", seed, 0, 2**64 - 1)

    def source(self, device: int) -> SeededSource:
        """Return the byte source of `Entropy(source)` for device number ``device``. Raises Invalid."""
        return SeededSource(self.seed, check_integer("device", device, 0, LARGEST_DEVICE))

    def words(self, slot: int, devices: "Sequence[int] | NDArray[np.integer]") -> SeededWords:
        """Return the words of ``slot`` for these device numbers, as `vectorised` takes them. Raises Invalid."""
        return self.words_at(slot, positions(devices))

    def words_at(self, slot: int, places: Words) -> SeededWords:
        """Return the `words` of devices with these `positions`. Raises Invalid."""
        return SeededWords(_keys(self.seed, _checked(slot), 0), places)

    def words_of_slots(self, slots: Sequence[int], rows: Index, places: Words) -> SlotWords:
        """Return the words of the devices with these `positions`, each in the slot ``slots[row]``. Raises Invalid."""
        keys = np.stack([_keys(self.seed, _checked(slot), 0) for slot in slots], axis=-1)
        return SlotWords(keys, rows, places)

    def buffers(self, slot: int, devices: "Sequence[int] | NDArray[np.integer]") -> Buffers:
        """Return the entropy of these device numbers in ``slot``, as `vectorised_stream` takes it. Raises Invalid."""
        return Buffers(self.seed, _checked(slot), positions(devices))


def _checked(slot: int) -> int:
    return check_integer("slot", slot, 0, 2**64 - 1)


def positions(devices: "Sequence[int] | NDArray[np.integer]") -> Words:
    """Return the positions of these device numbers in every slot's words: device · G mod 2^32. Raises Invalid."""
    numbers = np.asarray(devices, dtype=np.int64)
    if len(numbers):
        check_integer("device", int(numbers.min()), 0, LARGEST_DEVICE)
        check_integer("device", int(numbers.max()), 0, LARGEST_DEVICE)
    return numbers.astype(np.uint32) * _STEP
