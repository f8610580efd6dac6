"""Experiment: tables designed with and without knowledge of the readings: their variance, and the effect of a lie."""

import numpy as np

from undertone_aggregator.design import hybrid
from undertone_aggregator.design.certificate import certify_named
from undertone_aggregator.design.table import LEVELS, optimal_table
from undertone_shared.mechanism import Hybrid
from undertone_shared.table import TableMechanism
from undertone_studies.outcome import Cell, Outcome
from undertone_studies.registry import StudyOptions

TITLE = "Designed tables for the worst reading"
PARAGRAPH = (
    "The variance of a decoded report depends on the reading. If nobody knows how often each reading occurs, a table "
    "minimises the largest of these variances, which is the variance for the worst reading. If the frequencies are "
    "known, a table minimises the mean variance under them, and its largest decoded value is limited. (The largest "
    "decoded value is the largest number to which the server decodes a report.) Here the limit is 1.1 times the "
    "smallest size that this value can have. The largest decoded value of the Hybrid is larger, so a false report with "
    "the largest value moves a mean further with the Hybrid than with the table."
)

EPSILONS = ("0.5", "1", "2", "3", "4")
THETA = 1000


def run(options: StudyOptions) -> Outcome:
    """Compute variance and reach of tables of 25 levels, relative to the Hybrid's, and their numbers of symbols."""
    # Small readings are likelier, as in a household: each level is e^(-1/5) times as likely as the level below it.
    falling = np.exp(-np.arange(LEVELS + 1) / 5.0)
    rows: list[tuple[Cell, ...]] = []
    for epsilon in EPSILONS[1:2] if options.quick else EPSILONS:
        worst, shaped = certify_named("optimal", epsilon), optimal_table(epsilon, THETA, density=falling.tolist())
        variance = float(worst.variance_ratio_worst or 0)
        reach = _farthest(shaped) / _farthest(hybrid(epsilon))
        rows.append((epsilon, variance, worst.mechanism.symbols, shaped.symbols, reach))
    return Outcome(
        TITLE,
        ("ε", "variance, worst reading", "symbols", "symbols, small readings", "largest value, small readings"),
        rows,
        (
            "Each variance is divided by the variance of the Hybrid at the same θ, and each largest decoded value by "
            "the largest decoded value of the Hybrid. In the columns for small readings, each level is e^(-1/5) times "
            "as likely as the level below. There are no random runs, because all figures follow from ε.",
            "ε is for one reading (event level).",
        ),
    )


def _farthest(mechanism: TableMechanism | Hybrid) -> float:
    """Return the largest decoded value of a symbol."""
    values = (mechanism.decode(symbol, THETA) for symbol in range(mechanism.symbols))
    return max(above / below for above, below in values)
