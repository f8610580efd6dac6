"""Experiment: Figure 4 of CGM, the effect of C on the stand-in for the Beijing taxis."""

from undertone_studies.cgm_figures import by_slew, figure_study
from undertone_studies.cgm_populations import taxi_like

TITLE = "CGM, Figure 4: effect of C, the stand-in for the Beijing taxis"
PARAGRAPH = (
    "Figure 4 of the paper shows Algorithm 3 with C of .01, .05 and .1 of the range. The paper finds that .01 is the "
    "best at every ε, because the shares of time that taxis spend in the zone change little."
)

run = figure_study(by_slew, taxi_like, TITLE)
