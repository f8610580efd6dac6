"""Cells: what a counted report adds to a batch, one class for each way of collecting."""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.chains import record as chain_record
from undertone_aggregator.counts.columns import Columns
from undertone_aggregator.counts.moments import layout_of
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.store.store import Batch
from undertone_shared import report
from undertone_shared.off_board.intake import Report

# Kind of report -> the part of the campaign, ``cohort`` or ``report``, whose mechanism draws the report.
_PART = {report.COHORT: "cohort", report.REPORT: "report"}


Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Cells(Protocol):
    """Adds to a batch the reports that a campaign's rule admits.

    ``admits`` and ``add_all`` take many reports with one value each, as columns. The results are the same as if the
    rule's ``admits``, and then ``add``, were called for each report. The order of the devices makes no difference.
    """

    def length(self, rule: Any, kind: int) -> int:
        """Return the number of cells in which reports of a kind are counted."""

    def admits(self, rule: Any, columns: Columns, member: Mask) -> Mask:
        """Return which reports [n] the rule admits.

        ``member`` [n]: True if in this slot it is the device's turn to report for the threshold.
        """

    def add_all(self, rule: Any, columns: Columns, at: Integers, key: Key, chains: Chains, batch: Batch) -> None:
        """Count the reports at the indices ``at``, which all have ``key``'s kind, group and slot."""

    def add(self, rule: Any, received: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Count one report under the key ``at``. ``device``: the device's key; ``chains``: the state of its chains."""


class Histogram:
    """Scalar reports: one cell of a histogram [symbols]."""

    def add(self, rule: Any, received: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Count the report's symbol."""
        batch.partial.add(at, received.values[0], self.length(rule, received.kind))

    def length(self, rule: Any, kind: int) -> int:
        """Return the number of symbols of the mechanism that draws this kind of report."""
        symbols: int = dict(rule.mechanisms)[_PART[kind]].symbols
        return symbols

    def admits(self, rule: Any, columns: Columns, member: Mask) -> Mask:
        """Admit reports of the kind due in their slot, with a symbol that the mechanism can draw, and chain index 0."""
        in_cohort = member | (rule.report is None)
        drawn = _occurs(rule.cohort.mechanism, columns.symbol)
        if rule.report is not None:
            drawn = np.where(in_cohort, drawn, _occurs(rule.report.mechanism, columns.symbol))
        asked = np.where(in_cohort, report.COHORT, report.REPORT)
        admitted: Mask = (columns.kind == asked) & (columns.chain == 0) & drawn
        return admitted

    def add_all(self, rule: Any, columns: Columns, at: Integers, key: Key, chains: Chains, batch: Batch) -> None:
        """Add a histogram of the reports' symbols."""
        batch.partial.add_counts(key, np.bincount(columns.symbol[at], minlength=self.length(rule, key.kind)))


def _occurs(mechanism: Any, symbols: Integers) -> Mask:
    table = _table(mechanism)
    within = symbols < len(table)
    return within & table[np.where(within, symbols, 0)]


@lru_cache(maxsize=64)
def _table(mechanism: Any) -> Mask:
    return np.array([mechanism.occurs(symbol) for symbol in range(mechanism.symbols)])


class Moments:
    """Streams: sums by chain age, and the pairs of slots on one chain, see `undertone_aggregator.counts.moments`."""

    def add(self, rule: Any, received: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Add the report's values, and its pairs with other reports of the same chain."""
        layout = layout_of(rule)
        origin = received.slot - received.chain * rule.lag
        batch.partial.add_moments(at, layout.report(received.values, received.chain), layout.cells)
        for later, lag in chains.observe(device, received.slot, origin):
            batch.partial.add_moments(at._replace(slot=later), layout.pair(lag), layout.cells)
        batch.chains += chain_record(device, received.slot, origin)

    def length(self, rule: Any, kind: int) -> int:
        """Return the number of moments of this rule's reports."""
        return layout_of(rule).cells

    def admits(self, rule: Any, columns: Columns, member: Mask) -> Mask:
        """Admit a stream's reports whose chain index and released value are within the rule's bounds.

        Admit none if the rule's readings have several coordinates: those reports are judged one by one.
        """
        largest = rule.largest_release()
        if rule.dimension != 1:
            return np.zeros(len(member), dtype=bool)
        within = (columns.chain >= 1) & (columns.chain <= rule.reports) & (np.abs(columns.released) <= largest)
        admitted: Mask = (columns.kind == report.STREAM) & within
        return admitted

    def add_all(self, rule: Any, columns: Columns, at: Integers, key: Key, chains: Chains, batch: Batch) -> None:
        """Add the sums of the values. Pairs are found one by one, because each depends on the reports before it."""
        layout = layout_of(rule)
        batch.partial.add_counts(key, layout.reports(columns.released[at], columns.chain[at]))
        for device, chain in zip(columns.device[at].tolist(), columns.chain[at].tolist(), strict=True):
            origin = key.slot - chain * rule.lag
            for later, lag in chains.observe(device, key.slot, origin):
                batch.partial.add_moments(key._replace(slot=later), layout.pair(lag), layout.cells)
            batch.chains += chain_record(device, key.slot, origin)
