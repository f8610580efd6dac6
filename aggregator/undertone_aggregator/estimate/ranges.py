"""Range queries: means over runs of slots. The noise of different slots is independent and averages out; bias does
not.
"""

import math
from collections.abc import Callable, Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.estimates import MEASURED, RELEASED, Estimates, Load, RangeEstimate, Series, Vector

Places = NDArray[np.intp]
# Function that returns the standard error of the mean bias of the estimates at these places.
BiasError = Callable[[Places], float]


def by_run(slots: NDArray[np.int64], every: int) -> Iterator[tuple[int, int, Places]]:
    """Yield (first slot, last slot, places) of each run of ``every`` slots that contains one of the ascending
    ``slots``.

    ``places``: which of ``slots`` are in the run. Runs are counted from slot 0 of Unix time, so that the slots of a day
    make a UTC day.
    """
    numbers, first = np.unique(slots // every, return_index=True)
    for number, places in zip(numbers.tolist(), np.split(np.arange(len(slots)), first[1:]), strict=False):
        yield number * every, number * every + every - 1, places


def over(estimates: Estimates, every: int, bias_error: BiasError) -> list[RangeEstimate]:
    """Average runs of ``every`` slots of one series, ascending; see `by_run`.

    Slots of threshold epochs are models without a standard error and are left out.
    """
    measured = _measured(estimates)
    runs = by_run(estimates.slot[measured], every)
    return [_mean(first, last, estimates, measured[places], bias_error) for first, last, places in runs]


def over_slots(estimates: Estimates, slots: Collection[int], bias_error: BiasError) -> list[RangeEstimate]:
    """Return the mean over those of the given slots of one series that were measured; no row if no slot was."""
    measured = _measured(estimates)
    chosen = measured[np.isin(estimates.slot[measured], list(slots))]
    return [_mean(min(slots), max(slots), estimates, chosen, bias_error)] if len(chosen) else []


def _measured(estimates: Estimates) -> Places:
    return np.flatnonzero((estimates.kind == MEASURED) & ~np.isnan(estimates.standard_error))


def _mean(first: int, last: int, estimates: Estimates, places: Places, bias_error: BiasError) -> RangeEstimate:
    part, n = estimates.take(places), len(places)
    mean, error = sum(part.truncated_mean.tolist()) / n, math.sqrt(sum(np.square(part.truncated_se).tolist())) / n
    bias = bias_se = None
    if not np.isnan(part.bias).any():
        bias, bias_se = sum(part.bias.tolist()) / n, bias_error(places)
    return RangeEstimate(
        first=first,
        last=last,
        start=first * int(part.start[0] // part.slot[0]),
        series=Series(part.group[0]),
        slots=n,
        reports=int(part.reports.sum()),
        spread=spread_of(part.estimate, part.truncated_se),
        **Load.of(mean, error, bias, bias_se)._asdict(),
    )


def spread_of(means: Vector, errors: Vector) -> float | None:
    """Return the standard deviation between slots' means, without the noise in them; None for a single slot."""
    n = len(means)
    if n < 2:
        return None
    middle = sum(means.tolist()) / n
    variance = sum(np.square(means - middle).tolist()) / (n - 1)
    return math.sqrt(max(variance - sum(np.square(errors).tolist()) / n, 0.0))


def drowned(estimates: Estimates, offset: int = 0) -> str | None:
    """Return a sentence if the noise of a typical slot exceeds the signal. It says what would help. Otherwise return
    None.
    """
    shown = (estimates.kind == MEASURED) | (estimates.kind == RELEASED)
    measured = estimates.take(shown & ~np.isnan(estimates.standard_error))
    if not len(measured):
        return None
    errors = measured.truncated_se
    middle = np.argsort(errors, kind="stable")[len(errors) // 2]
    signal = abs(float(np.mean(measured.truncated_mean - offset)))
    error = float(errors[middle])
    if error <= signal:
        return None
    needed = math.ceil(int(measured.reports[middle]) * (error / signal) ** 2) if signal > 0 else None
    more = "many more reports a slot" if needed is None else f"more than {needed} reports a slot"
    if (measured.kind == MEASURED).all():
        # The noise of a stream goes on from slot to slot, so a mean over many slots need not be clearer.
        more = f"means over many slots, {more},"
    signals = "its mean" if not offset else f"the distance of its mean from {offset}"
    return (
        f"a single slot shows mostly noise, because its standard error ({_short(error)}) is larger than {signals}"
        f" ({_short(signal)}). {more[0].upper()}{more[1:]} or a larger epsilon show more"
    )


def _short(value: float) -> str:
    """Return a number in three digits as people read it: 1090, not 1.09e+03."""
    return f"{float(f'{value:.3g}'):.15g}"
