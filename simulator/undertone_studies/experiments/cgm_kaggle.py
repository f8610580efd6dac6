"""Experiment: correlated Gaussian noise (CGM) on a stand-in for the Kaggle pages, with the paper's budget per day."""

from undertone_studies.cgm import compare
from undertone_studies.cgm_populations import kaggle_like
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: the stand-in for the Kaggle pages"
PARAGRAPH = (
    "The paper finds that CGM has a much smaller error on page views than independent noise, most of all at small ε. "
    "We use a synthetic stand-in for these data. Without smoothing, CGM has a much smaller error on the stand-in, too. "
    "The paper's noise has a tenth of the variance of independent noise. The noise of our mechanism has half of the "
    "variance of the paper's noise. In the paper, ε is for each report. The guarantee for the whole stream of a page "
    "is much weaker: 550 reports at ε = 1 add up to ε = 46. Smoothing on the server reduces the error with independent "
    "noise more than the error with our noise. For 1,578 pages, the smoothed error with our noise is about a quarter "
    "smaller than with independent noise every day (`direct`), and about the same as with independent noise every "
    "fourth day (`sampled`). For a million pages independent noise has the smaller error after smoothing, because "
    "clipping leaves a bias."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods; see `undertone_studies.cgm`."""
    return compare(kaggle_like(), options)
