"""The tail model of readings: S(x) = P(reading >= x) is locally Weibull.

A share 1 - π of the readings is zero. For the others, with u = ln x, z(u) = ln(-ln(S/π)) is piecewise linear with
slopes e^κ_j > 0. One constant slope is exactly a Weibull distribution. The prior lets κ vary slowly, so that the tail
beyond the data continues the shape before it. In some components κ varies fast below a point, the anchor, so that the
body of the distribution may have any shape.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from undertone_aggregator.threshold.channel import Vector

SPACING = 0.35
# Distance of the knots if the median and the 99 % quantile of the readings are at most two usual distances apart. Two
# segments of the usual length could not follow the end of such a distribution.
FINE_SPACING = 0.1
MAX_KNOTS = 56
# Standard deviation of the change of κ over one unit of u, with a variance proportional to the distance: in the tail,
# and in a body that may have any shape.
STIFF = 0.25
FREE = 1.5
_LEVEL_SPREAD = 5.0
# Prior mean and standard deviation of the logit of the share of readings above zero: usually nearly all readings are
# above zero, but possibly few.
_POSITIVE, _POSITIVE_SPREAD = 5.0, 2.5
# For z beyond this limit the survival is zero in floating point. Up to this limit e^z is finite.
_LARGEST = 50.0


@dataclass(frozen=True)
class Component:
    """One component of the prior of the tail model: what is expected of its slopes e^κ along u = ln x.

    `slope`: expected slope at the anchor; `spread`: standard deviation of κ there. `bend`: expected curvature,
    d(1/slope)/du: 0 is a Weibull, 1/2 a lognormal, 1 a Pareto tail. `free_above`: κ may vary fast where S exceeds this
    number (1: nowhere; 0: wherever the data determine κ). `free`: how fast it may vary there, as the standard deviation
    of its change over one unit of u; the variance is proportional to the distance in u. `weight`: prior probability of
    the component.
    """

    slope: float
    spread: float
    bend: float
    free_above: float
    weight: float
    free: float = FREE


@dataclass(frozen=True)
class Prior:
    """N(mean, precision⁻¹) of the parameters (z at the reference, κ_1, …, κ_J, ln(π/(1 - π))); shapes [p], [p, p]."""

    mean: Vector
    precision: Vector

    @cached_property
    def log_determinant(self) -> float:
        """Logarithm of the determinant of the precision."""
        return float(np.linalg.slogdet(self.precision)[1])


@dataclass(frozen=True)
class TailModel:
    """The piecewise linear z(u) of the module: its `knots` [J + 1], increasing in u = ln x, and `reference`.

    Its parameters are z at the point `reference`, one κ for each of the J segments between knots, and the logit of π.
    """

    knots: Vector
    reference: float

    @staticmethod
    def over(bound: int, reference: float, upper: float = np.inf) -> "TailModel":
        """Make a model with evenly spaced knots from below u = 0 to ln(bound + 1).

        ``upper``: distance in u, roughly, from the median of the readings to the start of their largest percent.
        """
        top = float(np.log(bound + 1.0))
        least = SPACING if upper > 2.0 * SPACING else FINE_SPACING
        spacing = max(least, (top + least) / (MAX_KNOTS - 1))
        count = int(np.ceil((top + least) / spacing))
        return TailModel(top - spacing * np.arange(count, -1.0, -1.0), reference)

    @property
    def middles(self) -> Vector:
        """Midpoint of each segment, to which its κ_j belongs; shape [J]."""
        return np.asarray((self.knots[1:] + self.knots[:-1]) / 2.0)

    def lengths(self, u: Vector) -> Vector:
        """Return the length of the part of [reference, u] within each segment; [m] → [m, J].

        Lengths are negative if u lies below the reference. The first and the last segment are unbounded at their outer
        ends.
        """
        low, high = self.knots[:-1].copy(), self.knots[1:].copy()
        low[0], high[-1] = -np.inf, np.inf
        return np.asarray(np.clip(u[:, None], low, high) - np.clip(self.reference, low, high))

    def prior(self, component: Component, anchor: float) -> Prior:
        """Return the component's prior of the parameters. Its `slope` is the slope at u = `anchor`.

        Below the anchor κ varies as fast as the component's `free` allows, unless its `free_above` is 1.
        """
        middle = self.middles
        flat = 1.0 / component.slope
        inverse = np.maximum(flat + component.bend * (middle - anchor), 0.3 * flat)
        between = (middle[1:] + middle[:-1]) / 2.0
        step = np.where((between < anchor) & (component.free_above < 1.0), component.free, STIFF)
        information = 1.0 / (step * step * np.diff(middle))
        precision = np.zeros((len(middle) + 2, len(middle) + 2))
        precision[0, 0] = 1.0 / _LEVEL_SPREAD**2
        precision[-1, -1] = 1.0 / _POSITIVE_SPREAD**2
        walk = precision[1:-1, 1:-1]
        i = np.arange(len(information))
        walk[i, i] += information
        walk[i + 1, i + 1] += information
        walk[i, i + 1] -= information
        walk[i + 1, i] -= information
        held = int(np.argmin(np.abs(middle - anchor - SPACING / 2.0)))
        walk[held, held] += 1.0 / component.spread**2
        return Prior(np.concatenate([[0.0], -np.log(inverse), [_POSITIVE]]), precision)


def survival(parameters: Vector, lengths: Vector) -> Vector:
    """Return S at the points of `lengths` [m, J], all above zero; parameters [..., J + 2] → [..., m]."""
    z = parameters[..., :1] + np.exp(parameters[..., 1:-1]) @ lengths.T
    return np.asarray(_positive(parameters)[..., None] * np.exp(-np.exp(np.minimum(z, _LARGEST))))


def survival_slope(parameters: Vector, lengths: Vector) -> tuple[Vector, Vector]:
    """Return S [m] and ∂S/∂parameters [m, J + 2] at the points of `lengths` [m, J], for parameters [J + 2]."""
    rates = np.exp(parameters[1:-1])
    share = float(_positive(parameters))
    hazard = np.exp(np.minimum(parameters[0] + lengths @ rates, _LARGEST))
    s = share * np.exp(-hazard)
    slope = np.empty((len(s), len(parameters)))
    slope[:, 0] = 1.0
    slope[:, 1:-1] = lengths * rates
    slope[:, :-1] *= -(hazard * s)[:, None]
    slope[:, -1] = (1.0 - share) * s
    return s, slope


def survival_rates(parameters: Vector, lengths: Vector) -> tuple[Vector, Vector, Vector]:
    """Return S, ∂S/∂z and ∂S/∂ln(π/(1 - π)) at the points of `lengths` [m, J]; parameters [n, J + 2] → three [n, m].

    ∂S/∂κ_j is ∂S/∂z · lengths_j e^κ_j.
    """
    share = _positive(parameters)[:, None]
    hazard = np.exp(np.minimum(parameters[:, :1] + np.exp(parameters[:, 1:-1]) @ lengths.T, _LARGEST))
    s = share * np.exp(-hazard)
    return s, -hazard * s, (1.0 - share) * s


def _positive(parameters: Vector) -> Vector:
    return np.asarray(1.0 / (1.0 + np.exp(-parameters[..., -1])))


def cell_masses(s: Vector) -> Vector:
    """Return the masses of the cells between points whose survival is `s` (1 before the first, 0 after the last).

    Shape [..., m] → [..., m + 1].
    """
    masses = np.empty((*s.shape[:-1], s.shape[-1] + 1))
    masses[..., 0] = 1.0 - s[..., 0]
    masses[..., 1:-1] = s[..., :-1] - s[..., 1:]
    masses[..., -1] = s[..., -1]
    return np.maximum(masses, 0.0)
