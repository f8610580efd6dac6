"""The default method: Bayesian choice of θ, and of the next round's range, over the posterior's densities."""

from collections.abc import Sequence

import numpy as np

from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts
from undertone_aggregator.threshold.objective import (
    Integers,
    Query,
    Variance,
    mean_excess,
    mean_square_error,
)
from undertone_aggregator.threshold.posterior import Posterior, decision_grid, posterior
from undertone_aggregator.threshold.result import Threshold
from undertone_aggregator.threshold.zoom import zoomed_edges

# Below this Σ n ε² no method tried was safe (shared experience: worst ratios above 1000).
ENOUGH_INFORMATION = 700.0
_MISFIT_ALARM = 6.0
_CAUTIOUS_SHARE = 0.75
_SECOND_MODE_MASS = 0.02


def choose_robustly(
    rounds: Sequence[CohortCounts],
    reports: Sequence[ReportCounts],
    bound: int,
    variance: Variance,
    query: Query,
    thetas: Integers | None = None,
) -> Threshold:
    """θ that minimises the mean, over the posterior, of MSE(θ) / min MSE; see `choose_threshold`.

    The ratio, not the MSE: the mean MSE is ruled by the few densities with the heaviest tails, and overshoots.
    """
    after = posterior(rounds, reports, bound)
    candidates = np.asarray(decision_grid(bound)[1:-1], dtype=np.int64) if thetas is None else thetas
    excess = mean_excess(after.densities, after.edges, candidates)
    errors = mean_square_error(excess, candidates, query, variance)
    best = candidates[np.argmin(errors, axis=1)]
    chosen = int(np.argmin((errors / errors.min(axis=1, keepdims=True)).mean(axis=0)))
    warnings = _warnings(after)
    if after.information < ENOUGH_INFORMATION:
        safe = float(np.quantile(best, _CAUTIOUS_SHARE))
        chosen = max(chosen, int(np.searchsorted(candidates, safe)))
        warnings.append(
            f"few reports: Σ n ε² is {after.information:.0f}, below {ENOUGH_INFORMATION:.0f}; "
            f"theta is the {_CAUTIOUS_SHARE:.0%} point of what it may be, not its best guess"
        )
    return Threshold(
        theta=int(candidates[chosen]),
        low=int(np.quantile(best, 0.05)),
        high=int(np.quantile(best, 0.95)),
        bias=float(excess[:, chosen].mean()),
        bias_se=float(excess[:, chosen].std()),
        expected_mse=float(errors[:, chosen].mean()),
        density=after.density,
        edges=after.edges,
        method="robust",
        warnings=warnings,
    )


def next_edges(
    rounds: Sequence[CohortCounts], reports: Sequence[ReportCounts], bound: int, cells: int
) -> tuple[int, ...]:
    """The next round's edges: linear from the 70 % to the 99 % (later 99.5 %) quantile, logarithmic above.

    Posterior medians of the quantiles, rare shapes of the distribution being given more weight than for θ itself:
    a range that is too wide costs little, one that is too narrow hides a second group of readings.
    """
    after = posterior(rounds, reports, bound, flatten=0.3)
    low = max(int(np.median(after.quantile_edges(0.7))), 1)
    high = int(np.median(after.quantile_edges(0.99 if len(rounds) == 1 else 0.995)))
    high = min(max(high, 2), bound)
    return zoomed_edges(min(low, high - 1), high, bound, cells)


def _warnings(after: Posterior) -> list[str]:
    said = []
    if after.misfit > _MISFIT_ALARM:
        said.append(
            f"bad fit: a round's histogram is {after.misfit:.0f} standard deviations from the model; "
            "readings may have drifted between rounds, or reports may be false"
        )
    far = _second_mode(after)
    if far is not None:
        share, start = far
        said.append(
            f"a second group: about {share:.0%} of readings lie more than ten times above the rest, "
            f"from about {start} on; theta follows them, at the cost of noise for all others"
        )
    return said


def _second_mode(after: Posterior) -> tuple[float, int] | None:
    """Share and start of readings beyond a decade that holds almost none, by the mean density."""
    edges = np.asarray(after.edges[1:-1], dtype=np.float64)
    s = 1.0 - np.cumsum(after.density)[:-1]
    after_decade = np.interp(np.log(10.0 * edges), np.log(edges), s, right=0.0)
    gap = (s <= 0.5) & (after_decade >= _SECOND_MODE_MASS) & (after_decade >= 0.7 * s)
    if not gap.any():
        return None
    last = int(np.flatnonzero(gap)[-1])
    return float(after_decade[last]), int(10.0 * edges[last])
