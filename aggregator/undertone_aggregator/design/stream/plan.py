"""`undertone plan --collect stream`: predicted errors of every method for a workload, and a recommendation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.design.stream.calibration import chi, epsilon_of, mu, zcdp_epsilon, zcdp_rho
from undertone_aggregator.design.stream.methods import Method, all_methods, with_share
from undertone_aggregator.design.stream.smoother import posterior_covariance, prior
from undertone_shared.errors import Invalid
from undertone_shared.off_board.rationals import rational

Array = NDArray[np.float64]
# Type of a number that a person or a program gives; it is converted exactly.
Written = Fraction | float | str

LARGEST_PLANNED = 10**9
# Number of shares r that are tried for the smoothed error.
_SHARES = 16


@dataclass(frozen=True)
class Line:
    """A method in a comparison, with predicted root mean square errors in units of the range.

    The errors are those of the answer to the query: the mean of one slot, or a sum of the means of several slots.

    ``variance``: mean noise variance of a reported slot, divided by that of the paper's algorithm. ``raw``: the error
    without the smoother. ``smoothed``: the error after it. ``mechanism``: the mechanism in [stream] that runs the
    method; None if no campaign can run it. ``share``: the value that the option ``share`` of [stream] needs for it;
    None if it needs none.
    """

    method: str
    note: str
    mechanism: str | None
    variance: float
    raw: float
    smoothed: float
    share: float | None = None


@dataclass(frozen=True)
class StreamComparison:
    """The comparison of all methods for one workload.

    ``movement``: the assumed standard deviation of the mean's step per slot, in units of the range. ``guarantees``: the
    budget in words, for the stream and per report. ``recommended``: the method of least smoothed error among those that
    a campaign can run. ``best``: the method of least smoothed error among all.
    """

    lines: tuple[Line, ...]
    movement: float
    query: str
    guarantees: tuple[str, ...]
    recommended: str
    best: str


def parse_query(query: str, slots: int) -> int:
    """Return the number of slots that one answer sums: 1 for ``slot``, M for ``range:M``. Raises Invalid."""
    if query == "slot":
        return 1
    match = re.fullmatch(r"range:([1-9][0-9]{0,6})", query)
    if match is None or int(match[1]) > slots:
        raise Invalid(f"query is {query!r}, expected slot or range:M with M from 1 to {slots}")
    return int(match[1])


def plan_stream(
    *,
    devices: int,
    slots: int,
    epsilon: Written,
    delta: Written,
    slew: Written,
    query: str = "slot",
    chains: int = 1,
    movement: float | None = None,
    per_report: bool = False,
) -> StreamComparison:
    """Compare the methods. ``movement``: see `StreamComparison`; None means a quarter of the slew. Raises Invalid."""
    if not 1 <= devices <= LARGEST_PLANNED:
        raise Invalid(f"devices is {devices}, expected 1 to {LARGEST_PLANNED}")
    length = parse_query(query, slots)
    loss, chance = float(_exact("epsilon", epsilon, "1e-6", "50")), float(_exact("delta", delta, "1e-300", "0.99"))
    share = _exact("slew", slew, "1e-6", "1/2")
    methods = all_methods(share, slots, loss, chance, chains=chains, per_report=per_report)
    step = float(share) / 4 if movement is None else movement
    if not 0 < step < 1:
        raise Invalid(f"movement is {step}, expected a share of the range between 0 and 1")
    reference = next(float(np.mean(np.diag(m.covariance))) for m in methods if m.name == "paper")
    covariance = prior(range(slots), step, 0.0, None, 1.0)
    lines = tuple(_line(method, devices, length, covariance, step, reference) for method in methods)
    squared = mu(loss, chance) ** 2 * (slots if per_report else 1)
    tuned = [
        _line(with_share(r, share, slots, squared, chains), devices, length, covariance, step, reference)
        for r in (Fraction(i, _SHARES) for i in range(1, _SHARES))
    ]
    lines += (min(tuned, key=lambda line: line.smoothed),)
    runs = [line for line in lines if line.mechanism is not None]
    return StreamComparison(
        lines,
        step,
        query,
        _guarantees(loss, chance, slots, per_report),
        min(runs, key=lambda line: line.smoothed).method,
        min(lines, key=lambda line: line.smoothed).method,
    )


def _exact(name: str, value: Written, least: str, most: str) -> Fraction:
    return Fraction(*rational(name, value, least, most))


def _line(method: Method, devices: int, length: int, covariance: Array, movement: float, reference: float) -> Line:
    noise = method.covariance / devices
    after = posterior_covariance(covariance, noise, method.seen)
    return Line(
        method.name,
        method.note,
        method.mechanism,
        float(np.mean(np.diag(method.covariance))) / reference,
        _error(_held(method, noise, movement, len(covariance)), length),
        _error(after, length),
        None if method.share is None else float(method.share),
    )


def _held(method: Method, noise: Array, movement: float, slots: int) -> Array:
    """Return the covariance [slots, slots] of the raw series' errors.

    A slot without a report repeats the estimate of the last slot with a report. Its error also contains the movement of
    the mean since then.
    """
    source = np.searchsorted(method.seen, np.arange(slots), side="right") - 1
    age = np.arange(slots) - method.seen[source]
    moved = movement**2 * np.minimum.outer(age, age) * np.equal.outer(source, source)
    return np.asarray(noise[np.ix_(source, source)] + moved)


def _error(covariance: Array, length: int) -> float:
    """Return the root mean square error of a sum over ``length`` consecutive slots, over all places of these slots."""
    padded = np.pad(covariance.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    first = np.arange(len(covariance) - length + 1)
    last = first + length
    variances = padded[last, last] - padded[first, last] - padded[last, first] + padded[first, first]
    return sqrt(max(float(np.mean(variances)), 0.0))


def _guarantees(epsilon: float, delta: float, slots: int, per_report: bool) -> tuple[str, ...]:
    gaussian, bit = mu(epsilon, delta) ** 2 / 2, zcdp_rho(epsilon, delta)
    reports = 1 if per_report else slots
    analytic = (
        f"analytic Gaussian mechanism: chi = {chi(epsilon, delta):.4f}, and sigma = "
        f"{sqrt(reports) / mu(epsilon, delta):.4f} times the range for independent noise"
    )
    if not per_report:
        return (
            f"user level, all {slots} reports of a stream together: ({epsilon:g}, {delta:g})-LDP",
            f"as zCDP: rho = {gaussian:.6f} for Gaussian noise, {bit:.6f} for one-bit",
            analytic,
        )
    total = gaussian * slots
    return (
        f"({epsilon:g}, {delta:g})-LDP for each report by itself; this is no guarantee for the whole stream",
        f"user level, all {slots} reports together: with Gaussian noise rho = {total:.4f}, "
        f"({epsilon_of(sqrt(2 * total), delta):.2f}, {delta:g})-LDP; with one-bit noise rho = "
        f"{bit * slots:.4f}, ({zcdp_epsilon(bit * slots, delta):.2f}, {delta:g})-LDP",
        analytic,
    )


def table(plan: StreamComparison) -> Sequence[tuple[str, str, str, str, str]]:
    """Return rows of text: method, variance divided by that of the paper's method, raw and smoothed error, note."""
    return [
        (line.method, f"{line.variance:.3f}", f"{line.raw:.3g}", f"{line.smoothed:.3g}", line.note)
        for line in plan.lines
    ]
