"""Experiment: Figure 3 of CGM, the effect of C on the stand-in for the Kaggle pages."""

from undertone_studies.cgm_figures import by_slew
from undertone_studies.cgm_populations import kaggle_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM, Figure 3: effect of C, the stand-in for the Kaggle pages"
PARAGRAPH = (
    "Figure 3 of the paper shows Algorithm 3 with C of 200, 500 and 1000 views a day, of a range of 20,000. The paper "
    "finds that the smallest C is best at small ε, and that it leads to large errors on some days at large ε."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the errors."""
    return by_slew(kaggle_like(), TITLE)
