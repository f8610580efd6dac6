"""Range queries: means over runs of slots. Noise of different slots is independent and averages out; bias does not."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from undertone_aggregator.estimate.estimates import MEASURED, RELEASED, Estimate, Estimates, Load, RangeEstimate, Series

# Function that returns the standard error of the mean of these estimates' biases.
BiasError = Callable[[Sequence[Estimate]], float]


def wholly_shared(estimates: Sequence[Estimate]) -> float:
    """Return the standard error of the slots' mean bias if the errors of their biases are equal up to scale.

    It is then the average of the biases' standard errors.
    """
    return sum(estimate.bias_se or 0.0 for estimate in estimates) / len(estimates)


def over(estimates: Iterable[Estimate], every: int, bias_error: BiasError = wholly_shared) -> list[RangeEstimate]:
    """Average runs of ``every`` slots, counted from slot 0 of Unix time (so that a day's slots make UTC days).

    Slots of threshold epochs are models without a standard error and are left out. The result is sorted by run, then
    group.
    """
    runs: dict[tuple[int, Series], list[Estimate]] = {}
    for estimate in estimates:
        if estimate.kind == MEASURED and estimate.standard_error is not None:
            runs.setdefault((estimate.slot // every, estimate.series), []).append(estimate)
    return [
        _mean(number * every, number * every + every - 1, series, runs[number, series], bias_error)
        for number, series in sorted(runs)
    ]


def over_slots(
    estimates: Iterable[Estimate], slots: Collection[int], bias_error: BiasError = wholly_shared
) -> list[RangeEstimate]:
    """Return the mean over those of the given slots that were measured, by series. See `over`."""
    series: dict[Series, list[Estimate]] = {}
    for estimate in estimates:
        if estimate.slot in slots and estimate.kind == MEASURED and estimate.standard_error is not None:
            series.setdefault(estimate.series, []).append(estimate)
    return [_mean(min(slots), max(slots), each, series[each], bias_error) for each in sorted(series)]


def _mean(first: int, last: int, series: Series, estimates: Sequence[Estimate], bias_error: BiasError) -> RangeEstimate:
    n = len(estimates)
    mean = sum(estimate.truncated_mean for estimate in estimates) / n
    error = math.sqrt(sum((estimate.truncated_se or 0.0) ** 2 for estimate in estimates)) / n
    biases = [estimate.bias for estimate in estimates if estimate.bias is not None]
    bias = bias_se = None
    if len(biases) == n:
        bias, bias_se = sum(biases) / n, bias_error(estimates)
    return RangeEstimate(
        first=first,
        last=last,
        start=first * (estimates[0].start // estimates[0].slot),
        series=series,
        slots=n,
        reports=sum(estimate.reports for estimate in estimates),
        spread=spread_of([e.estimate for e in estimates], [e.truncated_se or 0.0 for e in estimates]),
        **Load.of(mean, error, bias, bias_se)._asdict(),
    )


def spread_of(means: Sequence[float], errors: Sequence[float]) -> float | None:
    """Return the standard deviation between slots' means, less the noise in them; None for a single slot."""
    n = len(means)
    if n < 2:
        return None
    middle = sum(means) / n
    variance = sum((mean - middle) ** 2 for mean in means) / (n - 1)
    return math.sqrt(max(variance - sum(error**2 for error in errors) / n, 0.0))


def drowned(estimates: Sequence[Estimate], offset: int = 0) -> str | None:
    """Return a sentence if the noise of a typical slot exceeds the signal, and what would help; None otherwise."""
    table = Estimates.of(estimates)
    shown = (table.kind == MEASURED) | (table.kind == RELEASED)
    measured = table.take(shown & ~np.isnan(table.standard_error))
    if not len(measured):
        return None
    errors = measured.truncated_se
    middle = np.argsort(errors, kind="stable")[len(errors) // 2]
    signal = abs(float(np.mean(measured.truncated_mean - offset)))
    error = float(errors[middle])
    if error <= signal:
        return None
    needed = math.ceil(int(measured.reports[middle]) * (error / signal) ** 2) if signal > 0 else None
    more = "many more devices" if needed is None else f"more than {needed} devices"
    return (
        f"the standard error of a slot ({error:.3g}) exceeds its mean ({signal:.3g}): single slots show noise. "
        f"Means over many slots, {more}, or a larger epsilon show more"
    )
