"""Posterior of the distribution of readings: a mixture of tail models, given as equally likely densities."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undertone_aggregator.threshold.bin_edges import quantile
from undertone_aggregator.threshold.channel import StackedChannel, Vector, WindowChannel
from undertone_aggregator.threshold.counts import CohortCounts, ReportCounts, common_grid
from undertone_aggregator.threshold.em import ems_step, expectation_maximisation
from undertone_aggregator.threshold.excess import without_excess
from undertone_aggregator.threshold.fit import Likelihood, Mode, Observation, draws, posterior_mode
from undertone_aggregator.threshold.misfit import misfit
from undertone_aggregator.threshold.objective import Integers
from undertone_aggregator.threshold.remembered import remembered
from undertone_aggregator.threshold.result import RESOLVED
from undertone_aggregator.threshold.tail import Component, Prior, TailModel, cell_masses, survival

# The components of the prior. They were chosen on the data sets POS, EDRP and DNS and on synthetic populations
# (docs/threshold.md).
COMPONENTS = (
    Component(slope=0.8, spread=0.2, bend=0.0, free_above=1.0, weight=0.44),
    Component(slope=0.8, spread=0.2, bend=0.0, free_above=0.3, weight=0.392),
    Component(slope=0.8, spread=0.6, bend=0.2, free_above=0.3, weight=0.006),
    Component(slope=0.6, spread=0.4, bend=0.7, free_above=0.3, weight=0.002),
    Component(slope=0.8, spread=0.2, bend=0.0, free_above=0.0, weight=0.06),
    Component(slope=0.8, spread=0.2, bend=0.0, free_above=0.0, weight=0.05, free=1.0),
    Component(slope=0.45, spread=0.3, bend=-1.0, free_above=0.0, weight=0.05, free=1.0),
)
_DRAWS_EACH = 100
_POOLED = 200
# A component is excluded if its log evidence is more than this many nats below that of the best component.
_EXCLUDED = 6.0
# Number of densities that are drawn from each component, unless the component is excluded.
_SHAPES = 40
_GRID_RATIO = 1.025
_TELLING = 5.0
_SYMBOL_GROUPS = 256
# The largest share of readings that can be called a tail.
_A_TAIL = 0.05


@dataclass(frozen=True)
class Posterior:
    """Equally likely densities [draws, d] over integer `edges` [d + 1], and facts about the fit.

    `weights` [components]: posterior probability of each component. `reports`: number of reports; `information`: Σ n ε²
    of the cohort's reports. `misfit`: see `threshold.misfit`. `fakes`: share of the cohort's reports that no honest
    devices would send; the fit leaves them out. `shapes`: some densities [draws, d] of each component that the data do
    not exclude, whatever its prior weight; `evidence`: the likelihood of each of these components, divided by the
    largest, without any prior weight. `seen`: value above which readings are so rare that the reports do not show
    whether there are any; a larger θ is an extrapolation. `model`, `prior` and `mode` belong to the likeliest
    component.
    """

    densities: Vector
    edges: tuple[int, ...]
    weights: Vector
    reports: float
    information: float
    misfit: float
    fakes: float
    shapes: tuple[Vector, ...]
    evidence: tuple[float, ...]
    seen: int
    model: TailModel
    prior: Prior
    mode: Mode

    @property
    def free_body(self) -> float:
        """Posterior probability of the components in which the readings below their tail may have any shape."""
        free = [component.free_above == 0.0 for component in COMPONENTS]
        return float(self.weights[free].sum())

    @property
    def density(self) -> Vector:
        """The mean of the densities [d]."""
        return np.asarray(self.densities.mean(axis=0))

    def quantile_edges(self, share: float) -> tuple[int, ...]:
        """Return the `share` quantile of each draw, as the smallest integer x with P(reading <= x) >= share."""
        return tuple(np.atleast_1d(self._quantiles(share)).tolist())

    def _quantiles(self, share: float) -> Vector:
        edge = np.asarray(self.edges, dtype=np.float64)
        below = np.cumsum(self.densities, axis=1)
        cell = np.minimum((below < share * below[:, -1:]).sum(axis=1), self.densities.shape[1] - 1)
        rows = np.arange(len(below))
        mass = np.maximum(self.densities[rows, cell], 1e-300)
        part = np.clip((share * below[:, -1] - (below[rows, cell] - mass)) / mass, 0.0, 1.0)
        return np.asarray(edge[cell] + np.maximum(np.ceil(part * (edge[cell + 1] - edge[cell]) - 1e-9), 1.0) - 1.0)


@dataclass(frozen=True)
class _Fits:
    """What the histograms say under each component: weighted draws of its parameters, its prior and its mode.

    `log_weights` of the draws leave out the component's own prior weight. `body_s`: survival at the inner edges of
    `grid` under a component whose body may have any shape. `tells`: the result of `_tells`. `drawn` and `fits`: the
    draws, and (prior, mode), of each component. The other fields are those of `Posterior`.
    """

    grid: tuple[int, ...]
    reports: float
    information: float
    fakes: float
    model: TailModel
    body_s: Vector
    tells: float
    drawn: tuple[Vector, ...]
    log_weights: tuple[Vector, ...]
    fits: tuple[tuple[Prior, Mode], ...]
    misfit: float


def posterior(
    rounds: Sequence[CohortCounts],
    reports: Sequence[ReportCounts],
    bound: int,
    *,
    flatten: float = 1.0,
) -> Posterior:
    """Compute the posterior from all histograms together.

    Prior weights are raised to the power `flatten` (below 1: rare shapes get more weight). The draws come from a fixed
    seed, so equal histograms give equal results. Raises ValueError if there is no cohort report.
    """
    fitted = _fitted(rounds, reports, bound)
    model, grid = fitted.model, fitted.grid
    u = np.log(np.asarray(grid[1:-1], dtype=np.float64))
    prior_weights = [flatten * np.log(component.weight) for component in COMPONENTS]
    log_weights = [own + weight for own, weight in zip(fitted.log_weights, prior_weights, strict=True)]
    pooled = np.concatenate(log_weights)
    weights = np.exp(pooled - pooled.max())
    weights /= weights.sum()
    picked = np.minimum(np.searchsorted(np.cumsum(weights), (np.arange(_POOLED) + 0.5) / _POOLED), len(weights) - 1)
    parameters = np.concatenate(fitted.drawn)[picked]
    densities = cell_masses(survival(parameters, model.lengths(u)))
    each = weights.reshape(len(COMPONENTS), _DRAWS_EACH).sum(axis=1)
    prior, mode = fitted.fits[int(np.argmax(each))]
    shapes, evidence = _plausible(
        fitted.drawn, log_weights, flatten, lambda p: cell_masses(survival(p, model.lengths(u)))
    )
    return Posterior(
        model=model,
        prior=prior,
        mode=mode,
        shapes=shapes,
        evidence=evidence,
        seen=grid[min(int((fitted.body_s > fitted.tells).sum()) + 1, len(grid) - 2)],
        densities=densities / densities.sum(axis=1, keepdims=True),
        edges=grid,
        weights=each,
        reports=fitted.reports,
        information=fitted.information,
        fakes=fitted.fakes,
        misfit=fitted.misfit,
    )


@remembered
def _fitted(rounds: Sequence[CohortCounts], reports: Sequence[ReportCounts], bound: int) -> _Fits:
    """Fit every component to all histograms together. Raises ValueError if there is no cohort report."""
    together = [without_excess(counts) for counts in _merged(rounds) if counts.total]
    cohort = [counts for counts, _ in together]
    fakes = sum(removed for _, removed in together)
    if not cohort:
        raise ValueError("rounds contains no report, expected at least one report for the threshold")
    grid = decision_grid(bound, *(counts.theta for counts in reports))
    observations = [cohort_observation(counts) for counts in cohort]
    observations += [report_observation(counts, grid) for counts in reports if counts.total]
    start_at, start_s = _rough_survival(cohort, bound)
    half, tenth, percent = (float(np.interp(-s, -start_s, start_at)) for s in (0.5, 0.1, 0.01))
    model = TailModel.over(bound, tenth, percent - half)
    likelihood = Likelihood(model, observations)
    loose = Component(slope=0.8, spread=1.0, bend=0.0, free_above=0.0, weight=1.0)
    body = posterior_mode(likelihood, model.prior(loose, model.knots[-1]), _start(model, start_at, start_s))
    u = np.log(np.asarray(grid[1:-1], dtype=np.float64))
    body_s = survival(body.parameters, model.lengths(u))
    tells = _tells(cohort)
    generator = np.random.default_rng(20211115)
    drawn, log_weights, fits = [], [], []
    for component in COMPONENTS:
        level = 0.1 if component.free_above >= 1.0 else max(component.free_above, tells)
        prior = model.prior(component, float(u[min(int((body_s > level).sum()), len(u) - 1)]))
        mode = posterior_mode(likelihood, prior, body.parameters)
        p, w = draws(likelihood, prior, mode, _DRAWS_EACH, generator)
        drawn.append(p)
        log_weights.append(w)
        fits.append((prior, mode))
    return _Fits(
        grid=grid,
        reports=sum(observation.total for observation in observations),
        information=float(sum(counts.total * counts.epsilon**2 for counts in cohort)),
        fakes=fakes / (fakes + sum(counts.total for counts in cohort)),
        model=model,
        body_s=body_s,
        tells=tells,
        drawn=tuple(drawn),
        log_weights=tuple(log_weights),
        fits=tuple(fits),
        misfit=misfit(cohort, bound),
    )


def _plausible(
    drawn: Sequence[Vector], log_weights: Sequence[Vector], flatten: float, masses: Callable[[Vector], Vector]
) -> tuple[tuple[Vector, ...], tuple[float, ...]]:
    """Draw densities of each component whose evidence is at least e^-_EXCLUDED of the largest. Return densities and
    evidences.
    """
    densities, shares = [], []
    own = [w - flatten * np.log(c.weight) for w, c in zip(log_weights, COMPONENTS, strict=True)]
    evidence = [float(np.logaddexp.reduce(w)) for w in own]
    for parameters, w, of_it in zip(drawn, own, evidence, strict=True):
        if of_it < max(evidence) - _EXCLUDED:
            continue
        chance = np.cumsum(np.exp(w - of_it))
        at = np.minimum(np.searchsorted(chance, (np.arange(_SHAPES) + 0.5) / _SHAPES), len(w) - 1)
        law = masses(parameters[at])
        densities.append(law / law.sum(axis=1, keepdims=True))
        shares.append(float(np.exp(of_it - max(evidence))))
    return tuple(densities), tuple(shares)


def resolved(after: Posterior) -> int | None:
    """Return the value above which the share of readings is the smallest that the cohort's reports can show.

    This smallest share is `RESOLVED` times the standard error of a share, which follows from the information Σ n ε² of
    these reports. Return None if it is too large for a tail to be visible.
    """
    least = RESOLVED / math.sqrt(max(after.information, 1.0))
    return None if least > _A_TAIL else quantile(after.density, after.edges, 1.0 - least)


def decision_grid(bound: int, *further: int) -> tuple[int, ...]:
    """Return integers from 0 to bound + 1, neighbours about 2.5 % apart, that include `further`."""
    count = int(np.log(bound) / np.log(_GRID_RATIO)) + 2
    inner = np.rint(np.geomspace(1.0, bound, count)).astype(np.int64)
    return (0, *sorted({int(edge) for edge in inner} | {e for e in further if 1 <= e <= bound}), bound + 1)


def _merged(rounds: Sequence[CohortCounts]) -> list[CohortCounts]:
    """Merge rounds that have the same mechanism by adding their histograms."""
    merged: dict[tuple[int, ...], CohortCounts] = {}
    for asked in rounds:
        key = (asked.mechanism.a, asked.mechanism.b, asked.mechanism.window, *asked.edges)
        old = merged.get(key)
        counts = np.asarray(asked.counts) if old is None else np.asarray(old.counts) + np.asarray(asked.counts)
        merged[key] = CohortCounts(asked.mechanism, counts)
    return list(merged.values())


def cohort_observation(reports: CohortCounts) -> Observation:
    """Convert a round's histogram to an observation for the fit of the tail model."""
    matrix = WindowChannel(reports.mechanism).matrix()
    return Observation(reports.edges[1:-1], matrix, np.asarray(reports.counts, dtype=np.float64))


