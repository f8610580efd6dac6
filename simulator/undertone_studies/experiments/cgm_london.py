"""Experiment: correlated Gaussian noise (CGM) on daily energy of London households."""

from undertone_studies.cgm import compare, real
from undertone_studies.cgm_populations import london
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: daily energy of London households"
PARAGRAPH = (
    "The paper has no daily meters. A stream of 484 reports under one budget is beyond what a hundred households"
    " can show: their error exceeds the range. Correlated noise is three times below independent noise raw; but the"
    " smoother takes more from independent noise, so that after smoothing the two are alike in small fleets, and"
    " clipping decides in large ones, as anywhere."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods. Raises Invalid without the data."""
    return compare(real(london, options), options.seed)
