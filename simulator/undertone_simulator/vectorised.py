"""The mechanisms for whole populations: bit for bit the symbols that ``choose``, ``level``, ``draw`` give one by one.

Same words, same rejections, same integer arithmetic as `undertone_shared`, in blocks that stay in a core's cache and
in memory that is used again.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_shared.checks import SMALL
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism
from undertone_simulator.seeded import WORDS, Memory

Mechanism = WindowMechanism | Hybrid | TableMechanism
Unsigned = NDArray[np.uint32]
Index = NDArray[np.intp]
Bound = np.uint32 | Unsigned

# Devices per block, so that the arrays in use stay in a core's second-level cache; and per pool of a histogram.
BLOCK = 1 << 17
_POOL = 1 << 20
# A device that rejects more words than this in one draw waits until many such can be served together.
_CHANCES = 2


class Words(Protocol):
    """Random words of many devices, each with its own sequence from word 0."""

    def __len__(self) -> int: ...

    def part(self, index: "slice | Index") -> "Words":
        """The words of the devices at ``index``, in that order."""
        ...

    def column(self, word: int, memory: Memory, out: Unsigned) -> None:
        """Word number ``word`` of every device into ``out``. Raises EntropyError when they are used up."""
        ...


class GivenWords:
    """Words from an array of shape [devices, words per device]."""

    def __init__(self, words: Unsigned) -> None:
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def part(self, index: "slice | Index") -> "GivenWords":
        """The words of the devices at ``index``, in that order."""
        return GivenWords(self._words[index])

    def column(self, word: int, memory: Memory, out: Unsigned) -> None:
        """Word number ``word`` of every device into ``out``. Raises EntropyError when they are used up."""
        if word >= self._words.shape[1]:
            raise EntropyError("the entropy buffer is used up: refill it before a draw")
        out[:] = self._words[:, word]


class _Draws:
    """`Entropy.below` for many devices, each past its own rejections, at most ``chances`` at a time.

    ``failed`` marks the devices that reject more: their values are not to be used.
    """

    def __init__(self, words: Words, memory: Memory, chances: int, word: int = 0) -> None:
        self.memory = memory
        self.failed: Index = np.zeros(0, dtype=np.intp)
        self._words = words
        self._chances = chances
        self._word = word
        # The devices whose next word is self._word + 1, + 2, ... since they have rejected as many; all others are
        # at self._word.
        self._ahead: list[Index] = []

    def below(self, n: "int | Unsigned") -> Unsigned:
        """A uniform integer in [0, n) for each device; n is one bound, or one for each."""
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

    def part(self, index: Index) -> "_Draws":
        """The draws of the devices at ``index``, none of which has rejected a word so far."""
        return _Draws(self._words.part(index), self.memory, self._chances, self._word)

    def join(self, index: Index, part: "_Draws") -> None:
        """Take over which of the devices at ``index`` have failed."""
        self.failed = np.concatenate((self.failed, index[part.failed]))


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


def _pick(values: Bound, index: Index) -> Bound:
    return values if isinstance(values, np.uint32) else values[index]


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
    out = np.empty(stop - start, dtype=np.uint32)
    kind = np.uint32 if mechanism.edges is None else np.int64
    memory = Memory()
    failed = [np.zeros(0, dtype=np.intp)]
    for first in range(start, stop, BLOCK):
        block = slice(first, min(first + BLOCK, stop))
        x = memory("block", block.stop - first, kind)
        x[:] = readings[block]
        draws = _Draws(words.part(block), memory, _CHANCES)
        _block(mechanism, x, theta, draws, out[first - start : block.stop - start])
        failed.append(draws.failed + first)
    pool = np.concatenate(failed)
    for first in range(0, len(pool), BLOCK):
        index = pool[first : first + BLOCK]
        symbols = memory("symbols", len(index), np.uint32)
        draws = _Draws(words.part(index), memory, WORDS)
        _block(mechanism, readings[index].astype(kind), theta, draws, symbols)
        out[index - start] = symbols
    return out


def histogram(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> NDArray[np.int64]:
    """How often each symbol occurs among ``symbols``, in bounded memory; shape [mechanism.symbols]. Raises alike."""
    _check(mechanism, readings, theta, words)
    counts = np.zeros(mechanism.symbols, dtype=np.int64)
    for start in range(0, len(readings), _POOL):
        part = _symbols(mechanism, readings, theta, words, start, min(start + _POOL, len(readings)))
        counts += np.bincount(part, minlength=mechanism.symbols)
    return counts
