"""The default method: Bayesian choice of θ, and of the next round's range, over the posterior's densities."""

from collections.abc import Sequence

import numpy as np

from undertone_aggregator.threshold.bin_edges import zoomed_edges
from undertone_aggregator.threshold.channel import Vector
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts
from undertone_aggregator.threshold.misfit import misfit
from undertone_aggregator.threshold.objective import (
    Integers,
    Query,
    Variance,
    mean_excess,
    mean_square_error,
)
from undertone_aggregator.threshold.posterior import Posterior, decision_grid, posterior, resolved
from undertone_aggregator.threshold.result import Threshold
from undertone_aggregator.threshold.two_sided import two_sided_range

# Least Σ n ε² of the cohort's reports. With less, θ is at least the `_CAUTIOUS_SHARE` quantile of the best θ of the
# posterior's densities, and the choice has a warning.
ENOUGH_INFORMATION = 700.0
_MISFIT_ALARM = 6.0
_CAUTIOUS_SHARE = 0.75
_SECOND_MODE_MASS = 0.02
# θ counts as extrapolated if it is more than this number of times the value above which the reports show nothing
# (`Posterior.seen`).
_FAR_OUT = 1.7
# If the components of the prior whose body may have any shape (`tail.Component`) have more than this posterior
# probability, no smooth shape explains the readings. The tail beyond the data is then less certain than the posterior
# says. So θ is at least the `_CAUTIOUS_SHARE` quantile of the best θ of the posterior's densities.
_ODD_SHAPE = 0.9


def choose_robustly(
    rounds: Sequence[CohortCounts],
    reports: Sequence[ReportCounts],
    bound: int,
    variance: Variance,
    query: Query,
    thetas: Integers | None = None,
    offset: int = 0,
) -> Threshold:
    """Choose the θ that minimises the mean, over the posterior, of RMSE(θ) / min RMSE; see `theta_from_reports`.

    The ratio is used instead of the error itself. The mean error would be dominated by the few densities with the
    heaviest tails, and would give too large a θ. With few reports, or readings of an odd shape (`_ODD_SHAPE`), θ
    may be larger.
    """
    after = posterior(rounds, reports, bound)
    candidates = np.asarray(decision_grid(bound)[1:-1], dtype=np.int64) if thetas is None else thetas
    excess = mean_excess(after.densities, after.edges, candidates)
    errors = mean_square_error(excess, candidates, query, variance)
    best = candidates[np.argmin(errors, axis=1)]
    regrets = np.sqrt(errors / errors.min(axis=1, keepdims=True))
    chosen = int(np.argmin(regrets.mean(axis=0)))
    warnings = _warnings(after, rounds, bound, offset)
    few = after.information < ENOUGH_INFORMATION
    if few or after.free_body > _ODD_SHAPE:
        safe = float(np.quantile(best, _CAUTIOUS_SHARE))
        chosen = max(chosen, int(np.searchsorted(candidates, safe)))
    if few:
        warnings.append(
            f"few reports: they show {after.information / ENOUGH_INFORMATION:.0%} of what a safe choice of theta needs"
            f" (the sum of epsilon^2 over the reports is {after.information:.0f}, expected {ENOUGH_INFORMATION:.0f});"
            " so theta was chosen large, and the noise may be larger than necessary"
        )
    ends = [_range(shape, after, candidates, query, variance) for shape in after.shapes]
    low = min(int(np.quantile(best, 0.05)), *(a for a, _ in ends))
    high = max(int(np.quantile(best, 0.95)), *(b for _, b in ends))
    theta = int(candidates[chosen])
    if theta > _FAR_OUT * after.seen:
        warnings.append(
            f"thin evidence: the reports show nothing about readings above about {offset + after.seen}; theta = "
            f"{offset + theta} assumes that their tail is like the part below; with other tails the best theta is "
            f"anywhere from {offset + low} to {offset + high}"
        )
    return Threshold(
        theta=theta,
        low=low,
        high=high,
        bias=float(excess[:, chosen].mean()),
        bias_se=max(float(excess[:, chosen].std()), _doubt(after, theta, float(excess[:, chosen].mean()))),
        expected_mse=float(errors[:, chosen].mean()),
        density=after.density,
        edges=after.edges,
        method="robust",
        warnings=warnings,
        offset=offset,
        seen=resolved(after),
    )


