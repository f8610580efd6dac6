"""Experiment: correlated Gaussian noise (CGM) on half-hours of a day of 622 Scottish households."""

from undertone_studies.cgm import compare, real
from undertone_studies.cgm_populations import edrp
from undertone_studies.outcome import Outcome
from undertone_studies.registry import StudyOptions

TITLE = "CGM: half-hours of a day of 622 Scottish households"
PARAGRAPH = (
    "In the paper, the error of the population mean is smaller with CGM than with independent noise. On half-hourly "
    "meters, a smaller C reduces only one part of the error, the part that comes from noise. At C = .05, the noise of "
    "our mechanism has about an eighth of the variance of independent noise, and half of the variance of the paper's "
    "noise. The paper's noise is larger because its calibration by √l (l is the number of reports) uses a bound of the "
    "squared sensitivity that is about twice as large as necessary. But these readings move by more than C = .05 of "
    "the range in single half-hours. Clipping then leaves a bias of 45 Wh, which does not become smaller with more "
    "devices. From 10^5 meters on, independent noise that is smoothed is the better choice, because it needs no "
    "clipping. In the paper, a device clips a reading against the raw reading of the slot before, not against the "
    "clipped one. This way of clipping hides a part of the bias, and makes the paper's proof wrong."
)


def run(options: StudyOptions) -> Outcome:
    """Compare the methods. Raises Invalid without the data."""
    return compare(real(edrp, options), options)
