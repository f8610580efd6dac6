"""Experiment: Figure 5 of ToPS."""

import numpy as np

from undertone_central import FreshBytes
from undertone_central.mechanisms.hierarchy import levels_for
from undertone_central.mechanisms.variance import consistent_variance, cover_size
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import at_quantile
from undertone_studies.tops_methods import (
    Trial,
    hierarchy_answers,
    source,
    tops_answers,
)
from undertone_studies.tops_streams import QUERIES, R, TopsStream

TITLE = "ToPS, figure 5: hierarchies (MSE)"
PARAGRAPH = (
    "The paper chooses a tree with a fan-out of 16 that is made consistent, because in experiments its errors are "
    "smaller than those of a binary tree. The mean square error from noise is Kθ²/ε². The constant K depends on the "
    "tree: K is 14276 for H2, 3195 for H16, and 1171 for H16 made consistent. With smoothing, the error of H16 made "
    "consistent is only 7 to 26 % of its error without smoothing, depending on the stream and on ε."
)


def run(options: StudyOptions) -> Outcome:
    """Compare hierarchies, at the 95 % quantile, against the truncated truth."""

    def trials(stream: TopsStream, theta: int, epsilon: str) -> dict[str, Trial]:
        def bytes_(i: int) -> FreshBytes:
            return source(options.seed, i, "fig5")

        return {
            "H2": lambda i: hierarchy_answers(stream, theta, epsilon, bytes_(i), 2),
            "H16": lambda i: hierarchy_answers(stream, theta, epsilon, bytes_(i), 16),
            "H16 consistent": lambda i: tops_answers(stream, theta, epsilon, bytes_(i), 0),
            "H16 consistent, smoothed": lambda i: tops_answers(stream, theta, epsilon, bytes_(i)),
        }

    outcome = at_quantile(options, trials, TITLE)
    constants = ", ".join(f"{k:.6g} for {name}" for name, k in noise_constants().items())
    notes = [
        *outcome.notes,
        f"The mean square error from noise alone is Kθ²/ε² for the 200 ranges, exactly. K is {constants}.",
    ]
    return Outcome(outcome.title, outcome.columns, outcome.rows, notes, outcome.panels)


def noise_constants() -> dict[str, float]:
    """Return K of each hierarchy.

    K is twice the squared number of levels, times the mean variance of a query's answer in units of a node's variance.
    """
    queries = QUERIES.tolist()
    constants = {}
    for fanout in (2, 16):
        levels = levels_for(fanout, R)
        plain = np.mean([cover_size(a, b, fanout, levels) for a, b in queries])
        consistent = np.mean([consistent_variance(a, b, fanout, levels) for a, b in queries])
        constants[f"H{fanout}"] = float(2 * levels**2 * plain)
        constants[f"H{fanout} consistent"] = float(2 * levels**2 * consistent)
    return constants
