"""Experiment: error by report of CGM on half-hours of households."""

from undertone_studies.cgm import real
from undertone_studies.cgm_figures import by_time
from undertone_studies.cgm_populations import edrp
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: error by report, half-hours of 622 Scottish households"
PARAGRAPH = "This is Figure 2 of the paper for real meters, whose readings jump. The paper has no such data."


def run(options: StudyOptions) -> Outcome:
    """Compute the errors. Raises Invalid without the data."""
    return by_time(real(edrp, options), TITLE)
