"""Experiment: Figure 9 of ToPL."""

import numpy as np

from undertone_studies.outcome import Outcome
from undertone_studies.panel import Curve, Panel
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_local import GUARANTEE, REPORT_EPSILON, reports, thresholds
from undertone_studies.tops_streams import (
    one_stream,
    windows,
)

TITLE = "ToPL, figure 9: the stream reconstructed"
PARAGRAPH = (
    "The paper shows with one run at ε = 1 that the means which ToPL publishes follow the truth. We find the same for "
    "our method. The table has the errors of means of 4096 reports. Base always answers 0, so its error shows how "
    "large the true means are. The error of our method is a thirteenth of the error of Base. SW-W has a larger "
    "threshold than our method, and its error is several times as large as ours. The error of SW is larger than the "
    "error of Base."
)


def run(options: StudyOptions) -> Outcome:
    """Estimate the stream DNS once from reports at ε = 1: means over windows of 4096 reports."""
    stream = one_stream(options, "DNS")
    curves: dict[str, Curve] = {"truth": windows(stream.body.astype(float))}
    truth = np.asarray(curves["truth"][1])
    rows: list[list[str | float]] = []
    for number, (name, theta) in enumerate(thresholds(stream, REPORT_EPSILON, [options.seed, 0]).items()):
        curves[f"{name}, θ = {theta}"] = windows(reports(stream.body, theta, options.seed + number))
    curves["Base"] = (curves["truth"][0], [0.0] * len(truth))
    for name, (_, y) in curves.items():
        rows.append([name, float(np.sqrt(np.mean((np.asarray(y) - truth) ** 2)))])
    panel = Panel(stream.name, "value number", "mean of 4096 reports", curves, logarithmic=False)
    columns = ["method", "RMSE of a window's mean"]
    return Outcome(f"ToPL, figure 9 ({stream.name})", columns, rows, [GUARANTEE], [panel])
