"""A tail that is heavier than the fitted one, and that the reports may not exclude.

The prior contains hardly any tails but Weibull tails, so the fit alone would not consider such a tail.
"""

import math

import numpy as np

from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.result import RESOLVED

# Prior probability that readings above those that the reports resolve have the tail of `heavier` instead of the fitted
# one.
_HEAVY = 1 / 3
# If reports resolve readings up to this share of the bound, they show the whole tail.
_BOUNDED = 0.9
_TINY = 1e-12


def chance_of_heavier(density: Vector, edges: Vector, seen: int | None) -> float:
    """Return the posterior probability of the tail of `heavier`, given the reports that ``density`` was fitted to.

    S and S' are the shares of readings from ``seen`` on, under the fit and under that tail. By the definition of
    ``seen``, the reports' standard error of S is S / `RESOLVED`. The fit follows the reports. So the heavier tail is z
    = (S' - S) / (S / RESOLVED) standard errors away from them, and its odds are those of the prior times e^(-z²/2).
    """
    if seen is None:
        return 0.0
    heavy = heavier(density, edges, seen)
    if heavy is density:
        return 0.0
    share, more = (float(np.interp(seen, edges, np.append(np.cumsum(f[::-1])[::-1], 0.0))) for f in (density, heavy))
    away = RESOLVED * (more / share - 1.0) if share > 0 else 0.0
    odds = _HEAVY / (1.0 - _HEAVY) * math.exp(-(away**2) / 2.0)
    return odds / (1.0 + odds)


def heavier(density: Vector, edges: Vector, seen: int) -> Vector:
    """Return the density [d] over ``edges`` [d + 1]; above ``seen``/2 its tail continues the slopes below.

    The slope -d ln P(reading >= x) / d ln x is measured from ``seen``/8 to ``seen``/4 and from there to ``seen``/2. It
    continues as a straight line in ln x. A constant slope is a Pareto tail, a rising one that of a lognormal. Return
    ``density`` itself if the reports show nearly the whole range, or if there is no tail.
    """
    at_least = np.append(np.cumsum(density[::-1])[::-1], 0.0)
    points = [float(np.interp(seen / part, edges, at_least)) for part in (8, 4, 2)]
    first = int(np.searchsorted(edges, seen / 2))
    if seen >= _BOUNDED * edges[-1] or at_least[first] <= _TINY or edges[first] <= 0:
        return density
    octave = math.log(2.0)
    before, last = (math.log(points[i] / points[i + 1]) / octave for i in (0, 1))
    bend = max(last - before, 0.0) / octave
    away = np.log(edges[first:] / edges[first])
    left = np.exp(-(last + bend * octave / 2.0) * away - bend * np.square(away) / 2.0)
    if left[-1] >= 1.0 - _TINY:
        return density
    tail = at_least[first] * (left - left[-1]) / (1.0 - left[-1])
    return np.concatenate([density[:first], tail[:-1] - tail[1:]])
