"""Kalman filter and smoother of a sum of Ornstein-Uhlenbeck components, several models side by side, in O(n d²).

    y_i = h_i · x(t_i) + e_i

x: d independent components; component k of model m has the variance ``variance[m, k]`` and the correlation
exp(-``rate[m, k]`` D) over D slots. h_i [d]: weight of each component in slot i (a harmonic of the day at the slot's
phase, 1 for a level). Because the phase is in h_i, the transition is diagonal; a rotating state would need a dense one
(Solin & Särkkä, AISTATS 2014, in the rotating frame). e_i: noise of known variance, independent, or an AR(1) per chain
with a state of its own.

Values are processed in blocks of `BLOCK`. A block is a small dense Gaussian, and the state links the blocks, so that
most of the work is products of matrices. The Cholesky factor of a block gives each of its values given those before it.
Smoothing estimates the noise of each value, which is the value minus the signal: Durbin & Koopman, Time Series Analysis
by State Space Methods, 2012, 4.5, block by block.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
BLOCK = 24
_LOG_2PI = float(np.log(2 * np.pi))
# Number of models of blocks in the cache. Slots and loadings repeat with the cycle, so few different ones are needed.
_SHAPES = 32


@dataclass(frozen=True)
class Components:
    """The components of the signal: variances and decay rates per slot, both [models, d]."""

    variance: Vector
    rate: Vector


@dataclass(frozen=True)
class Noise:
    """Noise: ``variance`` [n] in each slot.

    ``carried`` [n]: the regression coefficient of a slot's noise on the noise of the slot before it on the same chain;
    0 if a chain begins; None for independent noise. ``lag``: number of chains, which alternate by slot. ``chance``:
    chance error of the signal itself in a slot, as a share of the noise's standard deviation.
    """

    variance: Vector
    carried: Vector | None = None
    lag: int = 1
    chance: float = 0.0

    def part(self, first: int, stop: int) -> "Noise":
        """Return the noise of the values first <= i < stop."""
        carried = None if self.carried is None else self.carried[first:stop]
        return Noise(self.variance[first:stop], carried, self.lag, self.chance)


@dataclass(frozen=True)
class Observed:
    """Observations: ``slots`` [n] ascending, ``values`` [n], ``loading`` [n, d] of the components, and the noise."""

    slots: NDArray[np.int64]
    values: Vector
    loading: Vector
    noise: Noise

    def blocks(self) -> "Iterator[tuple[int, Observed]]":
        """Yield (first index, observations) of each block."""
        for first in range(0, len(self.values), BLOCK):
            part = slice(first, first + BLOCK)
            noise = self.noise.part(first, first + BLOCK)
            yield first, Observed(self.slots[part], self.values[part], self.loading[part], noise)


@dataclass
class State:
    """State after ``slot``: mean [models, d + chains] and covariance [models, d + chains, d + chains].

    ``noise`` [chains]: prior variance of each chain's last noise.
    """

    mean: Vector
    covariance: Vector
    slot: int
    noise: Vector


@dataclass(frozen=True)
class _Shape:
    """Model of a block of b slots, given the state x before it: signal = ``loading`` x + w, and state after it =
    ``decay`` x + z.

    ``loading`` [models, b, size]; ``decay``, ``added`` (variance of z) [models, size]; ``signal`` [models, b, b]:
    covariance of w; ``cross`` [models, b, size]: covariance of w and z.
    """

    loading: Vector
    decay: Vector
    signal: Vector
    cross: Vector
    added: Vector


class _NoiseOfBlock(Protocol):
    """The joint distribution of a block's noise, its values and the state after it, given the state before it."""

    def so_far(self, whitening: Vector, white: Vector) -> tuple[Vector, Vector]:
        """Return (mean, variance) of each value's noise given the block's values up to it; both [models, b].

        ``whitening`` [models, b, b] is lower triangular. It turns the errors of the values' predictions into ``white``
        [models, b, 1], independent values of variance 1.
        """

    def given_all(self, step: "_Kept", future: "_Future") -> tuple[Vector, Vector]:
        """Return (mean, variance) of each value's noise given all values of the series; both [models, b]."""


