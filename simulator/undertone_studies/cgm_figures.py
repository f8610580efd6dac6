"""Figures 1 to 4 of Bao et al. (PVLDB 2021): the error of each report of a stream, and the effect of the slew C.

Figures 1 and 2 compare Algorithm 1 (independent noise), Algorithm 3 (CGM) and this project's method, for one C. Figures
3 and 4 show Algorithm 3 and this project's method for three values of C. Each figure has one panel for each ε. Errors
are computed and not simulated, from the variance of the noise and the exact bias of clipping.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

import numpy as np

from undertone_aggregator.design.stream.methods import Method, main_methods
from undertone_studies.cgm import DELTA, EPSILONS, budget, error_of
from undertone_studies.cgm_populations import CgmStreams
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.panel import Curve, Panel
from undertone_studies.registry import StudyOptions

COLUMNS = (
    *("ε", "C", "method", "first report", "median report", "worst report", "number of the worst"),
    *("bias, share of the median's square", "one device, median (Eq. 24 as printed)"),
)
NAMES = {"direct": "Algorithm 1", "paper": "Algorithm 3", "closed-form": "ships"}


@dataclass(frozen=True)
class ByReport:
    """Mean squared errors of one method by report [slots], in the unit squared.

    ``clipping``: the part that clipping causes.

    ``device``: the mean squared error of a single device's release, averaged over the devices.
    """

    name: str
    squared: list[float]
    clipping: list[float]
    device: list[float]


def by_report(streams: CgmStreams, method: Method) -> ByReport:
    """Return the errors of a method whose reports are in every slot, for as many devices as the data have."""
    scale, error = streams.range**2, error_of(streams, method)
    steps = [np.mean((method.clipped(window) - window) ** 2, axis=0) for window in streams.windows]
    return ByReport(
        NAMES[method.name],
        [scale * each for each in error.by_slot(streams.devices)],
        [0.0] * streams.slots if method.slew is None else (scale * np.mean(error.bias**2, axis=0)).tolist(),
        (scale * (np.mean(steps, axis=0) + error.noise)).tolist(),
    )


def by_time(streams: CgmStreams, title: str) -> Outcome:
    """Return Figure 1 or 2: errors by report of Algorithms 1 and 3 and of this project's method, for the middle C."""
    slew = streams.slews[1]
    rows: list[tuple[Cell, ...]] = []
    panels = []
    for epsilon in EPSILONS:
        errors = _errors(streams, slew, epsilon)
        rows += [_row(epsilon, slew, each) for each in errors]
        panels.append(_panel(streams, f"ε = {epsilon:g}, C = {slew}", {each.name: each for each in errors}))
    return Outcome(title, COLUMNS, rows, _notes(streams) + time_notes(rows), panels)


def by_slew(streams: CgmStreams, title: str) -> Outcome:
    """Return Figure 3 or 4: the error by report of Algorithm 3 and this project's method, for three values of C."""
    rows: list[tuple[Cell, ...]] = []
    panels = []
    for epsilon in EPSILONS:
        curves: dict[str, ByReport] = {}
        for slew in streams.slews:
            errors = _errors(streams, slew, epsilon)[1:]
            rows += [_row(epsilon, slew, each) for each in errors]
            curves |= {f"{each.name}, C = {slew}": each for each in errors}
        panels.append(_panel(streams, f"ε = {epsilon:g}", curves))
    return Outcome(title, COLUMNS, rows, _notes(streams) + slew_notes(rows), panels)


def figure_study(
    figure: Callable[[CgmStreams, str], Outcome], streams: Callable[[], CgmStreams], title: str
) -> Callable[[StudyOptions], Outcome]:
    """Return the function ``run`` of a study that computes one figure of some streams.

    The function ignores its argument, the study's options.
    """
    return lambda options: figure(streams(), title)


def time_notes(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return what the rows of Figure 1 or 2 say about the paper's findings, as sentences."""
    ours, first = [], []
    for epsilon in EPSILONS:
        direct, three, ships = (_cell(rows, epsilon, name, "median report") for name in NAMES.values())
        ours.append(f"{100 * three / direct:.3g} and {100 * ships / direct:.3g} % at ε = {epsilon:g}")
        start = _cell(rows, epsilon, "Algorithm 3", "first report") / _cell(
            rows, epsilon, "Algorithm 1", "first report"
        )
        first.append(f"{start:.3g}")
    return [
        "Each report has a mean squared error; the error of a method is here the median of these. The "
        "errors of Algorithm 3 and of the noise that our devices draw, divided by the error of Algorithm 1, are "
        f"{'; '.join(ours)}.",
        "At the first report, the error of Algorithm 3 divided by that of Algorithm 1 is, as the paper says, about 1 "
        f"(here {', '.join(first)} at the four ε). The noise that our devices draw has the same variance in all "
        "reports.",
    ]


def slew_notes(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return which C of Figure 3 or 4 has the smallest error, as a sentence."""
    best = []
    for epsilon in EPSILONS:
        of = {
            name: {str(row[1]): float(row[4]) for row in rows if row[0] == epsilon and row[2] == name}
            for name in ("Algorithm 3", "ships")
        }
        chosen = [min(errors, key=lambda slew: errors[slew]) for errors in of.values()]
        best.append(f"{chosen[0]} and {chosen[1]} at ε = {epsilon:g}")
    return [
        "At each ε, one C gives the smallest median of the mean squared errors of all reports. For Algorithm 3 and for "
        "`ships` (the noise that our devices draw), this C is " + "; ".join(best) + "."
    ]


def _cell(rows: Sequence[Sequence[Cell]], epsilon: float, name: str, column: str) -> float:
    """Return a cell of the first row of a method at ε."""
    row = next(row for row in rows if row[0] == epsilon and row[2] == name)
    return float(row[COLUMNS.index(column)])


def _errors(streams: CgmStreams, slew: str, epsilon: float) -> list[ByReport]:
    methods = main_methods(Fraction(slew), streams.slots, epsilon, DELTA, per_report=streams.per_report)
    return [by_report(streams, method) for method in methods]


def _row(epsilon: float, slew: str, of: ByReport) -> tuple[Cell, ...]:
    worst = int(np.argmax(of.squared))
    share = median(of.clipping) / median(of.squared)
    return (
        *(epsilon, float(slew), of.name, of.squared[0], median(of.squared), of.squared[worst], worst + 1),
        *(share, median(of.device)),
    )


def _panel(streams: CgmStreams, title: str, errors: dict[str, ByReport]) -> Panel:
    numbers = [float(number) for number in range(1, streams.slots + 1)]
    curves: dict[str, Curve] = {name: (numbers, each.squared) for name, each in errors.items()}
    return Panel(title, "report", f"MSE of the mean, {streams.unit}²", curves, baseline="Algorithm 1", better="lower")


def _notes(streams: CgmStreams) -> list[str]:
    return [
        "The columns `first report`, `median report` and `worst report` have mean squared errors of the mean of all "
        "devices; the median and the worst are over all reports. The reading before clipping counts as the truth. "
        "Errors are computed and not simulated, so there are no repeats. The last column has Eq. 24 of the paper as it "
        "is printed: the mean squared error of single devices, which does not become smaller with more devices. The "
        "paper's figures show errors of the mean, and so do ours.",
        f"The readings are: {streams.label}. Errors are in {streams.unit}², for {streams.devices:,} devices; the range "
        f"is {streams.range:g} {streams.unit}.",
        budget(streams),
    ]
