"""The filter for published series with known noise: it fits its hyper-parameters to the series and decides on its use.

The model is that of `estimate.seasonal`. Its hyper-parameters maximise the likelihood under wide priors on their
logarithms, by Fisher scoring. The result is an average over points around the maximum that have the covariance of
Laplace's approximation. The variance is the geometric mean over the points, plus the variance between the points'
means. The geometric mean is used because the logarithms of the hyper-parameters are estimated, so that one extreme
point does not dominate. Stein's estimate of the risk (Annals of Statistics 9, 1981) decides whether the filtered series
is used: if raw is as good, filtered equals raw. With few slots the priors dominate; with fewer than `FEWEST` there is
no filter. All of this is post-processing and costs no privacy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.seasonal import Calendar, Seasonal
from undertone_aggregator.estimate.state_space import Filter, Noise, Observed, Trace, Vector, smooth
from undertone_shared.errors import Invalid

FEWEST = 8
# The fit uses at most this many of the newest cycles, and of the newest slots.
FIT_CYCLES, FIT_SLOTS = 28, 4096
# The filtered series is used if it saves at least this share of the error.
_WORTH = 0.02
_STEP = 1e-4
_ITERATIONS = 25
_ENOUGH = 0.05
_GIVE_UP = 1e6
_SHRINKS = 3
# Assumed variance of a signal too weak to be measured, as a share of the largest variance that the noise could hide.
_HIDDEN = 0.4
# Largest number of slots times points in one run: 45 MB.
_KEPT = 90_000
# A value this many standard errors away from its prediction is a step. After a step the raw series is shown until the
# filter has settled. It has settled when enough values (a share of the cycle, and at least a few) were at most `_CALM`
# standard errors away from their predictions.
_STEPPED, _CALM = 4.0, 2.0
_SETTLING, _LEAST_SETTLING = 1 / 12, 3
# A scaled variance below this counts as zero.
_TINY = 1e-12


@dataclass(frozen=True)
class Fitted:
    """Hyper-parameters as logarithms: ``mode`` [p] and ``points`` [p + 1, p] of equal weight around it.

    ``centre`` and ``scale``: number that was subtracted from the values, and number by which they were divided.
    """

    model: Seasonal
    mode: Vector
    points: Vector
    centre: float
    scale: float

    @property
    def parameters(self) -> Mapping[str, float]:
        """Return the hyper-parameters at the mode, by name. Amplitudes are in the values' unit, times in slots and
        cycles.
        """
        values = dict(zip(self.model.names, np.exp(self.mode).tolist(), strict=True))
        for name in ("season", "memory", "slow", "chance", "off"):
            if name in values:
                values[name] *= self.scale
        return values


@dataclass(frozen=True)
class Filtered:
    """Result per slot [n]: the signal and its standard error.

    ``mean``, ``standard_error``: given all values. ``causal``, ``causal_error``: given the values up to the slot. If
    the series makes a step that the model does not explain, some slots after it show the values themselves with their
    own errors; in ``mean`` and ``standard_error``, some slots before it, too.

    ``used``: False if the filter saves less than `_WORTH` of the error, or with fewer than `FEWEST` slots; then all
    slots show the values themselves, and ``gain`` is 1. Otherwise ``gain`` is Stein's estimate of the filter's root
    mean square error, divided by that of the raw series. ``fitted`` is None with fewer than `FEWEST` slots.
    """

    mean: Vector
    standard_error: Vector
    causal: Vector
    causal_error: Vector
    used: bool
    gain: float
    fitted: Fitted | None


def fit(
    slots: NDArray[np.int64], values: Vector, noise: Noise, calendar: Calendar, before: Fitted | None = None
) -> Fitted:
    """Fit the hyper-parameters to the newest slots: `FIT_CYCLES` cycles, but at most `FIT_SLOTS` and at least `FEWEST`.

    ``before``: an earlier fit of the series, to start from.
    """
    first = int(np.searchsorted(slots, slots[-1] - FIT_CYCLES * calendar.cycle, side="right"))
    first = max(min(first, len(slots) - FEWEST), len(slots) - FIT_SLOTS, 0)
    part = slice(first, len(slots))
    used = values[part]
    part_noise = noise.part(first, len(slots))
    centre, scale = float(np.mean(used)), _scale(used, part_noise)
    # A mean of n independent readings has a chance error in each slot, even if the population is constant.
    own = noise.chance * math.sqrt(float(np.mean(part_noise.variance))) / scale
    model = Seasonal(calendar.cycle, calendar.off is not None, own, calendar.long)
    observed = _observed(slots[part], used, part_noise, calendar.part(first, len(slots)), model, centre, scale)
    mode, height, information = _maximise(model, observed, before.mode if before else model.centre)
    return Fitted(model, mode, _spread(model, observed, mode, height, information), centre, scale)


def filtered(
    slots: NDArray[np.int64],
    values: Vector,
    noise: Noise,
    calendar: Calendar,
    fitted: Fitted | None = None,
    before: Fitted | None = None,
) -> Filtered:
    """Filter a whole series. ``fitted``: its hyper-parameters.

    Without them they are fitted here, starting from ``before``. Raises Invalid for arrays of different lengths, slots
    out of order, a variance that is not positive, or a cycle below 1.
    """
    check(slots, values, noise, calendar)
    error = np.sqrt(noise.variance)
    if len(slots) < FEWEST:
        return Filtered(values, error, values, error, False, 1.0, None)
    fitted = fitted or fit(slots, values, noise, calendar, before)
    observed = _observed(slots, values, noise, calendar, fitted.model, fitted.centre, fitted.scale)
    means, variances, causal_means, causal_variances, odds = _smoothed(fitted, noise, observed)
    mean, variance = mixed(means, variances, fitted)
    gain = _stein(values - mean, noise.variance, variances.mean(axis=1) * fitted.scale**2)
    if gain > 1.0 - _WORTH:
        return Filtered(values, error, values, error, False, 1.0, fitted)
    causal, causal_variance = mixed(causal_means, causal_variances, fitted)
    settling = _settling(calendar.cycle)
    after, _ = unsettled(odds, settling)
    # The values after a step also pull the smoothed values before it away from the signal; the values are shown there,
    # too.
    first = np.flatnonzero(after & ~np.append(False, after[:-1]))
    around = after.copy()
    around[np.maximum(first[:, None] - np.arange(1, settling + 1), 0).ravel()] = True
    return Filtered(
        np.where(around, values, mean),
        np.where(around, error, np.sqrt(variance)),
        np.where(after, values, causal),
        np.where(after, error, np.sqrt(causal_variance)),
        True,
        gain,
        fitted,
    )


def unsettled(odds: Vector, settling: int, left: int = 0) -> tuple[NDArray[np.bool_], int]:
    """Return in which slots the filter has not settled after a step, and how many calm values it still needs in the
    end.

    ``odds`` [n]: values minus their predictions, in standard errors. ``left``: how many calm values the filter needed
    before the first of these values.
    """
    flags = np.zeros(len(odds), dtype=bool)
    for i, size in enumerate(np.abs(odds).tolist()):
        left = settling if size > _STEPPED else left
        flags[i] = left > 0
        left -= size <= _CALM and left > 0
    return flags, left


def _settling(cycle: int) -> int:
    return max(round(cycle * _SETTLING), _LEAST_SETTLING)


def _odds(trace: Trace) -> Vector:
    """Return each value minus its prediction, in standard errors, as the mean over the models; [n]."""
    return np.asarray((trace.error / np.sqrt(trace.scale)).mean(axis=1))


def _smoothed(fitted: Fitted, noise: Noise, observed: Observed) -> tuple[Vector, Vector, Vector, Vector, Vector]:
    """Return (mean, variance) of the signal given all values, and given those up to it, [n, points]; and `_odds`."""
    # A forward pass keeps much in memory for the backward pass. So for a long series, only a few of the hyper-parameter
    # points are run at a time.
    some = max(1, _KEPT // len(observed.values))
    parts = []
    for first in range(0, len(fitted.points), some):
        trace = running(replace(fitted, points=fitted.points[first : first + some]), noise).run(observed, keep=True)
        parts.append((*smooth(trace), trace.mean, trace.variance, trace.error / np.sqrt(trace.scale)))
    means, variances, causal_means, causal_variances, odds = (
        np.concatenate(part, axis=1) for part in zip(*parts, strict=True)
    )
    return means, variances, causal_means, causal_variances, np.asarray(odds.mean(axis=1))


def running(fitted: Fitted, noise: Noise) -> Filter:
    """Return the Kalman filter with the hyper-parameters of a fit, in its state before the first value."""
    return Filter(fitted.model.components(fitted.points), 0 if noise.carried is None else noise.lag)


def step(
    run: Filter,
    fitted: Fitted,
    slots: NDArray[np.int64],
    values: Vector,
    noise: Noise,
    calendar: Calendar,
    left: int = 0,
) -> tuple[Vector, Vector, int]:
    """Filter newer values; return (mean, standard error) of each slot's signal given all values up to it, and ``left``.

    ``left``: see `unsettled`. Where the filter has not settled, the values themselves are returned.
    """
    trace: Trace = run.run(_observed(slots, values, noise, calendar, fitted.model, fitted.centre, fitted.scale))
    mean, variance = mixed(trace.mean, trace.variance, fitted)
    flags, left = unsettled(_odds(trace), _settling(calendar.cycle), left)
    error = np.where(flags, np.sqrt(noise.variance), np.sqrt(variance))
    return np.where(flags, values, mean), error, left


def mixed(means: Vector, variances: Vector, fitted: Fitted) -> tuple[Vector, Vector]:
    """Average over the points of hyper-parameters: return (mean, variance) [n] in the values' unit.

    The variance is the geometric mean of those at the points, plus the variance between the points' means.
    """
    mean = means.mean(axis=1)
    variance = np.exp(np.log(np.maximum(variances, _TINY)).mean(axis=1)) + means.var(axis=1)
    return fitted.centre + fitted.scale * mean, fitted.scale**2 * variance


def check(slots: NDArray[np.int64], values: Vector, noise: Noise, calendar: Calendar) -> None:
    """Check the input. Raises Invalid for data that cannot be filtered."""
    n = len(slots)
    for name, size in (("values", len(values)), ("variances", len(noise.variance)), ("phases", len(calendar.phase))):
        if size != n:
            raise Invalid(f"there are {size} {name}, expected one for each of {n} slots")
    if n > 1 and not np.all(np.diff(slots) > 0):
        raise Invalid("slots are not ascending")
    if not np.all(noise.variance > 0):
        raise Invalid(f"a slot's noise has variance {float(noise.variance.min())}, expected a positive number")
    if calendar.cycle < 1:
        raise Invalid(f"cycle is {calendar.cycle}, expected at least 1 slot")


def _scale(values: Vector, noise: Noise) -> float:
    """Return the signal's assumed standard deviation: what the noise does not explain, plus what the noise could
    hide.
    """
    variance = float(np.mean(noise.variance))
    share = 0.0 if noise.carried is None else float(np.clip(np.mean(noise.carried), 0.0, 0.99))
    independent = len(values) * (1.0 - share) / (1.0 + share)
    hidden = _HIDDEN * variance * math.sqrt(2.0 / max(independent, 2.0))
    return math.sqrt(max(float(np.var(values)) - variance, 0.0) + hidden)


def _observed(
    slots: NDArray[np.int64],
    values: Vector,
    noise: Noise,
    calendar: Calendar,
    model: Seasonal,
    centre: float,
    scale: float,
) -> Observed:
    scaled = Noise(noise.variance / scale**2, noise.carried, noise.lag)
    return Observed(slots, (values - centre) / scale, model.loading(calendar), scaled)


def _evaluate(model: Seasonal, observed: Observed, mode: Vector) -> tuple[float, Vector, Vector]:
    """Return (log posterior, its gradient [p], its expected information [p, p]), by differences between nearby
    models.
    """
    logs, trace = _log_posterior(model, observed, np.concatenate([mode[None], mode + _STEP * np.eye(len(mode))]))
    error = (trace.error[:, 1:] - trace.error[:, :1]) / _STEP / np.sqrt(trace.scale[:, :1])
    scale = (trace.scale[:, 1:] / trace.scale[:, :1] - 1.0) / _STEP
    information = error.T @ error + 0.5 * scale.T @ scale + model.precision
    return float(logs[0]), (logs[1:] - logs[0]) / _STEP, information


def _log_posterior(model: Seasonal, observed: Observed, points: Vector) -> tuple[Vector, Trace]:
    """Return the log posterior up to a constant [points], and the filter's trace."""
    lag = 0 if observed.noise.carried is None else observed.noise.lag
    trace = Filter(model.components(points), lag).run(observed, signal=False)
    return trace.terms.sum(axis=0) + model.log_prior(points), trace


