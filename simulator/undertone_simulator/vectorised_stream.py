"""Streams of many devices at once: what `undertone_device.stream_state` keeps and `StreamRule` releases for each.

One coordinate per reading. A device's noise is drawn with its report, from the words of that slot.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect.moments import LAGS, Layout
from undertone_shared.stream import GAUSSIAN, StreamRule
from undertone_simulator.seeded import Buffers
from undertone_simulator.vectorised_gaussian import discrete_gaussian

Integers = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Index = NDArray[np.intp]

_LARGEST_RELEASE = 0x7FFFFFFF
# u = X + 2^31 and the halves of u², as in the layout.
_BIAS = 1 << 31
_HALF = np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)


class Streams:
    """The chains of ``devices`` devices under a rule of one coordinate, from ``first_slot`` on, slot by slot."""

    def __init__(self, rule: StreamRule, devices: int, first_slot: int) -> None:
        self.rule = rule
        self._first_slot = first_slot
        # Per interleaved chain: index of its last report (0: no chain), clipped point, release, slot.
        self.index = np.zeros((rule.lag, devices), dtype=np.int32)
        self.point = np.zeros((rule.lag, devices), dtype=np.int64)
        self.released = np.zeros((rule.lag, devices), dtype=np.int64)
        self._slot = np.zeros((rule.lag, devices), dtype=np.int64)
        # What the window's budget has left, and the window.
        self._reports = np.zeros(devices, dtype=np.int32)
        self._chains = np.zeros(devices, dtype=np.int32)
        self._window = 0
        # Which of the chain's last 64 reports were admitted, the newest in bit 0, and where it began.
        self._admitted = np.zeros((rule.lag, devices), dtype=np.uint64)
        self._origin = np.zeros((rule.lag, devices), dtype=np.int64)

    def forget(self, devices: Flags) -> None:
        """These have lost power: their chains are gone, their counts are not."""
        self.index[:, devices] = 0

    def draw(self, slot: int, readings: Integers, devices: Flags, buffers: Buffers) -> Flags:
        """One report of each of ``devices`` whose budget has one left; who has drawn. ``readings``: less the offset.

        Its index, clipped point and release are then in row ``slot`` mod lag.
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
        """`StreamState.draw` for the devices at ``where``; a failed buffer changes nothing."""
        rule = self.rule
        noise = discrete_gaussian(rule.noise[not first], buffers, where) if rule.kind == GAUSSIAN else None
        buffers.refill(where)
        point = self._point(readings[where], where, buffers)
        before, released = self.point[row, where], self.released[row, where]
        if not first:
            point = np.clip(point, before - rule.slew, before + rule.slew)
            drawn = (point << rule.shift) - rule.reuse * before
        else:
            drawn = point
        if noise is None:
            step = rule.noise[not first]
            drawn = np.where(buffers.below(where, 2 * step) < step + drawn, step, -step)
        else:
            drawn = drawn + noise
        if not first:
            drawn = 2 * (drawn + rule.reuse * released) + (1 << rule.shift) >> rule.shift + 1
        good = ~buffers.failed[where]
        kept = where[good]
        self.point[row, kept] = point[good]
        self.released[row, kept] = np.clip(drawn, -_LARGEST_RELEASE, _LARGEST_RELEASE)[good]

    def _point(self, readings: Integers, where: Index, buffers: Buffers) -> Integers:
        rule = self.rule
        scaled = (np.clip(readings, rule.low, rule.theta) - rule.low) * rule.levels
        level = scaled // rule.width
        return level + (buffers.below(where, rule.width) < scaled - level * rule.width) - rule.levels // 2

    def admit(self, slot: int, drawn: Flags, admitted: Flags) -> Unsigned:
        """Of the ``drawn`` reports of ``slot`` those ``admitted`` arrived. Per device a word: bit a says that the slot

        a + 1 turns ago lies on the same chain with nothing missed between, and that its report arrived.
        """
        row = slot % self.rule.lag
        origin = slot - self.index[row] * self.rule.lag
        window = np.where(drawn & (origin == self._origin[row]), self._admitted[row], np.uint64(0))
        self._origin[row] = np.where(drawn, origin, self._origin[row])
        self._admitted[row] = window << np.uint64(1) | admitted
        return window


def moments(layout: Layout, lag: int, index: Integers, released: Integers, windows: Unsigned) -> Integers:
    """What admitted reports add to a slot's vector of moments: see `undertone_aggregator.collect.moments`."""
    counts = np.zeros(layout.cells, dtype=np.int64)
    ages = np.minimum(index, layout.ages)
    for age in np.unique(ages):
        u = (released[ages == age] + _BIAS).astype(np.uint64)
        square = u * u
        sums = (len(u), len(u), u.sum(), (square >> _HALF).sum(), (square & _LOW).sum())
        for (cell, _), amount in zip(layout.report((0,), int(age)), sums, strict=True):
            counts[cell] += int(amount)
    together = np.unpackbits(windows.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").sum(axis=0)
    for turn in range(1, LAGS // lag + 1):
        for cell, amount in layout.pair(turn * lag):
            counts[cell] += amount * int(together[turn - 1])
    return counts