def _doubt(after: Posterior, theta: int, bias: float) -> float:
    """Return the root mean square deviation of E[(x - θ)⁺] from ``bias``. Tails are weighted by their evidence alone.

    The reports hardly tell which shape the tail has, and the prior of the shapes is no evidence.
    """
    excesses = [mean_excess(shape, after.edges, np.array([theta])) for shape in after.shapes]
    squares = [np.mean(np.square(excess - bias)) for excess in excesses]
    return float(np.sqrt(np.average(squares, weights=after.evidence)))


def _range(
    densities: Vector, after: Posterior, candidates: Integers, query: Query, variance: Variance
) -> tuple[int, int]:
    """Return the central 90 % range of the best θ under the densities of one shape."""
    errors = mean_square_error(mean_excess(densities, after.edges, candidates), candidates, query, variance)
    best = candidates[np.argmin(errors, axis=1)]
    return int(np.quantile(best, 0.05)), int(np.quantile(best, 0.95))


def next_edges(
    rounds: Sequence[CohortCounts], reports: Sequence[ReportCounts], bound: int, cells: int
) -> tuple[int, ...]:
    """Return the next round's edges: linear from the 70 % to the 99 % (later 99.5 %) quantile, logarithmic above.

    For readings far from zero the edges are linear over nearly all of them. Otherwise the quantiles are posterior
    medians, with more weight on rare shapes of the distribution than for θ itself. A range that is too wide costs
    little, but one that is too narrow hides a second group of readings.
    """
    around = two_sided_range(rounds, bound)
    if around is not None:
        return zoomed_edges(*around, bound, cells)
    after = posterior(rounds, reports, bound, flatten=0.3)
    low = max(int(np.median(after.quantile_edges(0.7))), 1)
    high = int(np.median(after.quantile_edges(0.99 if len(rounds) == 1 else 0.995)))
    high = min(max(high, 2), bound)
    return zoomed_edges(min(low, high - 1), high, bound, cells)


def _warnings(after: Posterior, rounds: Sequence[CohortCounts], bound: int, offset: int) -> list[str]:
    sentences = []
    if after.fakes > 0:
        sentences.append(
            f"false reports: {after.fakes:.2%} of the reports for the threshold carry symbols that honest devices do "
            "not send so often; these reports are left out"
        )
    if after.misfit > _MISFIT_ALARM:
        sentences.append(_misfitting(after, rounds, bound))
    far = _second_mode(after)
    if far is not None:
        share, start = far
        sentences.append(
            f"a second group: about {share:.0%} of the readings, from about {offset + start} on, are more than ten "
            "times as large as the rest; theta is chosen for them, which adds noise to all others"
        )
    return sentences


def _misfitting(after: Posterior, rounds: Sequence[CohortCounts], bound: int) -> str:
    """Return the warning about rounds that one distribution of readings does not explain.

    Honest readings differ between rounds: on days off, on a holiday, after the clocks change. Only if no distribution
    at all explains a round, it has reports that honest devices do not send.
    """
    alone = max(misfit([counts], bound) for counts in rounds if counts.total)
    if alone > _MISFIT_ALARM:
        return (
            f"bad fit: the reports of a round are {alone:.0f} standard deviations from what honest devices can send, "
            "whatever they read; some may be false"
        )
    return (
        f"uneven rounds: the readings differed from round to round by {after.misfit:.0f} standard deviations; theta "
        "was chosen for all rounds together"
    )


def _second_mode(after: Posterior) -> tuple[float, int] | None:
    """Return share and start of a second group of readings.

    From a tenth of its start up to its start there are at most as many readings as above.

    Return None if there is no such group. Readings of zero are left out, because every reading is more than ten times
    zero. The mean density is used.
    """
    edges = np.asarray(after.edges[1:-1], dtype=np.float64)
    s = 1.0 - np.cumsum(after.density)[:-1]
    positive, s = float(s[0]), s / max(float(s[0]), 1e-300)
    after_decade = np.interp(np.log(10.0 * edges), np.log(edges), s, right=0.0)
    gap = (s <= 0.3) & (after_decade >= _SECOND_MODE_MASS) & (after_decade >= 0.5 * s)
    if not gap.any():
        return None
    last = int(np.flatnonzero(gap)[-1])
    return positive * float(after_decade[last]), int(10.0 * edges[last])
