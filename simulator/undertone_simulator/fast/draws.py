"""Random words of many devices, and bounded integers drawn from them: `undertone_shared.entropy` in numpy."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_shared.entropy import EntropyError
from undertone_simulator.seeded import Memory

Unsigned = NDArray[np.uint32]
Index = NDArray[np.intp]
Bound = np.uint32 | Unsigned


class Words(Protocol):
    """Random words of many devices; each device has its own sequence, starting with word 0."""

    def __len__(self) -> int: ...

    def part(self, index: "slice | Index") -> "Words":
        """Return the words of the devices at ``index``, in that order."""
        ...

    def column(self, word: "int | Index", memory: Memory, out: Unsigned) -> None:
        """Write word number ``word`` (one number, or one per device) of every device to ``out``.

        Raises EntropyError if the words are used up.
        """
        ...


class GivenWords:
    """Words from an array of shape [devices, words per device]."""

    def __init__(self, words: Unsigned) -> None:
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def part(self, index: "slice | Index") -> "GivenWords":
        """Return the words of the devices at ``index``, in that order."""
        return GivenWords(self._words[index])

    def column(self, word: "int | Index", memory: Memory, out: Unsigned) -> None:
        """Write one word of every device to ``out``; see `Words.column`."""
        if np.max(word, initial=0) >= self._words.shape[1]:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        out[:] = self._words[np.arange(len(self)), word]


class VectorDraws:
    """`Entropy.below` for many devices; each device may reject at most ``chances`` words in all draws together.

    ``failed`` contains the devices that reject more: their values must not be used.
    """

    def __init__(self, words: Words, memory: Memory, chances: int, word: int = 0) -> None:
        self.memory = memory
        self.failed: Index = np.zeros(0, dtype=np.intp)
        self._words = words
        self._chances = chances
        self._word = word
        # Entry i lists the devices that have rejected i + 1 words. The index of their next word is self._word + i + 1,
        # that of all other devices is self._word.
        self._ahead: list[Index] = []

    def below(self, n: "int | Unsigned") -> Unsigned:
        """Draw a uniform integer in [0, n) for each device; n is one bound, or one for each."""
        bound = np.uint32(n) if isinstance(n, int) else n
        mask = _mask(bound)
        value = self.memory("value", len(self._words), np.uint32)
        self._words.column(self._word, self.memory, value)
        value &= mask
        self._word += 1
        if isinstance(n, int) and n & (n - 1) == 0 and not self._ahead:
            return value
        rejected = self.memory("rejected", len(value), np.bool_)
        np.greater_equal(value, bound, out=rejected)
        for index in (*self._ahead, self.failed):
            rejected[index] = False
        waiting = np.flatnonzero(rejected)
        before, self._ahead = self._ahead, []
        for chance in range(max(self._chances, len(before))):
            if chance < len(before):
                waiting = np.concatenate((before[chance], waiting))
            elif not len(waiting):
                break
            drawn = np.empty(len(waiting), dtype=np.uint32)
            self._words.part(waiting).column(self._word + chance, self.memory, drawn)
            drawn &= _pick(mask, waiting)
            value[waiting] = drawn
            rejects = drawn >= _pick(bound, waiting)
            self._ahead.append(waiting[np.flatnonzero(~rejects)])
            waiting = waiting[np.flatnonzero(rejects)]
        self.failed = np.concatenate((self.failed, waiting))
        return value

    def part(self, index: Index) -> "VectorDraws":
        """Return the draws of the devices at ``index``; none of these devices may have rejected a word so far."""
        return VectorDraws(self._words.part(index), self.memory, self._chances, self._word)

    def join(self, index: Index, part: "VectorDraws") -> None:
        """Add the failed devices of ``part``, which holds the draws of the devices at ``index``."""
        self.failed = np.concatenate((self.failed, index[part.failed]))


class PatientDraws(VectorDraws):
    """Draws in which each device has its own position in its random words. They are faster for few devices."""

    def __init__(self, words: Words, memory: Memory, places: "Index | None" = None) -> None:
        super().__init__(words, memory, chances=0)
        # The index of each device's next word.
        self._places = np.zeros(len(words), dtype=np.intp) if places is None else places

    def below(self, n: "int | Unsigned") -> Unsigned:
        """Draw a uniform integer in [0, n) for each device; n is one bound, or one for each."""
        bound = np.uint32(n) if isinstance(n, int) else n
        mask = _mask(bound)
        value = self.memory("value", len(self._words), np.uint32)
        self._words.column(self._places, self.memory, value)
        value &= mask
        self._places += 1
        waiting = np.flatnonzero(value >= bound)
        while len(waiting):
            drawn = np.empty(len(waiting), dtype=np.uint32)
            self._words.part(waiting).column(self._places[waiting], self.memory, drawn)
            drawn &= _pick(mask, waiting)
            value[waiting] = drawn
            self._places[waiting] += 1
            waiting = waiting[drawn >= _pick(bound, waiting)]
        return value

    def part(self, index: Index) -> "PatientDraws":
        """Return the draws of the devices at ``index``."""
        return PatientDraws(self._words.part(index), self.memory, self._places[index])


def _mask(n: Bound) -> Bound:
    mask = n - np.uint32(1)
    for shift in (1, 2, 4, 8, 16):
        mask = mask | mask >> np.uint32(shift)
    return mask


def _pick(values: Bound, index: Index) -> Bound:
    return values if isinstance(values, np.uint32) else values[index]
