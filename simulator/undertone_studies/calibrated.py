"""How the share of 95 % intervals that hold varies by chance in a few campaigns, if all widths are exactly right.

An interval holds if it contains the true value. The errors of a filtered series are correlated in neighbouring slots.
So the share of intervals that hold varies from campaign to campaign as if there were far fewer slots. Here the errors,
divided by their standard errors, are a Gaussian process of variance 1. It has the correlations of the errors of one
cell, which are the campaigns of one row of the study `load`. The correlations are weighted by 1 - k/K at a lag of k
slots, with K = `REACH`, so that their own noise hardly counts. This leaves out longer correlations, so the real shares
vary by more than this.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.estimate.estimates import Z

Array = NDArray[np.float64]

DRAWS = 1_000
# Two days of half-hours.
REACH = 96


class Calibrated(NamedTuple):
    """``held``: the share of slots whose intervals hold; ``least``: that share in the worst part of the day.

    Both are arrays [draws].
    """

    held: Array
    least: Array

    @property
    def chance(self) -> float:
        """The standard deviation of ``held`` between draws."""
        return float(np.std(self.held))

    @property
    def independent(self) -> float:
        """The number of independent slots that would have this standard deviation."""
        return float(np.mean(self.held)) * float(1.0 - np.mean(self.held)) / max(self.chance**2, 1e-12)


def calibrated(errors: Sequence[Array], parts: Array, seed: int, campaigns: int = 1, draws: int = DRAWS) -> Calibrated:
    """Return the shares of ``campaigns`` campaigns, whose errors have the correlations of a cell's errors.

    ``errors``: for each of the cell's campaigns, the errors [slots] divided by their standard errors. ``parts``
    [slots]: the part of the day of each slot.
    """
    rng, slots = np.random.default_rng(seed), min(len(each) for each in errors)
    long = 2 * slots
    powers = np.mean([np.square(np.abs(np.fft.fft(each[:slots], long))) for each in errors], axis=0)
    lags = np.minimum(np.arange(long), long - np.arange(long))
    spectrum = np.fft.fft(np.fft.ifft(powers).real * np.maximum(1.0 - lags / REACH, 0.0)).real
    amplitudes = np.sqrt(np.maximum(spectrum, 0.0))
    amplitudes *= np.sqrt(long / np.sum(np.square(amplitudes)))
    white = rng.standard_normal((draws * campaigns, long))
    drawn = np.fft.ifft(np.fft.fft(white, axis=1) * amplitudes, axis=1).real[:, :slots]
    inside = (np.abs(drawn) <= Z).reshape(draws, campaigns, slots)
    shares = [inside[:, :, parts[:slots] == one].mean(axis=(1, 2)) for one in np.unique(parts)]
    return Calibrated(inside.mean(axis=(1, 2)), np.min(shares, axis=0))
