"""Could honest devices have sent this histogram? Evidence against it, and how far fake reports can move a mean.

Whatever the readings, honest symbols are independent with laws that are mixtures of the mechanism's rows, so the mean
law lies in the convex hull of the rows. For any law q fixed beforehand, Π q(Y_i) / Π p(Y_i) over the reports has an
expectation of at most 1 under honest devices of mean law p (arithmetic over geometric mean; the Y_i need not be alike).
So has its mean over many q: Dirichlet mixtures around the law that the threshold phase expects. Dividing by the most
likely p of the hull only lowers it. By Markov's inequality it reaches 10^m with probability at most 10^-m, for any
number of devices (an e-value: Wasserman, Ramdas, Balakrishnan, PNAS 2020; Grünwald, de Heide, Koolen 2024).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

from undertone_aggregator.design.levels import Vector, level_law, level_positions
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.population import Population

# A misfit from here on is an alarm: at most one in a million slots of honest devices reaches it.
ALARMING = 6.0
# The share of fake reports that the manipulation bound is stated for.
FAKE_SHARE = 0.01
# What is reported at most; for a symbol that no honest device can send.
LARGEST = 1000.0
# Dirichlet mixtures are worth so many reports each.
_WEIGHTS = (10.0, 100.0, 1000.0, 10_000.0)
# Nats by which the likeliest law of the hull may be missed, and steps to find it; what is missed is charged.
_GAP = 0.5
_STEPS = 300
# Evidence that cannot get above this is not pursued.
_INTERESTING = math.log(10.0)
# The likeliest law is sought among mixtures of about so many rows, and certified against all.
_ROWS = 33
_BLOCK = 4096


class Goodness:
    """Evidence that histograms of one mechanism's symbols are not from honest devices.

    ``population``: the readings as earlier slots have shown them, never this one. ``possible`` [symbols]: what honest
    devices can send.
    """

    def __init__(self, mechanism: Mechanism, width: int, population: Population | None) -> None:
        rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)], dtype=np.float64)
        self._starts = list(traits_of(mechanism).groups)
        self.possible = rows.any(axis=0)
        rows = np.add.reduceat(rows, self._starts, axis=1)
        self._possible = rows.any(axis=0)
        rows = rows[:, self._possible]
        rows /= rows.sum(axis=1, keepdims=True)
        used = population or Population.even(width)
        levels = level_law(level_positions(mechanism, width), width, used.edges) @ used.density
        expected = levels @ rows
        self._all = rows
        self._some = rows[:: max(1, len(rows) // (_ROWS - 1))]
        self._mixtures = [np.full(len(expected), 0.5), *(weight * expected for weight in _WEIGHTS)]

    def misfits(self, counts: NDArray[np.int64]) -> Vector:
        """log10 of the evidence for each histogram, 0 to `LARGEST`; shapes [slots, symbols] → [slots].

        A slot of honest devices reaches m > 0 with probability at most 10^-m. Each has at least one report.
        """
        merged = np.add.reduceat(np.asarray(counts, dtype=np.float64), self._starts, axis=1)
        impossible = merged[:, ~self._possible].any(axis=1)
        merged = merged[:, self._possible]
        each = np.stack([_log_mixture(merged, alpha) for alpha in self._mixtures])
        likely = np.logaddexp.reduce(each, axis=0) - math.log(len(each))
        blocks = [slice(i, i + _BLOCK) for i in range(0, len(merged), _BLOCK)]
        evidence = np.concatenate([self._evidence(merged[block], likely[block]) for block in blocks])
        return np.where(impossible, LARGEST, np.clip(evidence / math.log(10.0), 0.0, LARGEST))

    def _evidence(self, counts: Vector, likely: Vector) -> Vector:
        """A lower bound of ``likely`` less ln of the largest probability of the reports under any law of the hull.

        Expectation maximisation; the largest over k of Σ_j h_j P(j|k) / p_j, less n, bounds what it misses. It ends
        where that is little, or where no evidence is in sight. Shapes [slots, groups], [slots] → [slots].
        """
        n = counts.sum(axis=1)
        law = np.full((len(counts), len(self._some)), 1.0 / len(self._some))
        statistic = np.full(len(counts), -np.inf)
        active = np.arange(len(counts))
        for _ in range(_STEPS):
            h = counts[active]
            p = law[active] @ self._some
            share = h / p
            missed = (share @ self._all.T).max(axis=1) - n[active]
            at_most = likely[active] - xlogy(h, p).sum(axis=1)
            statistic[active] = np.maximum(statistic[active], at_most - missed)
            law[active] *= (share @ self._some.T) / n[active, None]
            active = active[(missed > _GAP) & (at_most > _INTERESTING)]
            if not len(active):
                break
        return statistic


def manipulation(estimate: float, lowest: float, highest: float, share: float = FAKE_SHARE) -> float:
    """How far at most the mean of the honest reports is from ``estimate`` if a share of the reports is fake.

    A fake report decodes to something from ``lowest`` to ``highest``: share/(1 - share) times the farther of them.
    """
    return share / (1.0 - share) * max(highest - estimate, estimate - lowest)


def _log_mixture(counts: Vector, alpha: Vector) -> Vector:
    """ln of the probability of sequences with these counts, their law drawn from a Dirichlet distribution; [slots]."""
    n, weight = counts.sum(axis=1), alpha.sum()
    return np.asarray(gammaln(weight) - gammaln(weight + n) + (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1))
