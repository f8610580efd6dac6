"""Experiment: Figure 3 of CGM, the effect of C on the stand-in for the Kaggle pages."""

from undertone_studies.cgm_figures import by_slew, figure_study
from undertone_studies.cgm_populations import kaggle_like

TITLE = "CGM, Figure 3: effect of C, the stand-in for the Kaggle pages"
PARAGRAPH = (
    "Figure 3 of the paper shows Algorithm 3 with C of 200, 500 and 1000 views a day, of a range of 20,000. The paper "
    "finds that the smallest C is best at small ε, and that it leads to large errors on some days at large ε."
)

run = figure_study(by_slew, kaggle_like, TITLE)
