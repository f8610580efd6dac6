"""Experiment: Figure 2 of CGM, the error by report on the stand-in for the Beijing taxis."""

from undertone_studies.cgm_figures import by_time
from undertone_studies.cgm_populations import taxi_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM, Figure 2: error by report, the stand-in for the Beijing taxis"
PARAGRAPH = (
    "Figure 2 of the paper shows the mean squared error by half-hour on the Beijing taxis, for Algorithms 1 and 3. The "
    "data are not available here, so this is a synthetic stand-in. The line of what ships is for the noise that our "
    "devices draw."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the errors."""
    return by_time(taxi_like(), TITLE)