@dataclass(frozen=True)
class _Independent:
    """Independent noise: ``variance`` [b]."""

    variance: Vector

    def so_far(self, whitening: Vector, white: Vector) -> tuple[Vector, Vector]:
        share = self.variance * np.diagonal(whitening, axis1=1, axis2=2)
        return share * white[:, :, 0], self.variance - share**2

    def given_all(self, step: "_Kept", future: "_Future") -> tuple[Vector, Vector]:
        known = np.diagonal(future.information, axis1=1, axis2=2)
        return self.variance * future.surprise[:, :, 0], self.variance - self.variance**2 * known


@dataclass(frozen=True)
class _Chained:
    """Noise of chains in a block's b values, given the state before the block: ``mean`` and ``variance`` [models, b].

    ``with_values`` [models, b, b]: its covariances with the block's values. ``with_state`` [models, b, size]: its
    covariances with the state after the block.
    """

    mean: Vector
    variance: Vector
    with_values: Vector
    with_state: Vector

    def so_far(self, whitening: Vector, white: Vector) -> tuple[Vector, Vector]:
        gain = np.triu(whitening @ self.with_values.transpose(0, 2, 1))
        return self.mean + (gain * white).sum(axis=1), self.variance - (gain**2).sum(axis=1)

    def given_all(self, step: "_Kept", future: "_Future") -> tuple[Vector, Vector]:
        mean = self.mean + (self.with_values @ future.surprise + self.with_state @ future.adjoint)[:, :, 0]
        ahead = self.with_state - self.with_values @ step.onto
        known = (self.with_values @ step.precision * self.with_values).sum(axis=2)
        return mean, self.variance - known - (ahead @ future.after * ahead).sum(axis=2)


@dataclass(frozen=True)
class _Kept:
    """Results of a block that the backward pass needs; all [models, ...].

    ``values`` [b]. With S the covariance of the values' errors of prediction: ``precision`` [b, b] is the inverse of S,
    ``surprise`` [b, 1] the inverse times the errors, and ``onto`` [b, size] the inverse times the covariance of the
    values and the state after the block. ``loading`` [b, size]: loading of the state before the block; ``decay``
    [size].
    """

    values: Vector
    precision: Vector
    surprise: Vector
    onto: Vector
    loading: Vector
    decay: Vector
    noise: _NoiseOfBlock


@dataclass(frozen=True)
class _Future:
    """What all values from a block on say about the state; all [models, ...].

    ``adjoint`` [size, 1] and ``after`` [size, size]: the scaled mean and the information about the state after the
    block. ``surprise`` [b, 1], ``information`` [b, b]: as `_Kept.surprise` and `_Kept.precision`, but given the later
    values, too.
    """

    adjoint: Vector
    after: Vector
    surprise: Vector
    information: Vector


@dataclass
class Trace:
    """Results of a forward pass for each slot, [n, models].

    ``mean``, ``variance``: the signal given the slots up to it. ``error``, ``scale``: each value minus its prediction,
    and the variance of this error. ``kept``: input of the backward pass.
    """

    mean: Vector
    variance: Vector
    error: Vector
    scale: Vector
    kept: list[_Kept] = field(default_factory=list)

    @property
    def terms(self) -> Vector:
        """Return the log density of each value given those before it, [n, models]."""
        return np.asarray(-0.5 * (self.error**2 / self.scale + np.log(self.scale) + _LOG_2PI))