def _maximise(model: Seasonal, observed: Observed, begin: Vector) -> tuple[Vector, float, Vector]:
    """Maximise the log posterior, starting at ``begin``; return (mode, log posterior there, expected information
    there).

    The method is Fisher scoring. `_corrected` keeps its steps from being too long. If a step lowers the log posterior,
    the next step is shorter (Levenberg damping).
    """
    mode = np.clip(begin, model.low, model.high)
    height, gradient, information = _evaluate(model, observed, mode)
    damping, corrected = 0.0, information
    for _ in range(_ITERATIONS):
        damped = corrected + damping * np.diag(np.diag(corrected))
        move = np.clip(mode + np.clip(np.linalg.solve(damped, gradient), -2.0, 2.0), model.low, model.high) - mode
        expected = float(gradient @ move)
        if expected < _ENOUGH or damping > _GIVE_UP:
            break
        tried = _evaluate(model, observed, mode + move)
        turned = gradient - tried[1]
        if tried[0] > height:
            mode, (height, gradient, information), damping = mode + move, tried, damping / 10.0
        else:
            damping = max(10.0 * damping, 0.1)
        corrected = _corrected(information, move, turned)
    return mode, height, information


def _corrected(information: Vector, move: Vector, turned: Vector) -> Vector:
    """Return ``information`` [p, p], made larger if the last step met more curvature than ``information`` predicts.

    ``move`` [p]: the last step; ``turned`` [p]: the gradient before it, minus the gradient after it. If the model fits
    the values badly, the expected information is smaller than the curvature, and Fisher scoring overshoots the maximum
    again and again. The information is increased by a BFGS update (Nocedal & Wright, Numerical Optimization, 2006,
    6.1).
    """
    curvature, along = float(move @ turned), information @ move
    expected = float(move @ along)
    if not curvature > expected:
        return information
    return np.asarray(information - np.outer(along, along) / expected + np.outer(turned, turned) / curvature)


