"""Streams of many devices at once, with the results of `undertone_device.core.stream_state` and `StreamRule` for each.

A device's noise is drawn with its report, from the words of that slot. Readings and points have shape [coordinates,
devices].
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.moments import LAGS, Layout
from undertone_shared.stream import GAUSSIAN, StreamRule
from undertone_simulator.fast.vectorised_gaussian import discrete_gaussian
from undertone_simulator.seeded import Buffers

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Index = NDArray[np.intp]

_LARGEST_RELEASE = 0x7FFFFFFF
# A release X is counted as u = X + _BIAS, and u² as two halves of _HALF bits; see
# `undertone_aggregator.counts.moments`.
_BIAS = 1 << 31
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


class Streams:
    """The chains of ``devices`` devices under a rule, from ``first_slot`` on, slot by slot."""

    def __init__(self, rule: StreamRule, devices: int, first_slot: int) -> None:
        self.rule = rule
        self._first_slot = first_slot
        # For each interleaved chain: index of its last report (0: no chain), clipped point, release, slot.
        self.index = np.zeros((rule.lag, devices), dtype=np.int32)
        self.point = np.zeros((rule.lag, rule.dimension, devices), dtype=np.int64)
        self.released = np.zeros((rule.lag, rule.dimension, devices), dtype=np.int64)
        self._slot = np.zeros((rule.lag, devices), dtype=np.int64)
        # Numbers of reports drawn and of chains begun in the current window, and the number of that window.
        self._reports = np.zeros(devices, dtype=np.int32)
        self._chains = np.zeros(devices, dtype=np.int32)
        self._window = 0
        # For each chain, 64 bits that say which of its last reports were admitted, the newest in bit 0; and the chain's
        # origin, see `undertone_aggregator.counts.chains`.
        self._admitted = np.zeros((rule.lag, devices), dtype=np.uint64)
        self._origin = np.zeros((rule.lag, devices), dtype=np.int64)

    def forget(self, devices: Flags) -> None:
        """Simulate a power loss of these devices: their chains are lost, their budgets are not."""
        self.index[:, devices] = 0

    def draw(self, slot: int, readings: Integers, devices: Flags, buffers: Buffers) -> Flags:
        """Draw one report for each of ``devices`` with budget left; return their mask. ``readings``: less the offset.

        The report's index, clipped point and release are then in row ``slot`` mod lag.
        """
        rule = self.rule
        window = (slot - self._first_slot) // rule.renewal if rule.renewal else 0
        if window != self._window:
            self._window = window
            self._reports[:] = 0
            self._chains[:] = 0
            self.index[:] = 0
        row = slot % rule.lag
        going = self.index[row] > 0
        if rule.restart:
            going &= (slot - self._slot[row]) // rule.lag - 1 < rule.restart
        draws: Flags = devices & (self._reports < rule.reports) & (going | (self._chains < rule.chains))
        starts, goes_on = np.flatnonzero(draws & ~going), np.flatnonzero(draws & going)
        for where, first in ((starts, True), (goes_on, False)):
            self._release(row, readings, where, first, buffers)
        draws &= ~buffers.failed
        starts = starts[draws[starts]]
        self.index[row, starts] = 0
        self._chains[starts] += 1
        self.index[row, draws] += 1
        self._reports[draws] += 1
        self._slot[row, draws] = slot
        return draws

    def _release(self, row: int, readings: Integers, where: Index, first: bool, buffers: Buffers) -> None:
        """Draw as `StreamState.draw` does, for the devices at ``where``.

        A device whose words run out keeps its state.
        """
        rule = self.rule
        noise: list[Integers] = []
        if rule.law == GAUSSIAN:
            noise = [discrete_gaussian(rule.noise[not first], buffers, where) for _ in range(rule.dimension)]
        buffers.refill(where)
        point = self._point(readings[:, where], where, buffers)
        before, released = self.point[row][:, where], self.released[row][:, where]
        if first:
            drawn = point
        else:
            point = clip(point, before, rule.slew, rule.levels // 2)
            drawn = (point << rule.shift) - rule.reuse * before
        if noise:
            drawn = drawn + np.stack(noise)
        else:
            step = rule.noise[not first]
            drawn = np.where(buffers.below(where, 2 * step) < step + drawn, step, -step)
        if not first:
            drawn = 2 * (drawn + rule.reuse * released) + (1 << rule.shift) >> rule.shift + 1
        good = ~buffers.failed[where]
        accepted = where[good]
        self.point[row][:, accepted] = point[:, good]
        self.released[row][:, accepted] = np.clip(drawn, -_LARGEST_RELEASE, _LARGEST_RELEASE)[:, good]

    def _point(self, readings: Integers, where: Index, buffers: Buffers) -> Integers:
        rule = self.rule
        scaled = (np.clip(readings, rule.low, rule.theta) - rule.low) * rule.levels
        level = scaled // rule.width
        for k in range(rule.dimension):
            level[k] += buffers.below(where, rule.width) < scaled[k] - level[k] * rule.width
        return shrink(level - rule.levels // 2, rule.levels // 2)

    def admit(self, slot: int, drawn: Flags, admitted: Flags) -> Unsigned:
        """Record which of the ``drawn`` reports of ``slot`` were ``admitted``; return a word for each device.

        Bit a of the word is 1 if the device's report (a + 1) · lag slots earlier was admitted, and is on the same chain
        with no missed report in between.
        """
        row = slot % self.rule.lag
        origin = slot - self.index[row] * self.rule.lag
        window = np.where(drawn & (origin == self._origin[row]), self._admitted[row], np.uint64(0))
        self._origin[row] = np.where(drawn, origin, self._origin[row])
        self._admitted[row] = window << np.uint64(1) | admitted
        return window


def shrink(point: Integers, radius: int) -> Integers:
    """Apply `undertone_shared.points.shrink` to each column."""
    square = (point * point).sum(axis=0)
    far = np.flatnonzero(square > radius * radius)
    if len(far):
        point[:, far] = _towards_zero(point[:, far] * radius, _root_up(square[far]))
    return point


def clip(point: Integers, previous: Integers, slew: int, radius: int) -> Integers:
    """Apply `undertone_shared.points.clip` to each column."""
    if len(point) == 1:
        return np.clip(point, previous - slew, previous + slew)
    move = point - previous
    square = (move * move).sum(axis=0)
    going = np.flatnonzero(square > slew * slew)
    norm = _root_up(square)
    while len(going):
        point[:, going] = previous[:, going] + _towards_zero(move[:, going] * slew, norm[going])
        # Rounding may move a point out of the ball; shorter steps are tried until it is inside.
        going = going[(point[:, going] ** 2).sum(axis=0) > radius * radius]
        slew -= 1
    return point


def _root_up(square: Integers) -> Integers:
    """Return the least x >= 0 with x² >= square.

    Squares must be below 2^52, so that their floating-point roots are right to within 1.
    """
    x = np.ceil(np.sqrt(square)).astype(np.int64)
    x -= (x - 1) ** 2 >= square
    x += x * x < square
    return x


def _towards_zero(n: Integers, d: Integers) -> Integers:
    return np.where(n >= 0, n // d, -(-n // d))


def moments(layout: Layout, lag: int, index: Integers, released: Integers, windows: Unsigned) -> Integers:
    """Return what admitted reports add to a slot's vector of moments: see `undertone_aggregator.counts.moments`.

    ``released``: [coordinates, devices].
    """
    counts = np.zeros(layout.cells, dtype=np.int64)
    ages = np.minimum(index, layout.ages)
    for age in np.unique(ages):
        u = (released[:, ages == age] + _BIAS).astype(np.uint64)
        square = u * u
        sums = np.stack([u.sum(axis=1), (square >> _HALF).sum(axis=1), (square & _LOW).sum(axis=1)], axis=1)
        amounts = (u.shape[1], u.shape[1], *sums.ravel().tolist())
        for (cell, _), amount in zip(layout.report((0,) * len(released), int(age)), amounts, strict=True):
            counts[cell] += amount
    together = np.unpackbits(windows.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").sum(axis=0)
    for turn in range(1, LAGS // lag + 1):
        for cell, amount in layout.pair(turn * lag):
            counts[cell] += amount * int(together[turn - 1])
    return counts