def report_observation(reports: ReportCounts, grid: tuple[int, ...]) -> Observation:
    """Convert a histogram of the report phase to an observation over the cells of ``grid``."""
    matrix, groups = report_law(reports, grid)
    return Observation(grid[1:-1], matrix, np.add.reduceat(np.asarray(reports.counts, dtype=np.float64), groups))


def report_law(reports: ReportCounts, grid: tuple[int, ...]) -> tuple[Vector, Integers]:
    """Return (probabilities of groups of equivalent symbols, first symbol of each group).

    The shapes are [groups, cells of ``grid``] and [groups].
    """
    matrix = reports.channel(grid).matrix
    groups = _similar(matrix)
    return np.add.reduceat(matrix, groups, axis=0), groups


def _similar(matrix: Vector) -> Integers:
    """Return the first rows of runs of symbols with nearly proportional rows.

    To merge the symbols of such a run loses hardly any information.
    """
    shape = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300)
    change = np.cumsum(np.append(0.0, np.abs(np.diff(shape, axis=0)).sum(axis=1)))
    if change[-1] == 0.0:
        return np.zeros(1, dtype=np.int64)
    step = np.floor(change / (change[-1] / _SYMBOL_GROUPS))
    return np.flatnonzero(np.append(1.0, np.diff(step))).astype(np.int64)


