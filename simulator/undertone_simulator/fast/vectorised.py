"""The mechanisms for whole populations: the same symbols as ``choose``, ``level`` and ``draw`` give device by device.

They use the same words, the same rejections and the same integer arithmetic as `undertone_shared`. They work in blocks
of devices, and in memory that is reused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.mechanisms import Mechanism
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism
from undertone_simulator.fast.draws import Index, PatientDraws, Unsigned, VectorDraws, Words
from undertone_simulator.fast.lookup import Lookup
from undertone_simulator.seeded import Memory

# Number of devices in a block, small enough for a processor's caches.
BLOCK = 1 << 17
# Number of devices whose reports `histogram` draws at a time.
_POOL = 1 << 20
# A device that has rejected more words than this, in all its draws together, repeats its draws later. All such devices
# then draw together, each at its own position in its words.
_CHANCES = 2


def _replace(values: Unsigned, others: Unsigned, where: NDArray[np.bool_], memory: Memory) -> None:
    """Set values[where] = others[where] without a branch (modulo 2^32)."""
    change = memory("change", len(values), np.uint32)
    np.subtract(others, values, out=change)
    change *= where
    values += change


def _window_level(mechanism: WindowMechanism, x: NDArray[Any], theta: int, draws: VectorDraws) -> Unsigned:
    if mechanism.edges is not None:
        low, high, cells = _cells(mechanism.edges)
        return cells(np.clip(x, low, high) - low)
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


def _window(mechanism: WindowMechanism, x: NDArray[Any], theta: int, draws: VectorDraws) -> Unsigned:
    level = _window_level(mechanism, x, theta, draws)
    u = draws.below(mechanism.row_total())
    less = draws.memory("less", len(u), np.bool_)
    cell = draws.memory("cell", len(u), np.uint32)
    if mechanism.cells == 2:
        np.not_equal(level, np.greater_equal(u, np.uint32(mechanism.a), out=less), out=cell, casting="unsafe")
        cell += np.uint32(mechanism.first)
        return cell
    change = draws.memory("change", len(u), np.uint32)
    inside = np.uint32(mechanism.a * mechanism.window)
    level *= np.uint32(mechanism.stride)
    # u is the drawn word. If u < ``inside``, it selects a cell inside the window; u - inside then wraps around, and
    # `_replace` overwrites the result.
    np.subtract(u, inside, out=cell)
    cell //= np.uint32(mechanism.b)
    np.greater_equal(cell, level, out=less)
    cell += np.multiply(less, np.uint32(mechanism.window), out=change)
    level += np.floor_divide(u, np.uint32(mechanism.a), out=change)
    _replace(cell, level, np.less(u, inside, out=less), draws.memory)
    cell += np.uint32(mechanism.first)
    return cell


@lru_cache(maxsize=8)
def _cells(edges: tuple[int, ...]) -> tuple[int, int, Lookup]:
    """Return (low, high, lookup): a reading x, clipped to [low, high], is in the cell lookup(x - low)."""
    low, high = edges[1] - 1, edges[-2]
    return low, high, Lookup(np.array(edges[1:-1], dtype=np.int64) - low, high - low + 1)


@dataclass(frozen=True)
class _TableNumbers:
    """The numbers of a table mechanism.

    ``levels``: number of the level at or below a scaled reading. ``values``: the levels' values modulo 2^32; ``gaps``:
    from each level to the next one. ``cells``: lookup of level · row total + drawn word in the cumulative weights of
    all rows one after the other: those of row k lie between k and k + 1 row totals. ``kind``: integer type of the
    numbers that ``cells`` looks up.
    """

    levels: Lookup
    values: Unsigned
    gaps: Unsigned
    cells: Lookup
    kind: type[np.uint32] | type[np.int64]


@lru_cache(maxsize=8)
def _numbers(mechanism: TableMechanism) -> _TableNumbers:
    rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)], dtype=np.int64)
    values, stop = np.array(mechanism.values, dtype=np.int64), len(rows) << mechanism.bits
    return _TableNumbers(
        Lookup(values[1:-1], int(values[-1]) + 1),
        values.astype(np.uint32),
        np.diff(values).astype(np.uint32),
        Lookup(np.cumsum(rows.ravel()), stop),
        np.uint32 if stop <= 1 << 32 else np.int64,
    )


def _table(mechanism: TableMechanism, x: NDArray[Any], theta: int, draws: VectorDraws) -> Unsigned:
    numbers = _numbers(mechanism)
    # All numbers except those for ``cells`` are small integers, as on a board.
    scaled: Unsigned = x
    if theta != mechanism.reach:
        product = x * np.uint32(mechanism.reach)
        scaled = product // np.uint32(theta)
        product -= scaled * np.uint32(theta)
        scaled += draws.below(theta) < product
    scaled = scaled << np.uint32(mechanism.shift)
    level = numbers.levels(scaled)
    scaled -= numbers.values[level]
    level += draws.below(numbers.gaps[level]) < scaled
    u = draws.below(mechanism.row_total())
    outcome: Any = level.astype(numbers.kind)
    outcome <<= numbers.kind(mechanism.bits)
    outcome += u
    cell = numbers.cells(outcome)
    cell -= level * np.uint32(mechanism.symbols)
    return cell


def _hybrid(mechanism: Hybrid, x: NDArray[Any], theta: int, draws: VectorDraws) -> Unsigned:
    out = np.empty(len(x), dtype=np.uint32)
    heads = draws.below(65536) < np.uint32(mechanism.coin)
    for part, index in ((mechanism.piecewise, np.flatnonzero(heads)), (mechanism.rounding, np.flatnonzero(~heads))):
        if len(index):
            own = draws.part(index)
            taken = np.take(x, index, out=draws.memory("readings", len(index), np.uint32), mode="clip")
            out[index] = _window(part, taken, theta, own)
            draws.join(index, own)
    return out


class _One:
    """The draws of a single device among many, with the interface of `undertone_shared.entropy.Entropy`."""

    def __init__(self, draws: VectorDraws) -> None:
        self._draws = draws

    def below(self, n: int) -> int:
        """Draw a uniform integer in [0, n)."""
        value = int(self._draws.below(n)[0])
        # A device that has rejected too many words draws again later. Its number here is not used, and must only be
        # below n.
        return 0 if len(self._draws.failed) else value


def _one_by_one(mechanism: Mechanism, x: NDArray[Any], theta: int, draws: VectorDraws) -> Unsigned:
    """Draw for a mechanism without an entry in `LAWS`, by its own methods, device by device; much slower."""
    out = np.empty(len(x), dtype=np.uint32)
    for i, reading in enumerate(x.tolist()):
        index = np.array([i], dtype=np.intp)
        own = draws.part(index)
        entropy: Any = _One(own)
        part = mechanism.choose(entropy)
        out[i] = part.draw(part.level(reading, theta, entropy), entropy)
        draws.join(index, own)
    return out


# Vectorised ``choose``, ``level`` and ``draw``, by the class of the mechanism: faster than `_one_by_one`, for the
# classes that simulations draw by the million.
Law = Callable[[Any, NDArray[Any], int, VectorDraws], Unsigned]
LAWS: dict[type, Law] = {
    WindowMechanism: _window,
    TableMechanism: _table,
    Hybrid: _hybrid,
}


def _check(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> None:
    if len(readings) != len(words):
        raise Invalid(f"there are {len(readings)} readings, expected one for each of {len(words)} devices")
    if mechanism.edges is not None or not len(readings):
        return
    # Levels times readings are computed in words of 32 bits, as on a board.
    if theta < 1 or not mechanism.covers(theta):
        raise Invalid(f"theta is {theta}, expected 1 or more, in the range that the mechanism's levels cover")
    low, high = int(readings.min()), int(readings.max())
    if low < 0 or high > theta:
        raise Invalid(f"the truncated readings lie in {low} to {high}, expected 0 to theta = {theta}")


def symbols(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> Unsigned:
    """Draw one symbol for each truncated reading in [0, theta], shape [n]. With edges, readings may be any integers.

    ``words``: from `Seeded.words`, or `GivenWords`. Device i uses its words in order, for ``choose``, ``level`` and
    ``draw``. Raises Invalid for a theta or readings out of range, EntropyError when a device's words are used up.
    """
    _check(mechanism, readings, theta, words)
    return _symbols(mechanism, readings, theta, words, 0, len(readings))


def _symbols(
    mechanism: Mechanism,
    readings: NDArray[np.integer],
    theta: int,
    words: Words,
    start: int,
    stop: int,
) -> Unsigned:
    out = np.empty(stop - start, dtype=np.uint32)
    law: Law = LAWS.get(type(mechanism), _one_by_one)
    kind = np.uint32 if mechanism.edges is None else np.int64
    memory = Memory()
    failed = [np.zeros(0, dtype=np.intp)]
    for first in range(start, stop, BLOCK):
        block = slice(first, min(first + BLOCK, stop))
        drawn = out[first - start : block.stop - start]
        x = memory("block", len(drawn), kind)
        x[:] = readings[block]
        draws = VectorDraws(words.part(block), memory, _CHANCES)
        drawn[:] = law(mechanism, x, theta, draws)
        failed.append(draws.failed + first)
    pool = np.concatenate(failed)
    for first in range(0, len(pool), BLOCK):
        index = pool[first : first + BLOCK]
        patient = PatientDraws(words.part(index), memory)
        out[index - start] = law(mechanism, readings[index].astype(kind), theta, patient)
    return out


def histogram(mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words) -> NDArray[np.int64]:
    """Return how often each symbol occurs in what `symbols` draws, in bounded memory; shape [mechanism.symbols].

    Raises the same errors as `symbols`.
    """
    _check(mechanism, readings, theta, words)
    counts = np.zeros(mechanism.symbols, dtype=np.int64)
    for start in range(0, len(readings), _POOL):
        part = _symbols(mechanism, readings, theta, words, start, min(start + _POOL, len(readings)))
        counts += np.bincount(part, minlength=mechanism.symbols)
    return counts


def histograms(
    mechanism: Mechanism, readings: NDArray[np.integer], theta: int, words: Words, rows: Index, count: int
) -> NDArray[np.int64]:
    """Return one ``histogram`` for each of ``count`` rows; reading i counts in row ``rows[i]``; [count, symbols].

    All readings are drawn together. If a row has few readings, this is much faster than row by row.
    """
    drawn = symbols(mechanism, readings, theta, words)
    cells = rows * mechanism.symbols + drawn
    return np.bincount(cells, minlength=count * mechanism.symbols).reshape(count, mechanism.symbols)