class Filter:
    """The Kalman recursion for some components; ``state`` advances with every value."""

    def __init__(self, components: Components, lag: int = 0, state: State | None = None) -> None:
        """``lag``: number of chains of correlated noise, 0 for independent noise.

        ``state``: the state to start from.
        """
        self._components = components
        models, self._d = components.variance.shape
        self.size = self._d + lag
        if state is None:
            covariance = np.zeros((models, self.size, self.size))
            covariance[:, np.arange(self._d), np.arange(self._d)] = components.variance
            state = State(np.zeros((models, self.size)), covariance, -1, np.zeros(lag))
        self.state = state
        # Columns that have equal decay rates in every model share a matrix of correlations.
        self._rates, self._alike = np.unique(components.rate, axis=1, return_inverse=True)
        self._shapes: dict[tuple[bytes, bytes], _Shape] = {}

    def copy(self) -> "Filter":
        """Return a copy that continues from the same state."""
        state = self.state
        copied = State(state.mean.copy(), state.covariance.copy(), state.slot, state.noise.copy())
        return Filter(self._components, self.size - self._d, copied)

    def run(self, observed: Observed, keep: bool = False, signal: bool = True) -> Trace:
        """Advance the filter over these values. ``keep``: store the input of ``smooth``.

        Without ``signal`` and ``keep``, only ``error`` and ``scale`` of the trace are filled.
        """
        trace = Trace(*np.empty((4, len(observed.values), len(self.state.mean))))
        for first, block in observed.blocks():
            self._take(block, slice(first, first + BLOCK), trace, signal or keep, keep)
        return trace

    def _shape(self, block: Observed) -> _Shape:
        """Return the model of the signal in a block's slots, by its loadings; equal blocks share one cached model.

        The model does not include the noise: its columns for the chains are 0, or leave the chains' state as it is.
        """
        since = block.slots - (self.state.slot if self.state.slot >= 0 else block.slots[0])
        key = (since.tobytes(), block.loading.tobytes())
        if key not in self._shapes:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            self._shapes[key] = self._shaped(since.astype(np.float64), block.loading)
        return self._shapes[key]

    def _shaped(self, since: Vector, h: Vector) -> _Shape:
        models, b = len(self.state.mean), len(since)
        variance = self._components.variance
        loading, cross = np.zeros((2, models, b, self.size))
        decay, added = np.ones((models, self.size)), np.zeros((models, self.size))
        signal = np.zeros((models, b, b))
        gaps = np.abs(since[:, None] - since[None, :])
        for group in range(self._rates.shape[1]):
            columns = np.flatnonzero(self._alike.ravel() == group)
            rate, waves = self._rates[:, group, None], h[:, columns]
            gone = np.exp(-rate * since)
            still = gone[:, :, None] * gone[:, None, :]
            alike = (waves * variance[:, None, columns]) @ waves.T
            signal += alike * (np.exp(-rate[:, :, None] * gaps) - still)
            loading[:, :, columns] = gone[:, :, None] * waves
            left = np.exp(-rate * (since[-1] - since)) - gone[:, -1:] * gone
            cross[:, :, columns] = left[:, :, None] * waves * variance[:, None, columns]
            decay[:, columns] = gone[:, -1:]
            added[:, columns] = variance[:, columns] * -np.expm1(-2 * rate * since[-1])
        return _Shape(loading, decay, signal, cross, added)

    def _take(self, block: Observed, part: slice, trace: Trace, signal: bool, keep: bool) -> None:
        state, shape = self.state, self._shape(block)
        noisy, noise = self._noisy(block, shape)
        of_values = noisy.loading @ state.covariance
        root = np.linalg.cholesky(of_values @ noisy.loading.transpose(0, 2, 1) + noisy.signal)
        whitening = np.linalg.inv(root)
        white = whitening @ (block.values - (noisy.loading @ state.mean[:, :, None])[:, :, 0])[:, :, None]
        onto = whitening @ (of_values * noisy.decay[:, None, :] + noisy.cross)
        deviation = np.diagonal(root, axis1=1, axis2=2)
        trace.error[part], trace.scale[part] = (white[:, :, 0] * deviation).T, (deviation**2).T
        if signal:
            mean, variance = noise.so_far(whitening, white)
            trace.mean[part], trace.variance[part] = (block.values - mean).T, variance.T
        if keep:
            back = whitening.transpose(0, 2, 1)
            precise = (back @ whitening, back @ white, back @ onto)
            trace.kept.append(_Kept(block.values, *precise, noisy.loading, noisy.decay, noise))
        turned = onto.transpose(0, 2, 1)
        state.mean = state.mean * noisy.decay + (turned @ white)[:, :, 0]
        state.covariance = state.covariance * (noisy.decay[:, :, None] * noisy.decay[:, None, :]) - turned @ onto
        state.covariance[:, np.arange(self.size), np.arange(self.size)] += noisy.added
        state.slot = int(block.slots[-1])

    def _noisy(self, block: Observed, shape: _Shape) -> tuple[_Shape, _NoiseOfBlock]:
        """Return (model of a block's values, its noise); the first is the signal's model with the noise added."""
        if block.noise.carried is None:
            variance = block.noise.variance
            return replace(shape, signal=shape.signal + np.diag(variance)), _Independent(variance)
        state = self.state
        loading, covariance, last = self._chains(block)
        chains = slice(self._d, self.size)
        changed = {name: getattr(shape, name).copy() for name in ("loading", "decay", "cross", "added")}
        noisy = _Shape(signal=shape.signal + covariance, **changed)
        noisy.loading[:, :, chains] = loading
        of_noise = loading @ state.covariance[:, chains]
        with_values = of_noise @ noisy.loading.transpose(0, 2, 1) + covariance
        variance = (of_noise[:, :, chains] * loading).sum(axis=2) + np.diag(covariance)
        for chain, place in enumerate(last.tolist()):
            if place >= 0:
                noisy.decay[:, self._d + chain] = loading[place, chain]
                noisy.added[:, self._d + chain] = covariance[place, place]
                noisy.cross[:, :, self._d + chain] = covariance[:, place]
        with_state = of_noise * noisy.decay[:, None, :]
        with_state[:, :, chains] += noisy.cross[:, :, chains]
        mean = state.mean[:, chains] @ loading.T
        return noisy, _Chained(mean, variance, with_values, with_state)

    def _chains(self, block: Observed) -> tuple[Vector, Vector, NDArray[np.int64]]:
        """Return the block's noise as loading x + u: (loading [b, chains], covariance of u [b, b], last index of each
        chain).

        Value by value, e_i = carried e_before + new noise. The index is -1 for a chain without a value.
        """
        noise, before = block.noise, self.state.noise
        assert noise.carried is not None
        b, lag = len(block.values), noise.lag
        loading, covariance, last = np.zeros((b, lag)), np.zeros((b, b)), np.full(lag, -1)
        pairs = zip((block.slots % lag).tolist(), noise.carried.tolist(), noise.variance.tolist(), strict=True)
        for i, (chain, share, variance) in enumerate(pairs):
            j = last[chain]
            covariance[i, i] = variance - share**2 * before[chain]
            if j < 0:
                loading[i, chain] = share
            else:
                loading[i] = share * loading[j]
                covariance[i, :i] = covariance[:i, i] = share * covariance[j, :i]
                covariance[i, i] += share**2 * covariance[j, j]
            before[chain], last[chain] = variance, i
        return loading, covariance, last


