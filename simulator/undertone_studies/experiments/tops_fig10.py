"""Experiment: Figure 10 of ToPS."""

from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import end_to_end

TITLE = "ToPS, figure 10: MAE, MMAE, MMSE, end to end"
PARAGRAPH = (
    "MAE is the mean absolute error of a range. MMAE and MMSE first divide the error of each range by the number of "
    "its values. In the paper, these measures give the same order of the methods as the mean square error, with one "
    "exception: in absolute error, the hierarchy of ToPS (H16 made consistent) does not help. Here this hierarchy "
    "helps in all measures. The variance of the noise of H2 is more than four times that of H16, and twelve times that "
    "of H16 made consistent. Chance moves MMAE and MMSE more than the other measures, because MMAE and MMSE depend "
    "mostly on short ranges. On EDRP, `ToPS, paper's c = 60` has a smaller MMSE than our default, although its error "
    "in the other measures is larger."
)


def run(options: StudyOptions) -> Outcome:
    """Compute other metrics end to end: mean absolute error, and both errors of means instead of sums."""
    return end_to_end(options, ("mae", "mmae", "mmse"), TITLE)
