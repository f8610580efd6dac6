"""Experiment: correlated Gaussian noise (CGM) on a stand-in for the Beijing taxis."""

from undertone_studies.cgm import compare
from undertone_studies.cgm_populations import taxi_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: the stand-in for the Beijing taxis"
PARAGRAPH = (
    "Taxis are the paper's example of smooth data: a reading is the share of a half-hour that a taxi spends in a zone. "
    "The data are not available here, so we use a synthetic stand-in. Without smoothing, correlated noise has a much "
    "smaller error than independent noise in small fleets, as in the paper. After smoothing on the server, the error "
    "with correlated noise in small fleets is .41 to 1.45 times the error with independent noise, depending on ε and "
    "C. In large fleets, after smoothing, independent noise in every slot has a smaller error than correlated noise in "
    "every slot, because it needs no clipping."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods; see `undertone_studies.cgm`."""
    return compare(taxi_like(), options)
