"""Experiment: correlated Gaussian noise (CGM) on a stand-in for the Beijing taxis."""

from undertone_studies.cgm import compare
from undertone_studies.cgm_populations import taxi_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: the stand-in for the Beijing taxis"
PARAGRAPH = (
    "Positions of taxis are the paper's smooth case; its data are not here, so this is a synthetic stand-in. Raw,"
    " correlated noise is well ahead of independent noise in small fleets, as in the paper; smoothed on the server,"
    " independent noise catches up, and in large fleets clipping bias decides."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods; see `undertone_studies.cgm`."""
    return compare(taxi_like(), options.seed)
