"""Experiment: Figure 2 of CGM, the error by report on the stand-in for the Beijing taxis."""

from undertone_studies.cgm_figures import by_time, figure_study
from undertone_studies.cgm_populations import taxi_like

TITLE = "CGM, Figure 2: error by report, the stand-in for the Beijing taxis"
PARAGRAPH = (
    "Figure 2 of the paper shows the mean squared error by half-hour on the Beijing taxis, for Algorithms 1 and 3. "
    "The data are not available here, so we use a synthetic stand-in. The line `ships` is for the noise that our "
    "devices draw."
)

run = figure_study(by_time, taxi_like, TITLE)
