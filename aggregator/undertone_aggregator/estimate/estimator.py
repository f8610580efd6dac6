"""What every way of collecting can compute from its reports."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from undertone_aggregator.counts.compact import Tables
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import Counts, Key
from undertone_aggregator.estimate.difference import MeanDifference, Side
from undertone_aggregator.estimate.estimates import Estimates, RangeEstimate


class Estimator(Protocol):
    """Estimator of one way of collecting: it computes a group's raw series from its histograms, all slots at once."""

    @property
    def memory(self) -> int:
        """Number of preceding slots whose reports the estimate of a slot needs."""

    @property
    def chains(self) -> int:
        """Number of chains of correlated noise that alternate by slot. It is also 1 if the noise of slots is
        independent.
        """

    def estimates(self, reports: Tables, group: str) -> Estimates:
        """Return an estimate for each slot and series of a group, sorted by slot, then series.

        ``reports``: the reports of this group.
        """

    def warnings(self, estimates: Estimates) -> list[str]:
        """Return sentences about problems with the campaign's settings that the raw estimates show."""

    def ranges(self, reports: Tables, group: str, every: int) -> list[RangeEstimate]:
        """Return the mean of each run of ``every`` slots, by run, then series; runs begin at multiples of ``every``."""

    def means(self, reports: Tables, group: str, slots: Collection[int]) -> list[RangeEstimate]:
        """Return the mean over the given slots that have a number, by series; no row for a series without one."""

    def differences(self, one: Side, other: Side) -> list[MeanDifference]:
        """Return the mean of one side minus that of the other, by coordinate; none if a side has no number."""


def estimates_of(estimator: Estimator, partial: Mapping[Key, Counts], groups: Iterable[str] | None = None) -> Estimates:
    """Return the estimates of a Partial's reports, by slot, then series: of all groups, or of ``groups`` only."""
    parts = Histograms.of(partial).each_group(groups)
    return Estimates.together([estimator.estimates(reports, group) for group, reports in parts])
