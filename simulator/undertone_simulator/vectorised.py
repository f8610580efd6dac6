"""The mechanisms for whole populations: bit for bit the symbols that ``choose``, ``level``, ``draw`` give one by one.

Same words, same rejections, same integer arithmetic as `undertone_shared`, in blocks that stay in a core's cache.
A first pass serves every device that rejects at most one word, without branches; the others are pooled for a second
and a third.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import SMALL, Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism
from undertone_simulator.seeded import WORDS, Memory

Mechanism = WindowMechanism | Hybrid | TableMechanism
Unsigned = NDArray[np.uint32]
Index = NDArray[np.intp]
Bound = np.uint32 | Unsigned

# Devices per block, so that the arrays in use stay in a core's second-level cache; and per pool of a histogram.
BLOCK = 1 << 15
_POOL = 1 << 20
# How many words a device may reject in each pass; whoever rejects more goes on to the next one.
_CHANCES = (1, 6, WORDS)


class Block(Protocol):
    """Random words of some devices, each with its own sequence from word 0."""

    def column(self, word: int) -> Unsigned:
        """Word number ``word`` of every device."""
        ...


class Words(Protocol):
    """Random words of a population."""

    def __len__(self) -> int: ...

    def block(self, index: "slice | Index", memory: Memory) -> Block:
        """The words of the devices at ``index``; valid until the next block is asked for."""
        ...


class GivenWords:
    """Words from an array of shape [devices, words per device]; raises EntropyError when they are used up."""

    def __init__(self, words: Unsigned) -> None:
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def block(self, index: "slice | Index", memory: Memory) -> "GivenWords":
        """The words of the devices at ``index``."""
        return GivenWords(self._words[index])

    def column(self, word: int) -> Unsigned:
        """Word number ``word`` of every device."""
        if word >= self._words.shape[1]:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        return self._words[:, word]


class _Part:
    """The words of the devices at ``index`` of a block."""

    def __init__(self, block: Block, index: Index, memory: Memory) -> None:
        self._block = block
        self._index = index
        self._memory = memory

    def column(self, word: int) -> Unsigned:
        taken = self._memory("taken", len(self._index), np.uint32)
        return np.take(self._block.column(word), self._index, out=taken, mode="clip")


class _Draws:
    """`Entropy.below` for devices that reject at most ``chances`` words in all; `failed` marks the others."""

    def __init__(self, block: Block, size: int, memory: Memory, chances: int, word: int = 0) -> None:
        self.memory = memory
        self._block = block
        self._chances = chances
        self._word = word
        # How many words each device has rejected so far; its next word is self._word + self._late.
        self._late = np.zeros(size, dtype=np.uint8)

    def below(self, n: "int | Unsigned") -> Unsigned:
        """A uniform integer in [0, n) for each device; n is one bound, or one for each."""
        size = len(self._late)
        bound = np.uint32(n) if isinstance(n, int) else n
        mask = _mask(bound)
        value = self.memory("value", size, np.uint32)
        another = self.memory("another", size, np.uint32)
        turn = self.memory("turn", size, np.bool_)
        rejected = self.memory("rejected", size, np.bool_)
        for chance in range(self._chances + 1):
            np.equal(self._late, chance, out=turn)
            if chance and not turn.any() and not (self._late > chance).any():
                break
            drawn = another if chance else value
            np.bitwise_and(self._block.column(self._word + chance), mask, out=drawn)
            if chance:
                _replace(value, another, turn, self.memory)
            turn &= np.greater_equal(drawn, bound, out=rejected)
            self._late += turn
        self._word += 1
        return value

    @property
    def failed(self) -> Index:
        """The devices whose values cannot be used, since they rejected more words."""
        return np.flatnonzero(self._late > self._chances)

    def part(self, index: Index) -> "_Draws":
        """The draws of the devices at ``index``, none of which has rejected a word so far."""
        return _Draws(_Part(self._block, index, self.memory), len(index), self.memory, self._chances, self._word)

    def join(self, index: Index, part: "_Draws") -> None:
        """Take over what the devices at ``index`` have rejected."""
        self._late[index] = part._late


def _replace(values: Unsigned, others: Unsigned, where: NDArray[np.bool_], memory: Memory) -> None:
    """values[where] = others[where] without a branch (modulo 2^32)."""
    change = memory("change", len(values), np.uint32)
    np.subtract(others, values, out=change)
    change *= where
    values += change


def _mask(n: Bound) -> Bound:
    mask = n - np.uint32(1)
    for shift in (1, 2, 4, 8, 16):
        mask = mask | mask >> np.uint32(shift)
    return mask


def _level(mechanism: WindowMechanism | TableMechanism, x: NDArray[Any], theta: int, draws: _Draws) -> Unsigned:
    if isinstance(mechanism, TableMechanism):
        values = np.array(mechanism.values, dtype=np.int64)
        scaled = x.astype(np.int64) << mechanism.shift
        below = np.searchsorted(values[1:-1], scaled, side="right")
        gap = np.diff(values).astype(np.uint32)[below]
        up = draws.below(gap) < scaled - values[below]
        return below.astype(np.uint32) + up
    if mechanism.edges is not None:
        return np.searchsorted(mechanism.edges[1:-1], x, side="right").astype(np.uint32)
    level = draws.memory("level", len(x), np.uint32)
    if mechanism.levels == 1:
        np.less(draws.below(theta), x, out=level, casting="unsafe")
        return level
    rest = draws.memory("rest", len(x), np.uint32)
    np.multiply(x, np.uint32(mechanism.levels), out=rest)
    np.floor_divide(rest, np.uint32(theta), out=level)
    rest -= np.multiply(level, np.uint32(theta), out=draws.memory("change", len(x), np.uint32))
    level += np.less(draws.below(theta), rest, out=draws.memory("less", len(x), np.bool_))
    return level


def _draw(mechanism: WindowMechanism | TableMechanism, level: Unsigned, draws: _Draws) -> Unsigned:
    u = draws.below(mechanism.row_total())
    if isinstance(mechanism, TableMechanism):
        rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)], dtype=np.int64)
        # All rows' cumulative weights as one increasing sequence: row k lies between k and k + 1 totals.
        outcome = (level.astype(np.int64) << mechanism.bits) + u
        cell = np.searchsorted(np.cumsum(rows.ravel()), outcome, side="right").astype(np.uint32)
        return cell - level * np.uint32(mechanism.symbols)
    less = draws.memory("less", len(u), np.bool_)
    cell = draws.memory("cell", len(u), np.uint32)
    if mechanism.cells == 2:
        np.not_equal(level, np.greater_equal(u, np.uint32(mechanism.a), out=less), out=cell, casting="unsafe")
        cell += np.uint32(mechanism.first)
        return cell
    change = draws.memory("change", len(u), np.uint32)
    inside = np.uint32(mechanism.a * mechanism.window)
    level *= np.uint32(mechanism.stride)
    # For u < inside this wraps around, and is replaced.
    np.subtract(u, inside, out=cell)
    cell //= np.uint32(mechanism.b)
    np.greater_equal(cell, level, out=less)
    cell += np.multiply(less, np.uint32(mechanism.window), out=change)
    level += np.floor_divide(u, np.uint32(mechanism.a), out=change)
    _replace(cell, level, np.less(u, inside, out=less), draws.memory)
    cell += np.uint32(mechanism.first)
    return cell


def _block(mechanism: Mechanism, x: NDArray[Any], theta: int, draws: _Draws, out: Unsigned) -> None:
    if not isinstance(mechanism, Hybrid):
        out[:] = _draw(mechanism, _level(mechanism, x, theta, draws), draws)
        return
    heads = draws.below(65536) < np.uint32(mechanism.coin)
    for part, index in ((mechanism.piecewise, np.flatnonzero(heads)), (mechanism.rounding, np.flatnonzero(~heads))):
        if len(index):
            own = draws.part(index)
            taken = np.take(x, index, out=draws.memory("readings", len(index), np.uint32), mode="clip")
            out[index] = _draw(part, _level(part, taken, theta, own), own)
            draws.join(index, own)


def _check(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> None:
    if len(readings) != len(words):
        raise Invalid(f"there are {len(readings)} readings, expected one for each of {len(words)} devices")
    if mechanism.edges is not None or not len(readings):
        return
    if isinstance(mechanism, TableMechanism):
        if theta < 1 or not mechanism.covers(theta):
            raise Invalid(f"theta is {theta}, expected 1 to what the table's levels cover")
    elif not 1 <= theta <= (SMALL - 1) // mechanism.levels:
        raise Invalid(f"theta is {theta}, expected 1 to {(SMALL - 1) // mechanism.levels}")
    low, high = int(readings.min()), int(readings.max())
    if low < 0 or high > theta:
        raise Invalid(f"the truncated readings lie in {low} to {high}, expected 0 to theta = {theta}")


def symbols(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> Unsigned:
    """One symbol for each truncated reading in [0, theta] (any integers for a mechanism with edges); shape [n].

    ``words``: from `Seeded.words`, or `GivenWords`; device i draws ``choose``, ``level``, ``draw`` from its words
    in order. Raises Invalid for a theta or readings out of range, EntropyError when a device's words are used up.
    """
    _check(mechanism, readings, theta, words)
    return _symbols(mechanism, readings, theta, words, 0, len(readings))


def _symbols(
    mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words, start: int, stop: int
) -> Unsigned:
    kind = np.uint32 if mechanism.edges is None else np.int64
    out = np.empty(stop - start, dtype=np.uint32)
    memory = Memory()
    every: Index = np.arange(start, stop)
    for chances in _CHANCES:
        failed = [np.zeros(0, dtype=np.intp)]
        for first in range(0, len(every), BLOCK):
            index = every[first : first + BLOCK]
            x = memory("block", len(index), kind)
            x[:] = readings[index]
            draws = _Draws(words.block(index, memory), len(x), memory, chances)
            block = memory("symbols", len(index), np.uint32)
            _block(mechanism, x, theta, draws, block)
            out[index - start] = block
            failed.append(index[draws.failed])
        every = np.concatenate(failed)
    return out


def histogram(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> NDArray[np.int64]:
    """How often each symbol occurs among ``symbols``, in bounded memory; shape [mechanism.symbols]. Raises alike."""
    _check(mechanism, readings, theta, words)
    counts = np.zeros(mechanism.symbols, dtype=np.int64)
    for start in range(0, len(readings), _POOL):
        part = _symbols(mechanism, readings, theta, words, start, min(start + _POOL, len(readings)))
        counts += np.bincount(part, minlength=mechanism.symbols)
    return counts
