"""Experiment: Figure 1 of CGM, the error by report on the stand-in for the Kaggle pages."""

from undertone_studies.cgm_figures import by_time, figure_study
from undertone_studies.cgm_populations import kaggle_like

TITLE = "CGM, Figure 1: error by report, the stand-in for the Kaggle pages"
PARAGRAPH = (
    "Figure 1 of the paper shows the mean squared error by day on the Kaggle pages, for Algorithms 1 and 3. The data "
    "are not available here, so we use a synthetic stand-in. The line `ships` is for the noise that our devices draw."
)

run = figure_study(by_time, kaggle_like, TITLE)
