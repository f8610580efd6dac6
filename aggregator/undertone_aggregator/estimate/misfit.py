"""Misfit: evidence that honest devices did not send a histogram, and how far fake reports can move a mean.

Whatever the readings are, honest symbols are independent and their distributions are mixtures of the mechanism's rows.
So their mean distribution lies in the convex hull of the rows. For any distribution q fixed beforehand, Π q(Y_i) / Π
p(Y_i) over the reports has an expectation of at most 1 under honest devices of mean distribution p (arithmetic over
geometric mean; the Y_i need not be alike). The same holds for the mean of this ratio over many q, here Dirichlet
mixtures around the distribution that the threshold phase expects. Dividing by the most likely p of the hull only lowers
the ratio. By Markov's inequality it reaches 10^m with probability at most 10^-m, for any number of devices (an e-value:
Wasserman, Ramdas, Balakrishnan, PNAS 2020; Grünwald, de Heide, Koolen 2024).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.levels import Vector, level_law, level_positions, weight_rows
from undertone_aggregator.design.mechanisms import Mechanism, traits_of
from undertone_aggregator.design.population import Population

# A misfit of at least this raises an alarm. A slot of honest devices reaches it with a probability of at most one in a
# million.
ALARMING = 6.0
# The end of a sentence about a slot with such a misfit.
RARELY = "honest devices send such reports in at most one slot of a million"
# The share of fake reports for which the manipulation bound is stated.
FAKE_SHARE = 0.01
# The largest misfit. A slot with a symbol that no honest device can send has this misfit.
LARGEST = 1000.0
# Concentrations of the Dirichlet mixtures, in numbers of reports.
_WEIGHTS = (10.0, 100.0, 1000.0, 10_000.0)
# The search for the likeliest distribution ends once its log-likelihood is at most this far, in nats, from the largest
# one; or after `_STEPS` steps. The bound of the distance that is left is then subtracted from the evidence.
_GAP = 0.5
_STEPS = 300
# The computation of a misfit stops early once its evidence, in nats, cannot exceed this.
_INTERESTING = math.log(10.0)
# The likeliest distribution is searched among mixtures of about this many rows. The error of the result is then bounded
# over all rows.
_ROWS = 33
_BLOCK = 4096


class Goodness:
    """Tests whether histograms of one mechanism's symbols can come from honest devices.

    ``population``: the readings as estimated from earlier slots, never from those that are tested; None for evenly
    distributed readings. ``possible`` [symbols]: True for symbols that honest devices can send.
    """

    def __init__(self, mechanism: Mechanism, width: int, population: Population | None) -> None:
        rows = weight_rows(mechanism)
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
        """Return log10 of the evidence for each histogram, 0 to `LARGEST`; shapes [slots, symbols] → [slots].

        A slot of honest devices reaches m > 0 with probability at most 10^-m. Each histogram has at least one report.
        """
        merged = np.add.reduceat(np.asarray(counts, dtype=np.float64), self._starts, axis=1)
        impossible = merged[:, ~self._possible].any(axis=1)
        merged = merged[:, self._possible]
        # Many slots have equal counts, so the logarithms are computed once for each distinct count.
        columns = [np.unique(column, return_inverse=True) for column in (*merged.T, merged.sum(axis=1))]
        each = np.stack([_log_mixture(columns, alpha) for alpha in self._mixtures])
        likely = np.logaddexp.reduce(each, axis=0) - math.log(len(each))
        blocks = [slice(i, i + _BLOCK) for i in range(0, len(merged), _BLOCK)]
        evidence = np.concatenate([self._evidence(merged[block], likely[block]) for block in blocks])
        return np.where(impossible, LARGEST, np.clip(evidence / math.log(10.0), 0.0, LARGEST))

    def _evidence(self, counts: Vector, likely: Vector) -> Vector:
        """Return a lower bound of the evidence: ``likely`` - log(the reports' largest probability under the hull).

        ``likely`` [slots]: the log of the reports' probability under the Dirichlet mixtures. The method is expectation
        maximisation. With h_j of a slot's n reports in group j of symbols, and p_j the fitted probability of the group,
        max_k Σ_j h_j P(j|k) / p_j - n bounds its error. The method ends when the error is small, or when no evidence is
        possible. ``counts`` [slots, groups].
        """
        n = counts.sum(axis=1)
        law = np.full((len(counts), len(self._some)), 1.0 / len(self._some))
        statistic = np.full(len(counts), -np.inf)
        active, h = np.arange(len(counts)), counts
        filled = h > 0
        for _ in range(_STEPS):
            p = law @ self._some
            share = h / p
            of_rows = share @ self._all.T
            missed = of_rows.max(axis=1) - n
            at_most = likely - (h * np.log(np.where(filled, p, 1.0))).sum(axis=1)
            statistic[active] = np.maximum(statistic[active], at_most - missed)
            law *= (of_rows if len(self._some) == len(self._all) else share @ self._some.T) / n[:, None]
            doubtful = (missed > _GAP) & (at_most > _INTERESTING)
            if not doubtful.all():
                # The next step computes only the slots that are still doubtful.
                active, h, filled, law = active[doubtful], h[doubtful], filled[doubtful], law[doubtful]
                n, likely = n[doubtful], likely[doubtful]
            if not len(active):
                break
        return statistic


def joined(misfits: Vector, first: NDArray[np.intp]) -> Vector:
    """Return the misfits of slots, each with one histogram or several; shapes [histograms] → [slots].

    ``first`` [slots]: the index of each slot's first histogram. A sum of misfits alone would reach m too often, because
    a misfit is never below 0. If E is the evidence of a histogram (not its logarithm), (1 + E)/2 has an expectation of
    at most 1 under honest devices. So has the product over the histograms of a slot, because their reports are
    independent.
    """
    number = np.diff(np.append(first, len(misfits)))
    sums = np.add.reduceat(misfits, first)
    return np.where(number > 1, np.maximum(sums - number * math.log10(2.0), 0.0), sums)


def manipulation(estimates: Vector, lowest: Vector, highest: Vector, share: float = FAKE_SHARE) -> Vector:
    """Return how far the mean of the honest reports can be from each estimate if the ``share`` of the reports is fake.

    A fake report decodes to a value from ``lowest`` to ``highest``; the result is share/(1 - share) times the distance
    from the estimate to the farther of the two. All arrays are [slots].
    """
    return np.asarray(share / (1.0 - share) * np.maximum(highest - estimates, estimates - lowest))


def _log_mixture(columns: Sequence[tuple[Vector, NDArray[np.intp]]], alpha: Vector) -> Vector:
    """Return ln of the probability of sequences with these counts, for a Dirichlet-distributed law; [slots].

    ``columns``: for each group, and then for all groups together, (distinct counts, index of each slot's count in
    them).
    """
    *each, whole = [
        _log_rising(values, start)[place]
        for (values, place), start in zip(columns, [*alpha.tolist(), float(alpha.sum())], strict=True)
    ]
    return np.asarray(np.sum(each, axis=0) - whole)


def _log_rising(counts: Vector, start: float) -> Vector:
    """Return ln(Γ(start + count) / Γ(start)) of each count."""
    # `math.lgamma` is used, because importing scipy.special takes long and needs much memory.
    begun = math.lgamma(start)
    return np.array([math.lgamma(start + count) - begun for count in counts.tolist()])