def smooth(trace: Trace) -> tuple[Vector, Vector]:
    """Return (mean, variance) [n, models] of the signal at every slot given all values.

    ``trace``: the result of ``run`` with ``keep``. A value is signal plus noise. So the signal's mean is the value
    minus the noise's mean, and both have the same variance.
    """
    models, size = trace.kept[0].decay.shape
    adjoint, after = np.zeros((models, size, 1)), np.zeros((models, size, size))
    means, variances = [], []
    for step in reversed(trace.kept):
        ahead = step.onto @ after
        information = step.precision + ahead @ step.onto.transpose(0, 2, 1)
        surprise = step.surprise - step.onto @ adjoint
        mean, variance = step.noise.given_all(step, _Future(adjoint, after, surprise, information))
        means.append(step.values - mean)
        variances.append(variance)
        turned = step.loading.transpose(0, 2, 1)
        adjoint = step.decay[:, :, None] * adjoint + turned @ surprise
        half = turned @ (information @ step.loading / 2.0 - ahead * step.decay[:, None, :])
        after = step.decay[:, :, None] * after * step.decay[:, None, :] + half + half.transpose(0, 2, 1)
    mean, variance = np.concatenate(means[::-1], axis=1), np.concatenate(variances[::-1], axis=1)
    return mean.T, np.maximum(variance.T, 0.0)
