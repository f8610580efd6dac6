"""Experiment: coverage of both confidence intervals on real households."""

from dataclasses import astuple, fields

from undertone_shared.errors import Invalid
from undertone_studies.coverage import Coverage, measure
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.theta_populations import in_time_order

TITLE = "Coverage on EDRP"
PARAGRAPH = (
    "The truncated mean of the devices that reported has only one error, the noise of the mechanism. The server "
    "estimates the variance of this noise from the same reports. The 95 % interval of the truncated mean holds in 95 % "
    "of slots, and the predicted standard error agrees with the measured one.\n\nThe estimate also has the error of "
    "the model which says what truncation removes. The interval of the estimate allows for both errors. This interval "
    "holds in 96 % of all slots, and in 88 to 90 % of the slots at the worst half-hour of the day."
)

EPSILONS = ("1", "4")
BOUND = 10_000


def run(options: StudyOptions) -> Outcome:
    """Measure the coverage for half-hours of 622 households; see `coverage`. Raises Invalid without the data."""
    if options.data is None:
        raise Invalid("coverage needs EDRP: give --data the folder of the real data sets")
    readings = in_time_order(options.data).T
    protocol = {"seeds": 100, "days": 14, "seeds_raw": 1} if options.quick else {}
    measured = [measure(readings, epsilon, bound=BOUND, **protocol) for epsilon in EPSILONS]
    notes = [
        "The column `held` has the share of slots, over all seeds, in which the 95 % interval contains the truncated "
        "mean. The column `ratio` is the predicted standard error divided by the measured one. For these two "
        "columns, the study simulates one day with `seeds` seeds. Each seed gives other noise.",
        "The columns whose name ends in `raw` are for the mean of the readings. For them, the study simulates "
        "`days_raw` days with `seeds_raw` seeds. The column `held_raw` has the share of slots in which the 95 % "
        "interval of the mean of the readings contains that mean, over all seeds and days. The column "
        "`least_held_raw` has the same share for the half-hour of the day at which it is lowest. The column "
        "`width_raw` has the median of a ratio: the width of the interval of the mean of the readings, divided by the "
        "width of the interval of the truncated mean.",
        "ε is for one reading (event level): 48 readings a day cost a household 48 ε.",
    ]
    columns = [field.name for field in fields(Coverage)]
    epsilons = [float(epsilon) for epsilon in EPSILONS]
    curves = {
        "truncated mean": (epsilons, [coverage.held for coverage in measured]),
        "mean of the readings": (epsilons, [coverage.held_raw for coverage in measured]),
        "mean of the readings, worst half-hour": (epsilons, [coverage.least_held_raw for coverage in measured]),
        "nominal": (epsilons, [0.95] * len(measured)),
    }
    panel = Panel(
        "Intervals that hold",
        "ε of a reading",
        "share of intervals",
        curves,
        logarithmic=False,
        joined=False,
        baseline="nominal",
    )
    return Outcome(TITLE, columns, [astuple(coverage) for coverage in measured], notes, [panel])
