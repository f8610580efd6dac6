"""State-space model of a published series: a slowly changing season, a short memory, a slow level.

    signal_t = level + slow_t + season_t + off_t + memory_t + chance_t

``level`` may have any value. ``slow``: an Ornstein-Uhlenbeck process over 70 cycles, or 10 if they are longer than a
day. ``season``: quasi-periodic, with covariance a² exp(-2 sin²(πΔ)/l²) at phases that are Δ of a cycle apart, decaying
over T cycles. It is written as harmonics with variances a² q_j(l) (Solin & Särkkä, AISTATS 2014). ``off``: a second
such pattern, on days off only, decaying over 4T cycles. ``memory``: an Ornstein-Uhlenbeck process over a small part of
a cycle. ``chance``: an independent value in each slot. All amplitudes are in units of the series' own scale.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.state_space import Components, Vector

NAMES = ("season", "smoothness", "drift", "memory", "reach", "slow", "chance", "off")
HARMONICS = 12
_OFF_HARMONICS = 4
# Time constant of the slow level in cycles, and the median of its amplitude in units of the series' scale. If a cycle
# is a day, the time constant is ten weeks. In a year the level then changes by less than readings do within a day, but
# by several times the difference between the days of a week. The values _LONG are for cycles longer than a day.
_SLOW_CYCLES, _SLOW = 70.0, 0.6
_SLOW_LONG_CYCLES, _SLOW_LONG = 10.0, 2.0
_OFF_DRIFT = 4.0
# Prior standard deviation of the level, in units of the series' scale; and a decay rate so large that nothing is left
# of a component one slot later.
_ANYTHING = 100.0
_FORGOTTEN = 50.0
# Medians of the parameters, and standard deviations of their logarithms. _COMMON is shared by the amplitudes: if the
# noise hides the signal's size, a small value of one amplitude suggests that the other amplitudes are small.
_MEDIANS = {"season": 0.5, "smoothness": 0.65, "drift": 300.0, "memory": 0.1, "off": 0.2}
# The memory and the chance error are much smaller than the noise of a few hundred devices, which hides their sizes.
# Their priors are narrow, because a likelihood that is nearly flat favours sizes that are too small.
_SPREADS = {"season": 0.5, "smoothness": 0.4, "drift": 1.0, "memory": 0.3, "reach": 1.0, "slow": 0.8, "chance": 0.3,
            "off": 1.0}  # fmt: skip
# Least standard deviation of the part of a slot that no component explains, besides the devices' chance error.
_LEAST_CHANCE = 0.03
# The parameters that are amplitudes. The slow level's amplitude is left out, because it is independent of the variation
# within a cycle.
_AMPLITUDES = ("season", "memory", "off")
_COMMON = 1.0
# Largest distance of a fitted parameter from the prior's centre, in standard deviations of the prior.
_BOUND = 3.5


@dataclass(frozen=True)
class Calendar:
    """The calendar of slots. ``phase`` [n]: where in the ``cycle`` (in slots) each slot lies, in [0, 1).

    ``off`` [n]: True on days off; None: all days are alike. ``long``: the cycle is longer than a day. A cycle of 1 slot
    has no season.
    """

    cycle: int
    phase: Vector
    off: NDArray[np.bool_] | None = None
    long: bool = False

    def part(self, first: int, stop: int) -> "Calendar":
        """Return the calendar of the slots first <= i < stop."""
        off = None if self.off is None else self.off[first:stop]
        return Calendar(self.cycle, self.phase[first:stop], off, self.long)


class Seasonal:
    """The model for one calendar.

    Parameters are logarithms in the order of `NAMES`, without ``off`` if days are alike.
    """

    def __init__(self, cycle: int, off: bool, chance: float = 0.0, long: bool = False) -> None:
        """``chance``: assumed chance error of a slot's devices; ``long`` as in `Calendar`."""
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
        """Return the weight of each component in each slot, [n, d]."""
        parts = [np.ones((len(calendar.phase), 4)), _waves(calendar.phase, self.cycle, self._most)]
        if self.off:
            assert calendar.off is not None
            parts.append(_waves(calendar.phase, self.cycle, self._off_most) * calendar.off[:, None])
        return np.concatenate(parts, axis=1)

    def components(self, logs: Vector) -> Components:
        """Return the components for parameters ``logs`` [models, names]."""
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
        """Return the log prior up to a constant, [models]."""
        off = logs - self.centre
        return np.asarray(-0.5 * ((off @ self.precision) * off).sum(axis=1))


def _orders(cycle: int, most: int) -> list[int]:
    """Return the harmonic of each column of `_waves`: 0 for the constant, then that of each cosine and sine."""
    orders = [0]
    for order in range(1, most + 1):
        orders += [order] if 2 * order == cycle else [order, order]
    return orders


def _shares(smoothness: Vector, cycle: int, most: int) -> Vector:
    """Return q_j(l): the shares of a periodic kernel's variance by column, [models, columns], with aliases folded.

    The kernel exp((cos 2πΔ - 1)/l²), at the phases of the cycle's slots, is the sum of its harmonics. Harmonics too
    fast for the slots to resolve appear as slower ones (aliases). The shares are the kernel's discrete Fourier
    transform.
    """
    half = cycle // 2
    kernel = np.exp((np.cos(2 * np.pi * np.arange(cycle) / cycle) - 1.0) / smoothness**2)
    share = np.fft.rfft(kernel, axis=1).real / cycle
    # `rfft` gives the harmonics k and -k as one, so each share counts twice, except for k = 0 and k = cycle/2.
    order = np.arange(half + 1)
    folded = np.maximum(share, 0.0) * np.where((order == 0) | (2 * order == cycle), 1.0, 2.0)
    return np.asarray(folded[:, _orders(cycle, most)])


def _waves(phase: Vector, cycle: int, most: int) -> Vector:
    """Return 1, then cosine and sine of each harmonic at the phases, [n, columns]."""
    columns = [np.ones(len(phase))]
    for order in range(1, most + 1):
        columns.append(np.cos(2 * np.pi * order * phase))
        if 2 * order != cycle:
            columns.append(np.sin(2 * np.pi * order * phase))
    return np.stack(columns, axis=1)