def _spread(model: Seasonal, observed: Observed, mode: Vector, height: float, information: Vector) -> Vector:
    """Return points around the mode: a regular simplex with the covariance of the inverse of ``information``.

    For a Gaussian, the log posterior is p/2 lower at every corner. If it falls faster towards a corner, the corner is
    moved closer.
    """
    p = len(mode)
    # The columns of an orthogonal matrix whose first one is constant give p + 1 points of mean 0 and unit covariance.
    basis = np.linalg.qr(np.column_stack([np.ones(p + 1), np.eye(p + 1)[:, :p]]))[0]
    moves = math.sqrt(p + 1) * basis[:, 1:] @ np.linalg.cholesky(np.linalg.inv(information)).T
    moves = np.clip(mode + moves, model.low, model.high) - mode
    for _ in range(_SHRINKS):
        drop = height - _log_posterior(model, observed, mode + moves)[0]
        shrink = np.sqrt(np.clip(p / 2 / np.maximum(drop, 1e-9), 0.01, 1.0))
        if np.all(shrink == 1.0):
            break
        moves *= shrink[:, None]
    return np.asarray(mode + moves)


def _stein(residual: Vector, noise: Vector, posterior: Vector) -> float:
    """Return Stein's unbiased estimate of the filter's root mean square error, divided by that of the raw series.

    With y the raw values of a signal x, N the covariance of their noise (any), and m(y) the filtered values,
    E|m - x|² = E|y - m|² - tr N + 2 tr(N ∂m/∂y), and N ∂m/∂y is the posterior covariance of a linear Gaussian filter.
    """
    risk = float(np.mean(residual**2 - noise + 2.0 * posterior))
    return math.sqrt(max(risk, 0.0) / float(np.mean(noise)))
