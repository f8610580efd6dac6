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
    """A linear map of probabilities. Each column of its matrix sums to 1, or to the number of stacked channels."""

    inputs: int
    outputs: int

    def apply(self, f: Vector) -> Vector:
        """Return A f, the probabilities of the symbols for inputs of distribution f; shapes [inputs] → [outputs]."""
        ...

    def adjoint(self, g: Vector) -> Vector:
        """Return Aᵀ g, the transposed map of a vector g over the symbols; shapes [outputs] → [inputs]."""
        ...

    def columns(self, cells: NDArray[np.intp]) -> Vector:
        """Return the columns of A for some input cells; shapes [n] → [outputs, n]."""
        ...


class WindowChannel:
    """Channel of a window mechanism, applied in O(cells) by prefix sums.

    A[j, k] = (a if stride·k <= j < stride·k + window else b) / total, so that A f = (b Σf + (a - b)·window sum of f) /
    total. a, b and total are the mechanism's own integers. An instance reuses its work arrays, so only one thread may
    use it at a time.
    """

    def __init__(self, mechanism: Window) -> None:
        self.inputs = mechanism.levels + 1
        self.outputs = mechanism.cells
        self._inside = (mechanism.a - mechanism.b) / mechanism.total
        self._outside = mechanism.b / mechanism.total
        self._window = mechanism.window
        stride = mechanism.stride
        self._plain = stride == 1
        self._start = stride * np.arange(self.inputs)
        # Prefix sums of f after a window of zeros, with their last value repeated at the end. For stride 1 a window sum
        # is then the difference of two slices.
        self._sums: Vector = np.zeros(mechanism.window + self.outputs)
        self._filled = self._sums[mechanism.window : mechanism.window + self.inputs]
        self._beyond = self._sums[mechanism.window + self.inputs :]
        self._upper, self._lower = self._sums[mechanism.window :], self._sums[: self.outputs]
        cell = np.arange(self.outputs)
        self._last = mechanism.window + np.minimum(cell // stride, mechanism.levels)
        self._before = mechanism.window - 1 + np.maximum(-((mechanism.window - 1 - cell) // stride), 0)
        self._cell_sums: Vector = np.zeros(self.outputs + 1)
        self._cells_filled = self._cell_sums[1:]
        self._from = self._cell_sums[: self.inputs]
        self._to = self._cell_sums[mechanism.window : mechanism.window + self.inputs]

    def apply(self, f: Vector) -> Vector:
        """Return A f, the distribution of the symbols when the levels follow `f`; shapes [levels + 1] → [cells]."""
        np.add.accumulate(f, out=self._filled)
        total = self._filled[-1]
        self._beyond.fill(total)
        if self._plain:
            out: Vector = np.subtract(self._upper, self._lower)
        else:
            out = self._sums[self._last] - self._sums[self._before]
        out *= self._inside
        out += self._outside * total
        return out

    def adjoint(self, g: Vector) -> Vector:
        """Return Aᵀ g, the transposed map of a vector g over the symbols; shapes [cells] → [levels + 1]."""
        np.add.accumulate(g, out=self._cells_filled)
        if self._plain:
            out: Vector = np.subtract(self._to, self._from)
        else:
            out = self._cell_sums[self._start + self._window] - self._cell_sums[self._start]
        out *= self._inside
        out += self._outside * self._cell_sums[-1]
        return out

    def columns(self, cells: NDArray[np.intp]) -> Vector:
        """Return the columns of A for some levels; shapes [n] → [cells, n]."""
        cell, start = np.arange(self.outputs)[:, None], self._start[cells]
        within = (cell >= start) & (cell < start + self._window)
        return np.asarray(self._outside + self._inside * within)

    def matrix(self) -> Vector:
        """Return the matrix A; shape [cells, levels + 1]."""
        return self.columns(np.arange(self.inputs))


class MatrixChannel:
    """Channel given by a dense matrix [outputs, inputs] of conditional probabilities."""

    def __init__(self, matrix: Vector) -> None:
        self.matrix = matrix
        self.outputs, self.inputs = matrix.shape

    def apply(self, f: Vector) -> Vector:
        """Return A f, the probabilities of the symbols for inputs of distribution f; shapes [inputs] → [outputs]."""
        return np.asarray(self.matrix @ f)

    def adjoint(self, g: Vector) -> Vector:
        """Return Aᵀ g, the transposed map of a vector g over the symbols; shapes [outputs] → [inputs]."""
        return np.asarray(g @ self.matrix)

    def columns(self, cells: NDArray[np.intp]) -> Vector:
        """Return the columns of A for some input cells; shapes [n] → [outputs, n]."""
        return np.asarray(self.matrix[:, cells])


class CoarseChannel:
    """Channel on a finer grid of input cells: each fine cell acts as the coarse cell of `inner` that contains it.

    `starts[k]` is the first fine cell of coarse cell k (increasing, starts[0] == 0); `inputs` is the number
    of fine cells.
    """

    def __init__(self, inner: Channel, starts: Sequence[int], inputs: int) -> None:
        first = np.asarray(starts, dtype=np.intp)
        if len(first) != inner.inputs or first[0] != 0 or np.any(np.diff(first) <= 0) or first[-1] >= inputs:
            raise ValueError(
                f"starts has {len(first)} integers, expected {inner.inputs} that increase from 0 to below {inputs}"
            )
        self.inputs = inputs
        self.outputs = inner.outputs
        self._inner = inner
        self._starts = first
        self._sizes = np.diff(np.append(first, inputs))

    def apply(self, f: Vector) -> Vector:
        """Return A C f, where C sums fine cells into coarse ones; shapes [inputs] → [outputs]."""
        return self._inner.apply(np.add.reduceat(f, self._starts))

    def adjoint(self, g: Vector) -> Vector:
        """Return Cᵀ Aᵀ g; shapes [outputs] → [inputs]."""
        return np.repeat(self._inner.adjoint(g), self._sizes)

    def columns(self, cells: NDArray[np.intp]) -> Vector:
        """Return the columns of A C for some fine cells; shapes [n] → [outputs, n]."""
        return self._inner.columns(np.searchsorted(self._starts, cells, side="right") - 1)


class StackedChannel:
    """Several channels fed by the same distribution; their outputs are concatenated.

    Each column sums to the number of channels. Log-likelihoods add, so one expectation maximisation fits all channels.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        if not channels or len({channel.inputs for channel in channels}) != 1:
            raise ValueError("there is no channel, or the channels have different input cells, expected the same cells")
        self.inputs = channels[0].inputs
        self.outputs = sum(channel.outputs for channel in channels)
        self._channels = tuple(channels)
        ends = np.cumsum([channel.outputs for channel in channels]).tolist()
        self._parts = [slice(end - channel.outputs, end) for channel, end in zip(channels, ends, strict=True)]

    def apply(self, f: Vector) -> Vector:
        """Return the products A_r f of all channels, concatenated; shapes [inputs] → [outputs]."""
        return np.concatenate([channel.apply(f) for channel in self._channels])

    def adjoint(self, g: Vector) -> Vector:
        """Return Σ_r A_rᵀ g_r over the channels r, where g_r is a channel's part of g; [outputs] → [inputs]."""
        total: Vector = np.zeros(self.inputs)
        for channel, part in zip(self._channels, self._parts, strict=True):
            total += channel.adjoint(g[part])
        return total

    def columns(self, cells: NDArray[np.intp]) -> Vector:
        """Return the columns of all matrices for some input cells, one below the other; shapes [n] → [outputs, n]."""
        return np.concatenate([channel.columns(cells) for channel in self._channels])
