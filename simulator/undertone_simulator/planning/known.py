"""A population with known readings, as planners use it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.population import Population
from undertone_aggregator.threshold import Query, Threshold, best_threshold, even_thetas, mean_excess
from undertone_aggregator.threshold.day import Day, piece_at, pieces_of
from undertone_aggregator.threshold.objective import Variance
from undertone_aggregator.threshold.two_sided import best_range, far_range
from undertone_simulator.planning.prediction import Prediction, Vector, noise
from undertone_simulator.readings.readings import ReadingSource, check_some

SAMPLE_DEVICES = 4096
SAMPLE_DAYS = 7
_CELLS = 800


@dataclass(frozen=True)
class KnownPopulation:
    """Readings in ``unit``: their distribution in total and by piece of the day, and the mean of each slot of the day.

    ``density`` [d] over integer ``edges`` [d + 1]; ``profile`` [slots of a day]; ``day``: the densities of the pieces.
    ``source``: where the readings come from.
    """

    source: ReadingSource
    unit: str
    bound: int
    per_day: int
    density: Vector
    edges: tuple[int, ...]
    profile: Vector
    mean: float
    day: Day

    @staticmethod
    def of(
        source: ReadingSource, bound: int, devices: int = SAMPLE_DEVICES, days: int = SAMPLE_DAYS
    ) -> "KnownPopulation":
        """Read the first days of the first devices; readings are clipped to [0, bound]. Raises Invalid."""
        edges = _edges(bound)
        cell_of = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        pieces = np.array([piece_at(slot, source.per_day) for slot in range(source.per_day)])
        shape = pieces_of(source.per_day), len(edges) - 1
        counts = np.zeros(shape, dtype=np.int64)
        sums, numbers = np.zeros(source.per_day), np.zeros(source.per_day)
        for day in range(days):
            values, present = source.part(0, devices, range(day * source.per_day, (day + 1) * source.per_day))
            reported = np.ones(values.shape, dtype=np.bool_) if present is None else present
            clipped = np.clip(values, 0, bound)
            cells = cell_of[clipped] + shape[1] * pieces[:, None]
            seen = cells.ravel() if present is None else cells[reported]
            counts += np.bincount(seen, minlength=counts.size).reshape(shape)
            sums += (clipped * reported).sum(axis=1)
            numbers += reported.sum(axis=1)
        check_some(sums)
        profile = sums / np.maximum(numbers, 1)
        densities = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        starts = tuple(int(first) for first in np.searchsorted(pieces, np.arange(shape[0])))
        by_time = Day(edges, densities[:, None, :], starts, np.bincount(pieces) / source.per_day)
        density, mean = counts.sum(axis=0) / counts.sum(), float(sums.sum() / numbers.sum())
        return KnownPopulation(source, source.unit, bound, source.per_day, density, edges, profile, mean, by_time)

    @property
    def population(self) -> Population:
        """The distribution of the readings of the whole day."""
        return Population(self.density, self.edges)

    @property
    def far_from_zero(self) -> bool:
        """True if nearly all readings are far from zero, as temperatures may be.

        Plans then give errors in the unit only, because a percentage of the mean would say nothing.
        """
        return far_range(self.density, self.edges, self.bound) is not None

    def best(self, reports: int, variance: Variance, query: str = "fleet", *, two_sided: bool = True) -> Threshold:
        """Return the range with the least mean squared error for ``reports`` reports a slot, if the readings are known.

        ``query``: a query of `Query.named`. ``two_sided``: True if readings far from zero are truncated from below as
        well.
        """
        thetas, summed = even_thetas(self.bound), Query.named(query, reports, turns=False)
        theta, error = best_threshold(self.density, self.edges, thetas, summed, variance)
        bias = float(mean_excess(self.density, self.edges, np.array([theta]))[0])
        chosen = Threshold(theta, theta, theta, bias, 0.0, error, self.density, self.edges, "known")
        if not two_sided or not self.far_from_zero:
            return chosen
        return best_range(chosen, self.density, self.edges, self.bound, summed, variance)

    def predicted(self, theta: int | NDArray[np.int64], variance: float, reports: float, bottom: int = 0) -> Prediction:
        """Return the errors of a mechanism with variance V, in units of half the range's width squared.

        ``theta``: one for all slots, or one for each slot of the day. ``bottom``: the lower end of the range.
        """
        thetas = np.broadcast_to(np.asarray(theta, dtype=np.int64), self.per_day)
        different, places = np.unique(thetas, return_inverse=True)
        pieces = [piece_at(slot, self.per_day) for slot in range(self.per_day)]
        bias = self.day.excess(different)[pieces, 0, places]
        if bottom:
            # The bias by truncation from below: E[(bottom - x)⁺] = E[(x - bottom)⁺] - E[x] + bottom.
            ends = self.day.excess(np.array([bottom, 0]))[pieces, 0]
            bias = bias - (ends[:, 0] - ends[:, 1] + bottom)
        return Prediction(np.broadcast_to(noise(thetas - bottom, variance, reports), self.per_day), bias)


def _edges(bound: int) -> tuple[int, ...]:
    """Return increasing integers from 0 to bound + 1: all small integers and some of the larger ones."""
    inner = np.rint(np.geomspace(1, bound + 1, _CELLS)).astype(np.int64)
    return (0, *(int(edge) for edge in np.unique(inner)))