def _rough_survival(cohort: Sequence[CohortCounts], bound: int) -> tuple[Vector, Vector]:
    """Return ln x and a smoothed estimate of S(x) at the rounds' edges, from which the fits start."""
    grid = common_grid(cohort, bound)
    channel = StackedChannel([asked.channel(grid) for asked in cohort])
    counts = np.concatenate([np.asarray(asked.counts, dtype=np.float64) for asked in cohort])
    f = expectation_maximisation(channel, counts, stop="paper", smoother=ems_step, max_iterations=40).density
    s = np.clip(1.0 - np.cumsum(f)[:-1], 1e-4, 1.0 - 1e-4)
    return np.log(np.asarray(grid[1:-1], dtype=np.float64)), s


def _start(model: TailModel, u: Vector, s: Vector) -> Vector:
    # The share of zero readings is known only if a round has an edge at the reading 1. Otherwise a usual share is
    # taken.
    positive = float(np.clip(s[0], 0.05, 0.993)) if u[0] == 0.0 else 0.993
    z = np.log(-np.log(np.clip(s / positive, 1e-4, 1.0 - 1e-4)))
    slopes = np.diff(np.interp(model.knots, u, z)) / np.diff(model.knots)
    kappa = np.log(np.clip(slopes, 0.05, 6.0))
    beyond = u[int((s > 0.02).sum()) - 1] if s[0] > 0.02 else u[0]
    kappa[(model.knots[1:] > beyond) | (model.knots[:-1] < u[0])] = np.log(0.8)
    return np.concatenate([[np.interp(model.reference, u, z)], kappa, [np.log(positive / (1.0 - positive))]])


def _tells(cohort: Sequence[CohortCounts]) -> float:
    """Return the share S = P(reading >= x) down to which the reports determine the distribution's shape.

    S is five times the standard error that a share would have if the cohort's devices reported with one bit each; at
    least .005, at most .3.
    """
    information = sum(asked.total * (np.exp(asked.epsilon) - 1.0) ** 2 / np.exp(asked.epsilon) for asked in cohort)
    return float(np.clip(_TELLING / np.sqrt(information), 0.005, 0.3))
