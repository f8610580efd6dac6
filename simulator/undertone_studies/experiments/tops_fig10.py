"""Experiment: Figure 10 of ToPS."""

from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import end_to_end

TITLE = "ToPS, figure 10: MAE, MMAE, MMSE, end to end"
PARAGRAPH = (
    "In the paper, other measures of the error give the same order of the methods as the mean square error. The "
    "exception is that the better hierarchy does not help in absolute error. Here it helps in all measures. The "
    "reason is that the variance of the noise of H2 is more than four times that of H16, and twelve times that of "
    "H16 made consistent. As in the paper, errors per value (MMAE, MMSE) vary more than errors of sums, because "
    "they depend mostly on short ranges."
)


def run(options: StudyOptions) -> Outcome:
    """Compute other metrics end to end: mean absolute error, and both errors of means instead of sums."""
    return end_to_end(options, ("mae", "mmae", "mmse"), TITLE)
