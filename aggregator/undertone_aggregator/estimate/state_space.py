"""Kalman filter and smoother of a sum of Ornstein-Uhlenbeck components, several models side by side, in O(n d²).

    y_i = h_i · x(t_i) + e_i

x: d independent components, component k of model m with variance ``variance[m, k]`` and correlation
exp(-``rate[m, k]`` D) over D slots; h_i [d]: how much of each is in slot i (a harmonic of the day at the slot's phase,
1 for a level). A rotation would need a dense transition; a phase in h_i leaves it diagonal (Solin & Särkkä, AISTATS
2014, in the rotating frame). e_i: noise of known variance, independent, or an AR(1) per chain with a state of its own.
Smoothing: Durbin & Koopman, Time Series Analysis by State Space Methods, 2012, 4.4 and 4.5: no matrix is inverted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Components:
    """What the signal is made of: variances and decay rates per slot, both [models, d]."""

    variance: Vector
    rate: Vector


@dataclass(frozen=True)
class Noise:
    """``variance`` [n] of each slot's noise. ``carried`` [n]: the regression of a slot's noise on that of the slot
    before on its chain, 0 where a chain begins; None for independent noise. ``lag`` chains take turns by slot.
    ``chance``: what the signal itself may have by chance in a slot, as a share of the noise's standard deviation.
    """

    variance: Vector
    carried: Vector | None = None
    lag: int = 1
    chance: float = 0.0

    def part(self, first: int, stop: int) -> "Noise":
        """Of the values first <= i < stop."""
        carried = None if self.carried is None else self.carried[first:stop]
        return Noise(self.variance[first:stop], carried, self.lag, self.chance)


@dataclass(frozen=True)
class Observed:
    """``slots`` [n] ascending, their ``values`` [n], ``loading`` [n, d] of the components, and the noise."""

    slots: NDArray[np.int64]
    values: Vector
    loading: Vector
    noise: Noise


@dataclass
class State:
    """What is known after ``slot``: mean [models, d + chains] and covariance [models, d + chains, d + chains].

    ``noise`` [chains]: the variance of each chain's last noise, before anything was known of it.
    """

    mean: Vector
    covariance: Vector
    slot: int
    noise: Vector


@dataclass
class Trace:
    """What one pass forward leaves of each slot, models last but one.

    ``mean``, ``variance`` [n, models]: the signal given the slots up to it. ``error``, ``scale`` [n, models]: each
    value less its prediction, and the variance of that. ``gain`` [n, models, size], ``target`` (predicted mean and
    variance of what is smoothed) and its covariance ``cross`` with the state: kept for the pass back.
    """

    mean: Vector
    variance: Vector
    error: Vector
    scale: Vector
    gain: Vector
    target: Vector
    cross: Vector

    @property
    def terms(self) -> Vector:
        """Log density of each value given those before it, [n, models]."""
        return np.asarray(-0.5 * (self.error**2 / self.scale + np.log(self.scale) + _LOG_2PI))


class Filter:
    """The recursion for some components; ``state`` moves with every value."""

    def __init__(self, components: Components, lag: int = 0, state: State | None = None) -> None:
        """``lag``: chains of correlated noise, 0 for independent noise. ``state``: from where to go on."""
        self._components = components
        models, self._d = components.variance.shape
        self.size = self._d + lag
        if state is None:
            covariance = np.zeros((models, self.size, self.size))
            covariance[:, np.arange(self._d), np.arange(self._d)] = components.variance
            state = State(np.zeros((models, self.size)), covariance, -1, np.zeros(lag))
        self.state = state
        self._moves: dict[int, tuple[Vector, Vector, Vector]] = {}

    def copy(self) -> "Filter":
        """Another one that goes on from the same state."""
        state = self.state
        kept = State(state.mean.copy(), state.covariance.copy(), state.slot, state.noise.copy())
        return Filter(self._components, self.size - self._d, kept)

    def run(self, observed: Observed, keep: bool = False) -> Trace:
        """Take the values in; ``keep`` what ``smooth`` needs."""
        n, (models, size) = len(observed.values), self.state.mean.shape
        kept = n if keep else 0
        mean, variance, error, scale = np.empty((4, n, models))
        gain, cross = np.empty((2, kept, models, size))
        trace = Trace(mean, variance, error, scale, gain, np.empty((2, kept, models)), cross)
        for i in range(n):
            self._predict(int(observed.slots[i]))
            self._update(observed, i, trace, keep)
        return trace

    def move(self, gap: int) -> tuple[Vector, Vector, Vector]:
        """(decay of the state, its outer product, variance that comes in) over ``gap`` slots."""
        if gap not in self._moves:
            decay = np.ones(self.state.mean.shape)
            decay[:, : self._d] = np.exp(-gap * self._components.rate)
            added = self._components.variance * -np.expm1(-2 * gap * self._components.rate)
            self._moves[gap] = (decay, decay[:, :, None] * decay[:, None, :], added)
        return self._moves[gap]

    def _predict(self, slot: int) -> None:
        state = self.state
        if state.slot >= 0 and slot > state.slot:
            decay, product, added = self.move(slot - state.slot)
            state.mean *= decay
            state.covariance *= product
            state.covariance[:, np.arange(self._d), np.arange(self._d)] += added
        state.slot = slot

    def _chain(self, noise: Noise, i: int) -> int:
        """The chain of value ``i``, its state moved to it: e_i = carried e_before + what is new."""
        assert noise.carried is not None
        mean, covariance = self.state.mean, self.state.covariance
        place = self.state.slot % noise.lag
        chain, share = int(self._d + place), noise.carried[i]
        mean[:, chain] *= share
        covariance[:, chain, :] *= share
        covariance[:, :, chain] *= share
        covariance[:, chain, chain] += noise.variance[i] - share**2 * self.state.noise[place]
        self.state.noise[place] = noise.variance[i]
        return chain

    def _update(self, observed: Observed, i: int, trace: Trace, keep: bool) -> None:
        noise, state = observed.noise, self.state
        h = np.zeros(self.size)
        h[: self._d] = observed.loading[i]
        chain = None
        if noise.carried is not None:
            chain = self._chain(noise, i)
            h[chain] = 1.0
        # A product per model: one of all of them would be large enough for BLAS to start threads.
        cross = np.matmul(state.covariance, h)
        known, predicted = cross @ h, state.mean @ h
        scale = known + noise.variance[i] if chain is None else known
        error = observed.values[i] - predicted
        gain = cross / scale[:, None]
        if keep:
            trace.gain[i] = gain
            trace.cross[i] = cross if chain is None else state.covariance[:, :, chain]
            trace.target[0, i] = predicted if chain is None else state.mean[:, chain]
            trace.target[1, i] = known if chain is None else state.covariance[:, chain, chain]
        state.mean += gain * error[:, None]
        state.covariance -= gain[:, :, None] * cross[:, None, :]
        trace.error[i], trace.scale[i] = error, scale
        if chain is None:
            trace.mean[i], trace.variance[i] = state.mean @ h, known * noise.variance[i] / scale
        else:
            # Value = signal + noise: what is known of the one is known of the other.
            trace.mean[i] = observed.values[i] - state.mean[:, chain]
            trace.variance[i] = state.covariance[:, chain, chain]


def smooth(run: Filter, observed: Observed, trace: Trace) -> tuple[Vector, Vector]:
    """(mean, variance) [n, models] of the signal at every slot given all values; ``trace`` kept by ``run``."""
    noise, d = observed.noise, observed.loading.shape[1]
    n, models = trace.error.shape
    adjoint, information = np.zeros((models, run.size)), np.zeros((models, run.size, run.size))
    mean, variance = np.empty((n, models)), np.empty((n, models))
    for i in reversed(range(n)):
        if i + 1 < n:
            _back(run, observed, i, adjoint, information)
        h = np.zeros(run.size)
        h[:d] = observed.loading[i]
        if noise.carried is not None:
            h[d + int(observed.slots[i]) % noise.lag] = 1.0
        gain = trace.gain[i]
        through = np.matmul(information, gain[:, :, None])[:, :, 0]
        ahead = 1.0 / trace.scale[i] + (gain * through).sum(axis=1)
        adjoint += ((trace.error[i] / trace.scale[i]) - (gain * adjoint).sum(axis=1))[:, None] * h
        half = through - 0.5 * ahead[:, None] * h
        information -= half[:, :, None] * h + h[:, None] * half[:, None, :]
        cross = trace.cross[i]
        mean[i] = trace.target[0, i] + (cross * adjoint).sum(axis=1)
        variance[i] = trace.target[1, i] - ((information @ cross[:, :, None])[:, :, 0] * cross).sum(axis=1)
    if noise.carried is not None:
        mean = observed.values[:, None] - mean
    return mean, np.maximum(variance, 0.0)


def _back(run: Filter, observed: Observed, i: int, adjoint: Vector, information: Vector) -> None:
    """Move what was learnt after slot ``i`` to it, in place."""
    noise, later = observed.noise, int(observed.slots[i + 1])
    if noise.carried is not None:
        chain, share = run.size - noise.lag + later % noise.lag, noise.carried[i + 1]
        adjoint[:, chain] *= share
        information[:, chain, :] *= share
        information[:, :, chain] *= share
    decay, product, _ = run.move(later - int(observed.slots[i]))
    adjoint *= decay
    information *= product
