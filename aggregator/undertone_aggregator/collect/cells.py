"""Cells: what one counted report adds to a batch, by the way in which its campaign collects."""

from typing import Any, Protocol

from undertone_aggregator.collect.chains import Chains
from undertone_aggregator.collect.chains import record as chain_record
from undertone_aggregator.collect.moments import layout_of
from undertone_aggregator.collect.partial import Key
from undertone_aggregator.collect.store import Batch
from undertone_shared import report
from undertone_shared.intake import Report

# The part of a campaign whose mechanism draws reports of a kind.
_PART = {report.COHORT: "cohort", report.REPORT: "report"}


class Cells(Protocol):
    """Adds reports that the rule admits."""

    def add(self, rule: Any, came: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Count one report at ``at``. ``device``: its key; ``chains``: what is known of the devices' chains."""


class Histogram:
    """Scalar reports: one cell of a histogram [symbols]."""

    def add(self, rule: Any, came: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Count its symbol."""
        batch.partial.add(at, came.values[0], dict(rule.mechanisms)[_PART[came.kind]].symbols)


class Moments:
    """Streams: sums by chain age, and the pairs of slots on one chain, see `undertone_aggregator.collect.moments`."""

    def add(self, rule: Any, came: Report, device: int, at: Key, chains: Chains, batch: Batch) -> None:
        """Add its values, and the pairs that it makes with what its device sent around it."""
        layout = layout_of(rule)
        origin = came.slot - came.chain * rule.lag
        batch.partial.add_moments(at, layout.report(came.values, came.chain), layout.cells)
        for later, lag in chains.observe(device, came.slot, origin):
            batch.partial.add_moments(at._replace(slot=later), layout.pair(lag), layout.cells)
        batch.chains += chain_record(device, came.slot, origin)
