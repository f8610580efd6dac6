"""What a published series is made of, as components of a state space: a season that drifts, memory, a slow level.

    signal_t = level + slow_t + season_t + off_t + memory_t + chance_t

``level`` may be anything. ``slow``: Ornstein-Uhlenbeck over ten weeks, or ten longer cycles. ``season``:
quasi-periodic, covariance a² exp(-2 sin²(πΔ)/l²) at phases Δ of a cycle apart, decaying over T cycles; as harmonics
with variances a² q_j(l) (Solin & Särkkä, AISTATS 2014). ``off``: the same shape on days off only, decaying over 4T.
``memory``: Ornstein-Uhlenbeck of a few slots. ``chance``: of one slot. All in units of the series' own scale.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ive

from undertone_aggregator.estimate.state_space import Components, Vector

NAMES = ("season", "smoothness", "drift", "memory", "reach", "slow", "chance", "off")
HARMONICS = 12
_OFF_HARMONICS = 4
# Over how many cycles the level moves, and the median of how much: ten weeks where a cycle is a day. The year moves a
# level by less than a day does, but by a multiple of what the days of a week differ by.
_SLOW_CYCLES, _SLOW = 70.0, 0.6
_SLOW_LONG_CYCLES, _SLOW_LONG = 10.0, 2.0
_OFF_DRIFT = 4.0
# Standard deviation of the level, in units of the series' scale, and a rate that leaves nothing after one slot.
_ANYTHING = 100.0
_FORGOTTEN = 50.0
# Harmonics that are summed to fold those beyond half a cycle's slots onto those that slots can tell apart.
_SUMMED = 64
# Medians of the parameters and standard deviations of their logarithms. What the amplitudes share besides: where the
# noise hides how large the signal is, little of one part tells that there is little of the others.
_MEDIANS = {"season": 0.5, "smoothness": 0.65, "drift": 300.0, "memory": 0.1, "off": 0.2}
_SPREADS = {"season": 0.5, "smoothness": 0.4, "drift": 1.0, "memory": 0.6, "reach": 1.0, "slow": 0.8, "chance": 0.6,
            "off": 1.0}  # fmt: skip
# What no component follows of a slot, besides what its devices have by chance.
_LEAST_CHANCE = 0.03
# The slow level has nothing to do with how much a cycle moves.
_AMPLITUDES = ("season", "memory", "off")
_COMMON = 1.0
# Fits stay within so many of these standard deviations.
_BOUND = 3.5


@dataclass(frozen=True)
class Calendar:
    """Where slots are: ``phase`` [n] of the ``cycle`` (so many slots long) in [0, 1), ``off`` [n] on days off.

    ``off`` None: days are alike. A cycle of 1 slot has no season. ``long``: the cycle is longer than a day.
    """

    cycle: int
    phase: Vector
    off: NDArray[np.bool_] | None = None
    long: bool = False

    def part(self, first: int, stop: int) -> "Calendar":
        """Of the slots first <= i < stop."""
        off = None if self.off is None else self.off[first:stop]
        return Calendar(self.cycle, self.phase[first:stop], off, self.long)


class Seasonal:
    """The components for one calendar, by the logarithms of `NAMES`; without ``off`` where days are alike."""

    def __init__(self, cycle: int, off: bool, chance: float = 0.0, long: bool = False) -> None:
        """``chance``: what a slot's devices are thought to have by chance; ``long`` as in `Calendar`."""
        self.cycle, self.off = cycle, off
        self._slow = cycle * (_SLOW_LONG_CYCLES if long else _SLOW_CYCLES)
        self.names = NAMES if off else NAMES[:-1]
        medians = _MEDIANS | {
            "reach": max(cycle / 12.0, 1.0),
            "chance": math.hypot(chance, _LEAST_CHANCE),
            "slow": _SLOW_LONG if long else _SLOW,
        }
        self.centre = np.log([medians[name] for name in self.names])
        common = np.array([_COMMON if name in _AMPLITUDES else 0.0 for name in self.names])
        covariance = np.diag(np.square([_SPREADS[name] for name in self.names])) + np.outer(common, common)
        self.precision, spread = np.linalg.inv(covariance), np.sqrt(np.diag(covariance))
        self.low, self.high = self.centre - _BOUND * spread, self.centre + _BOUND * spread
        self._most = min(HARMONICS, cycle // 2)
        self._off_most = min(_OFF_HARMONICS, self._most)

    def loading(self, calendar: Calendar) -> Vector:
        """How much of each component is in each slot, [n, d]."""
        parts = [np.ones((len(calendar.phase), 4)), _waves(calendar.phase, self.cycle, self._most)]
        if self.off:
            assert calendar.off is not None
            parts.append(_waves(calendar.phase, self.cycle, self._off_most) * calendar.off[:, None])
        return np.concatenate(parts, axis=1)

    def components(self, logs: Vector) -> Components:
        """For ``logs`` [models, names]."""
        values = np.exp(logs)
        models = len(values)
        season, smoothness, drift, memory, reach, slow, chance = values[:, :7].T[:, :, None]
        waves = season**2 * _shares(smoothness, self.cycle, self._most)
        variance = [np.full((models, 1), _ANYTHING**2), slow**2, memory**2, chance**2, waves]
        gone = np.full((models, 1), _FORGOTTEN)
        rate = [0.0 * gone, 0.0 * gone + 1.0 / self._slow, 1.0 / reach, gone]
        rate.append(np.broadcast_to(1.0 / (drift * self.cycle), waves.shape))
        if self.off:
            waves = values[:, 7:] ** 2 * _shares(smoothness, self.cycle, self._off_most)
            variance.append(waves)
            rate.append(np.broadcast_to(1.0 / (_OFF_DRIFT * drift * self.cycle), waves.shape))
        return Components(np.concatenate(variance, axis=1), np.concatenate(rate, axis=1))

    def log_prior(self, logs: Vector) -> Vector:
        """Up to a constant, [models]."""
        off = logs - self.centre
        return np.asarray(-0.5 * ((off @ self.precision) * off).sum(axis=1))


def _orders(cycle: int, most: int) -> list[int]:
    """The harmonic of each column: cosine, then sine where slots can see one."""
    orders = [0]
    for order in range(1, most + 1):
        orders += [order] if 2 * order == cycle else [order, order]
    return orders


def _shares(smoothness: Vector, cycle: int, most: int) -> Vector:
    """q_j(l): the shares of a periodic kernel's variance by column, [models, columns]; aliases are folded."""
    order = np.arange(_SUMMED)
    share = ive(order, smoothness**-2.0) * np.where(order == 0, 1.0, 2.0)
    alias = np.minimum(order % cycle, -order % cycle)
    folded = np.zeros((len(smoothness), cycle // 2 + 1))
    np.add.at(folded.T, alias, share.T)
    return folded[:, _orders(cycle, most)]


def _waves(phase: Vector, cycle: int, most: int) -> Vector:
    """1, then cosine and sine of each harmonic at the phases, [n, columns]."""
    columns = [np.ones(len(phase))]
    for order in range(1, most + 1):
        columns.append(np.cos(2 * np.pi * order * phase))
        if 2 * order != cycle:
            columns.append(np.sin(2 * np.pi * order * phase))
    return np.stack(columns, axis=1)
