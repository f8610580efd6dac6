"""Experiment: Figure 1 of CGM, the error by report on the stand-in for the Kaggle pages."""

from undertone_studies.cgm_figures import by_time
from undertone_studies.cgm_populations import kaggle_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM, Figure 1: error by report, the stand-in for the Kaggle pages"
PARAGRAPH = (
    "Figure 1 of the paper shows the mean squared error by day on the Kaggle pages, for Algorithms 1 and 3. The data "
    "are not available here, so this is a synthetic stand-in. The line of what ships is for the noise that our devices "
    "draw."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the errors."""
    return by_time(kaggle_like(), TITLE)
