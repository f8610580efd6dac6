"""Experiment: correlated Gaussian noise (CGM) on daily energy of London households."""

from undertone_studies.cgm import compare, real
from undertone_studies.cgm_populations import london
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: daily energy of London households"
PARAGRAPH = (
    "The paper has no daily meters. A hundred households are too few for a stream of 484 reports under one budget: "
    "without smoothing, the error exceeds the range of the readings. The error with correlated noise in every slot is "
    "then about a third of the error with independent noise in every slot. Smoothing removes a larger share of "
    "independent noise than of correlated noise. So after smoothing, the two have about the same error in small "
    "fleets, and in large fleets independent noise has the smaller error, because it needs no clipping."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods. Raises Invalid without the data."""
    return compare(real(london, options), options)
