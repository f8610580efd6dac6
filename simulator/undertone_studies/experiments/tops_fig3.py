"""Experiment: Figure 3 of ToPS."""

from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions
from undertone_studies.tops_figures import end_to_end

TITLE = "ToPS, figure 3: MSE, end to end"
PARAGRAPH = (
    "In the paper, the error of ToPS is smaller than the error of PAK by orders of magnitude, and the threshold of "
    "ToPS (NM-E) contributes more to this difference than the hierarchy of ToPS. Here, too, the error of ToPS is "
    "smaller than the error of PAK on every stream, by a factor from about 800 to 5 million. On POS, DNS and Kosarak, "
    "the threshold contributes more than the hierarchy.\n\nOn EDRP and Fare, the thresholds that NM-E chooses are "
    "nearer to the public bound. There the hierarchy contributes more than the threshold: on EDRP at every ε, and on "
    "Fare at the two smallest ε. In the paper, ToPS and NM-E + H2 have similar errors on Fare and Kosarak. On our "
    "stand-ins for these two streams, the error of NM-E + H2 is at least 50 times the error of ToPS.\n\nThe method "
    "`ToPS, paper's c = 60` chooses θ by the paper's Eq. 6 (see figure 1). On EDRP, whose values are Wh, this method "
    "makes θ far too small. Its error on EDRP is 15 to 74 times the error of our default (`ToPS`). On POS, whose "
    "values are counts, its error is smaller than the error of our default at the two smallest ε. At the two largest ε "
    "its error is 2.1 and 2.6 times the error of our default."
)


def run(options: StudyOptions) -> Outcome:
    """Compute the MSE of 200 random range queries over ε, end to end."""
    return end_to_end(options, ("mse",), TITLE)
