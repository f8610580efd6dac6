"""Experiment: the regret of the chosen θ."""

import statistics

from undertone_aggregator.base.plural import many
from undertone_studies import theta
from undertone_studies.outcome import Outcome
from undertone_studies.panel import Panel
from undertone_studies.registry import StudyOptions

TITLE = "Threshold: regret of the chosen θ"
PARAGRAPH = (
    "The paper of ToPL reports that its white box (SW-W) has smaller errors than plain Square Wave (SW) on four "
    "streams. This study compares each method with the best threshold, which one can find only from the true "
    "frequencies.\n\nIf the readings are small counts (POS and DNS), the mean square error with smoothed EM (`ems`, "
    "the method of SW) is at least 200 times as large as with the best threshold (median of the runs). Smoothed EM "
    "estimates that a few readings are very large. So its threshold is far too large, and the noise grows with the "
    "threshold. SW-W assumes that there are no readings above the first run of empty bins in the estimated "
    "distribution. Chance decides where this run lies, so the threshold of SW-W is sometimes good and sometimes bad. "
    "On half-hourly meters (EDRP) the threshold of SW-W gets worse as ε grows.\n\nThe default method (`robust`) fits a "
    "tail instead. From ε = 0.6 on, its mean square error on the four real data sets is less than 1.3 times as large "
    "as with the best θ (median of the runs). With Pareto tails, its error is larger. The default method fails if one "
    "reading in ten is a hundred times as large as the others and ε is small. [The page on "
    "θ](../threshold.md#where-it-misses) says by how much."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the mean square error at the chosen θ, divided by the least of all candidates: see `theta`."""
    runs = theta.SHORT if options.quick else options.repeats or theta.RUNS
    # A quick run uses one process, because it would end before several processes have started.
    workers = 1 if options.quick else options.workers
    tasks = theta.protocol(options.data, options.quick, options.seed, runs, options.only)
    rows = theta.run(tasks, workers)
    panel = Panel(
        "Regret of paper mode, over all populations",
        "ε of the threshold's reports",
        "MSE over the least",
        _over_populations([row for row in rows if row.mode == "paper"]),
        logarithmic_x=True,
        better="lower",
    )
    columns, lines = theta.table(rows)
    notes = [
        f"Each cell is from {many(runs, 'run')}. The *regret* of a run is the mean square error with the θ that "
        "the method "
        "chose, divided by the mean square error with the best θ. A cell has the median, the 90 % quantile and the "
        "worst regret, and in parentheses the number of runs with a regret above 3. ε is for one reading (event "
        "level). The method `robust` also gives a range for θ, which is meant to contain the best θ with a "
        "probability of at least 90 %.",
        "The column `mode` names what is estimated. In the rows `paper`, it is the sum of a random range of up to 2^20 "
        f"values of one stream, as in the paper of ToPL. In the rows `fleet`, it is the sum of one slot of "
        f"{theta.FLEET:,} devices. A run draws its readings at random from the data set; in the rows `paper, in time "
        "order`, it takes the readings of four consecutive days.",
    ]
    notes += [_confidence(mode, [row for row in rows if row.mode == mode and row.method == "robust"])
              for mode in dict.fromkeys(row.mode for row in rows)]  # fmt: skip
    return Outcome(TITLE, columns, lines, notes, [panel])


def _confidence(mode: str, rows: "list[theta.Regret]") -> str:
    """Return a sentence: how often a θ far from the best is flagged, and how often ranges contain the best."""
    runs, held, off, told = (sum(getattr(row, name) for row in rows) for name in ("runs", "held", "off", "told"))
    return (
        f"In the rows `{mode}`, the range of the method `robust` contains the best θ in {held} of "
        f"{many(runs, 'run')}. In {many(off, 'run')} the θ that `robust` chose is more than {theta.OFF} times "
        f"too large or too small; in {told} of them there is a warning, or the range contains the best θ."
    )


def _over_populations(rows: "list[theta.Regret]") -> dict[str, tuple[list[float], list[float]]]:
    """Return two curves of each method over ε: the median and the largest of the populations' median regrets."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for method in dict.fromkeys(row.method for row in rows):
        for name, pick in (("median", statistics.median), ("worst", max)):
            by_epsilon: dict[float, list[float]] = {}
            for row in rows:
                if row.method == method:
                    by_epsilon.setdefault(float(row.epsilon), []).append(row.median)
            x = sorted(by_epsilon)
            curves[f"{method}, {name}"] = (x, [float(pick(by_epsilon[epsilon])) for epsilon in x])
    return curves
