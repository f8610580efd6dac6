"""Experiment: Figure 10 of ToPS."""

from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import end_to_end

TITLE = "ToPS, figure 10: MAE, MMAE, MMSE, end to end"
PARAGRAPH = (
    "In the paper other metrics rank the methods as the mean square error does, except that the better hierarchy no "
    "longer helps in absolute error. Here it helps in all metrics: with H2 the variance of the noise is four times "
    "larger before consistency, and more than that after it. As in the paper, errors per value (MMAE, MMSE) are less "
    "stable, because short ranges decide them."
)


def run(options: StudyOptions) -> Outcome:
    """Compute other metrics end to end: mean absolute error, and both errors of means instead of sums."""
    return end_to_end(options, ("mae", "mmae", "mmse"), TITLE)
