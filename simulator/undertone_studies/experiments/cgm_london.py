"""Experiment: correlated Gaussian noise (CGM) on daily energy of London households."""

from undertone_studies.cgm import compare, real
from undertone_studies.cgm_populations import london
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: daily energy of London households"
PARAGRAPH = (
    "The paper has no daily meters. A hundred households are too few to show a stream of 484 reports under one "
    "budget: the error exceeds the range. Without smoothing, the error of correlated noise is a third of that of "
    "independent noise. Smoothing removes more of the independent noise. So after smoothing the two are alike in "
    "small fleets, and in large fleets the bias of clipping decides."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods. Raises Invalid without the data."""
    return compare(real(london, options), options.seed)
