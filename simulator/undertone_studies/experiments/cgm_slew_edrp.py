"""Experiment: effect of C on CGM with half-hours of households."""

from undertone_studies.cgm import real
from undertone_studies.cgm_figures import by_slew
from undertone_studies.cgm_populations import edrp
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: effect of C, half-hours of 622 Scottish households"
PARAGRAPH = "This is Figure 4 of the paper for real meters, whose readings jump. The paper has no such data."


def run(options: StudyOptions) -> Outcome:
    """Compute the errors. Raises Invalid without the data."""
    return by_slew(real(edrp, options), TITLE)
