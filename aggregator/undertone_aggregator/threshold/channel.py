"""Channels: the linear map from the distribution of readings to the distribution of symbols.

A channel with `inputs` input cells and `outputs` output cells is a matrix A of conditional probabilities,
A[j, i] = P(symbol j | input cell i). Estimation needs only A f and Aᵀ g.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Window(Protocol):
    """The integers of a window mechanism (`undertone_shared.mechanism.WindowMechanism`)."""

    @property
    def a(self) -> int: ...
    @property
    def b(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def levels(self) -> int: ...
    @property
    def cells(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def edges(self) -> Sequence[int] | None: ...


class Channel(Protocol):
    """A linear map of probabilities; every column of its matrix sums to `copies`."""

    inputs: int
    outputs: int

    def apply(self, f: Vector) -> Vector:
        """A f; shapes [inputs] → [outputs]."""
        ...

    def adjoint(self, g: Vector) -> Vector:
        """Aᵀ g; shapes [outputs] → [inputs]."""
        ...


class WindowChannel:
    """The kernel of a window mechanism, applied in O(cells) by prefix sums.

    A[j, k] = (a if stride·k <= j < stride·k + window else b) / total, so that
    A f = (b Σf + (a - b)·window sum of f) / total: the mechanism's own integers, no rounded kernel.
    """

    def __init__(self, mechanism: Window) -> None:
        self.inputs = mechanism.levels + 1
        self.outputs = mechanism.cells
        self._inside = (mechanism.a - mechanism.b) / mechanism.total
        self._outside = mechanism.b / mechanism.total
        self._window = mechanism.window
        self._stride = mechanism.stride
        cell = np.arange(self.outputs)
        self._low = np.maximum(-((self._window - 1 - cell) // self._stride), 0)
        self._high = np.minimum(cell // self._stride + 1, self.inputs)
        self._start = self._stride * np.arange(self.inputs)
        self._sums = np.zeros(self.inputs + 1)
        self._cell_sums = np.zeros(self.outputs + 1)

    def apply(self, f: Vector) -> Vector:
        """A f, the law of the symbols when the levels follow `f`; shapes [levels + 1] → [cells]."""
        sums = self._sums
        np.cumsum(f, out=sums[1:])
        if self._stride == 1:
            out: Vector = np.empty(self.outputs)
            out[: self.inputs] = sums[1:]
            out[self.inputs :] = sums[-1]
            out[self._window :] -= sums[1 : self.outputs - self._window + 1]
        else:
            out = sums[self._high] - sums[self._low]
        out *= self._inside
        out += self._outside * sums[-1]
        return out

    def adjoint(self, g: Vector) -> Vector:
        """Aᵀ g; shapes [cells] → [levels + 1]."""
        sums = self._cell_sums
        np.cumsum(g, out=sums[1:])
        if self._stride == 1:
            out: Vector = sums[self._window :] - sums[: self.inputs]
        else:
            out = sums[self._start + self._window] - sums[self._start]
        out *= self._inside
        out += self._outside * sums[-1]
        return out

    def matrix(self) -> Vector:
        """A itself; shape [cells, levels + 1]."""
        cell, start = np.arange(self.outputs)[:, None], self._start[None, :]
        within = (cell >= start) & (cell < start + self._window)
        return np.asarray(self._outside + self._inside * within)


class MatrixChannel:
    """Any channel as a dense matrix [outputs, inputs] of conditional probabilities."""

    def __init__(self, matrix: Vector) -> None:
        self.matrix = matrix
        self.outputs, self.inputs = matrix.shape

    def apply(self, f: Vector) -> Vector:
        """A f; shapes [inputs] → [outputs]."""
        return np.asarray(self.matrix @ f)

    def adjoint(self, g: Vector) -> Vector:
        """Aᵀ g; shapes [outputs] → [inputs]."""
        return np.asarray(g @ self.matrix)


class CoarseChannel:
    """A channel seen from a finer grid: input cell i of the fine grid acts as cell `starts`-wise of `inner`.

    `starts[k]` is the first fine cell of coarse cell k (increasing, starts[0] == 0); `inputs` is the number
    of fine cells.
    """

    def __init__(self, inner: Channel, starts: Sequence[int], inputs: int) -> None:
        first = np.asarray(starts, dtype=np.intp)
        if len(first) != inner.inputs or first[0] != 0 or np.any(np.diff(first) <= 0) or first[-1] >= inputs:
            raise ValueError("coarse cells must be increasing, non-empty and as many as the channel's inputs")
        self.inputs = inputs
        self.outputs = inner.outputs
        self._inner = inner
        self._starts = first
        self._sizes = np.diff(np.append(first, inputs))

    def apply(self, f: Vector) -> Vector:
        """A C f with C the sums over coarse cells; shapes [inputs] → [outputs]."""
        return self._inner.apply(np.add.reduceat(f, self._starts))

    def adjoint(self, g: Vector) -> Vector:
        """Cᵀ Aᵀ g; shapes [outputs] → [inputs]."""
        return np.repeat(self._inner.adjoint(g), self._sizes)


class StackedChannel:
    """Several channels that see the same distribution, their symbols one after another.

    Each column sums to the number of channels. Likelihoods add, so one expectation maximisation serves all.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        if not channels or len({channel.inputs for channel in channels}) != 1:
            raise ValueError("stacked channels must share their input cells")
        self.inputs = channels[0].inputs
        self.outputs = sum(channel.outputs for channel in channels)
        self._channels = tuple(channels)
        ends = np.cumsum([channel.outputs for channel in channels]).tolist()
        self._parts = [slice(end - one.outputs, end) for one, end in zip(channels, ends, strict=True)]

    def apply(self, f: Vector) -> Vector:
        """All A_r f, concatenated; shapes [inputs] → [outputs]."""
        return np.concatenate([channel.apply(f) for channel in self._channels])

    def adjoint(self, g: Vector) -> Vector:
        """Σ_r A_rᵀ g_r; shapes [outputs] → [inputs]."""
        total: Vector = np.zeros(self.inputs)
        for channel, part in zip(self._channels, self._parts, strict=True):
            total += channel.adjoint(g[part])
        return total
