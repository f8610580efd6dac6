"""Range queries: means over runs of slots. Noise of different slots is independent and averages out; bias does not."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from undertone_aggregator.estimate.reconstruct import MEASURED, Estimate, Z


@dataclass(frozen=True)
class RangeEstimate:
    """The mean over the slots first..last of the slots' means, in the reading's unit; ``total`` is their sum.

    ``slots``: how many of them had reports, and are in it. [low, high] covers the mean of the truncated readings of
    the devices that reported (95 %), [low_raw, high_raw] is meant to cover that of the readings: bias and its error are
    the slots' averages, for one model is behind them all.
    """

    first: int
    last: int
    start: int
    group: str
    slots: int
    reports: int
    estimate: float
    total: float
    standard_error: float
    low: float
    high: float
    bias: float | None
    bias_se: float | None
    low_raw: float | None
    high_raw: float | None


def over(estimates: Iterable[Estimate], every: int) -> list[RangeEstimate]:
    """Runs of ``every`` slots, counted from slot 0 of Unix time (so that a day's slots make UTC days).

    Slots of threshold epochs are models without a standard error and are left out. By run, then group.
    """
    runs: dict[tuple[int, str], list[Estimate]] = {}
    for one in estimates:
        if one.kind == MEASURED and one.standard_error is not None:
            runs.setdefault((one.slot // every, one.group), []).append(one)
    return [_run(number * every, every, group, runs[number, group]) for number, group in sorted(runs)]


def _run(first: int, every: int, group: str, ones: Sequence[Estimate]) -> RangeEstimate:
    n = len(ones)
    mean = sum(one.estimate for one in ones) / n
    error = math.sqrt(sum((one.standard_error or 0.0) ** 2 for one in ones)) / n
    biases = [(one.bias, one.bias_se) for one in ones if one.bias is not None and one.bias_se is not None]
    bias = bias_se = low_raw = high_raw = None
    if len(biases) == n:
        bias = sum(value for value, _ in biases) / n
        bias_se = sum(error for _, error in biases) / n
        half = Z * math.hypot(error, bias_se)
        low_raw, high_raw = mean + bias - half, mean + bias + half
    return RangeEstimate(
        first=first,
        last=first + every - 1,
        start=first * (ones[0].start // ones[0].slot),
        group=group,
        slots=n,
        reports=sum(one.reports for one in ones),
        estimate=mean,
        total=mean * n,
        standard_error=error,
        low=mean - Z * error,
        high=mean + Z * error,
        bias=bias,
        bias_se=bias_se,
        low_raw=low_raw,
        high_raw=high_raw,
    )


def drowned(estimates: Iterable[Estimate], offset: int = 0) -> str | None:
    """A plain sentence when the noise of a typical slot exceeds what it is to show, and what would help."""
    measured = [one for one in estimates if one.kind == MEASURED and one.standard_error is not None]
    if not measured:
        return None
    middle = sorted(measured, key=lambda one: one.standard_error or 0.0)[len(measured) // 2]
    signal = abs(sum(one.estimate - offset for one in measured) / len(measured))
    error = middle.standard_error or 0.0
    if error <= signal:
        return None
    needed = math.ceil(middle.reports * (error / signal) ** 2) if signal > 0 else None
    more = "many more devices" if needed is None else f"more than {needed} devices"
    return (
        f"the standard error of a slot ({error:.3g}) exceeds its mean ({signal:.3g}): single slots show noise. "
        f"Means over many slots, {more}, or a larger epsilon show more"
    )
