"""A population's readings by slot of the day, for slots of any length."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_simulator.readings.readings import Source, check_some

Vector = NDArray[np.float64]

DAYS = 28
DEVICES = 2048
_CELLS = 400


@dataclass(frozen=True)
class Slots:
    """Readings of a population by slot of the day, each the sum over ``span`` slots of the data.

    ``density`` [slots of a day, d] over ``edges`` [d + 1]; ``means`` [days × slots]; ``values`` [the same, devices].
    """

    span: int
    density: Vector
    edges: tuple[int, ...]
    means: Vector
    values: NDArray[np.int64]

    @staticmethod
    def of(source: Source, bound: int, span: int, days: int = DAYS, devices: int = DEVICES) -> "Slots":
        """From the first days of the first devices; single readings are clipped to [0, bound]."""
        per_day = source.per_day // span
        days_values = []
        for day in range(days):
            read, present = source.part(0, devices, range(day * source.per_day, (day + 1) * source.per_day))
            clipped = np.clip(read, 0, bound) if present is None else np.clip(read, 0, bound) * present
            days_values.append(clipped[: per_day * span].reshape(per_day, span, -1).sum(axis=1))
        values = np.stack(days_values)
        check_some(values)
        inner = np.rint(np.geomspace(1, bound * span + 1, _CELLS)).astype(np.int64)
        edges = np.append(0, np.unique(inner))
        cells = np.searchsorted(edges, values, side="right") - 1
        density = np.stack([np.bincount(cells[:, t].ravel(), minlength=len(edges) - 1) for t in range(per_day)])
        means = values.mean(axis=2).ravel()
        flat = values.reshape(days * per_day, -1)
        return Slots(span, density / density.sum(axis=1, keepdims=True), tuple(edges.tolist()), means, flat)

    @property
    def per_day(self) -> int:
        """Slots of a day."""
        return len(self.density)

    @property
    def raw(self) -> Vector:
        """The mean reading in each slot of the day; shape [slots]."""
        return np.asarray(self.values.reshape(-1, self.per_day, self.values.shape[1]).mean(axis=(0, 2)))

    def moments(self, thetas: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """(mean, variance) of min(x, θ) in each slot of the day; shape [θ, slots]."""
        day = self.values.reshape(-1, self.per_day, self.values.shape[1])
        truncated = [np.minimum(day, theta) for theta in thetas]
        return np.array([t.mean(axis=(0, 2)) for t in truncated]), np.array([t.var(axis=(0, 2)) for t in truncated])
