"""Experiment: Table 1 of ToPS."""

import numpy as np

from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_streams import LONGEST, TABLE1, streams

TITLE = "ToPS, Table 1"
PARAGRAPH = (
    "The data of Fare and Kosarak are not available here. Values drawn at random stand in for them. We draw these "
    "values independently of each other, from a distribution with the paper's quantiles, mean and maximum. So unlike "
    "real data they have no order in time, and the largest value drawn can be below the paper's maximum. POS is the "
    "paper's stream. The DNS extract that the authors publish is not the one of their Table 1: its largest value is 28 "
    "instead of 617. So the public bound of DNS is seventy times the largest value here. In the paper it is only three "
    "times the largest value. A bound so far above the values favours methods that find a small threshold."
)


def run(options: StudyOptions) -> Outcome:
    """Describe the streams, with the paper's figures of Table 1."""
    rows: list[list[str | int | float]] = []
    for stream in streams(options):
        v = stream.values
        quantiles = [int(q) for q in np.quantile(v, [0.85, 0.95, 0.995], method="inverted_cdf")]
        rows.append([stream.name, len(v), stream.bound, *quantiles, int(v.max()), float(v.mean())])
    rows += [[f"{name} (the paper's)", *figures] for name, figures in TABLE1.items()]
    notes = [
        f"The stand-ins are independent draws, at most {LONGEST:,} of each.",
        "No privacy is spent in this table: it describes data that are public or synthetic.",
    ]
    return Outcome(TITLE, ["stream", "n", "B", "p85", "p95", "p99.5", "max", "mean"], rows, notes)
