"""Epochs: the campaign that is broadcast, together with what only the server knows about it."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from undertone_aggregator.base.plain import plain
from undertone_shared.campaign import Campaign
from undertone_shared.scalar import ReportRule

if TYPE_CHECKING:
    # Imported for type checkers only: these modules load the numerical libraries, which ingest workers do not need,
    # because they never choose a threshold.
    from undertone_aggregator.design.budget import Budget
    from undertone_aggregator.threshold import Threshold

THRESHOLD_PHASE = "threshold"
REPORT_PHASE = "report"
# A report is counted for this number of slots after its slot, or for this number of seconds if that is longer.
LATE_SLOTS = 96
LATE_SECONDS = 2 * 86400


def late_seconds(slot_seconds: int) -> int:
    """Return how many seconds after the end of its slot a report is still counted."""
    return max(LATE_SLOTS * slot_seconds, LATE_SECONDS)


@dataclass(frozen=True, eq=False)
class Epoch:
    """One epoch.

    ``chosen``: the choice of θ as JSON (`threshold_to_json`), None in a threshold epoch. ``decoded``: a table
    mechanism's decode values (numerators, denominator), which are not broadcast. ``budget``: the epoch's planned cost
    in privacy; if it is None, the epoch gets the plan's budget when the server issues it.
    """

    campaign: Campaign
    issued_at: int
    chosen: str | None = None
    decoded: tuple[tuple[int, ...], int] | None = None
    budget: "Budget | None" = None

    @cached_property
    def threshold(self) -> "Threshold | None":
        """The choice of the epoch's θ; None in a threshold epoch."""
        return None if self.chosen is None else threshold_from_json(self.chosen)

    @property
    def phase(self) -> str:
        """``threshold``: all devices report for the threshold; ``report``: all but a small share report readings."""
        return THRESHOLD_PHASE if self.campaign.rule.theta is None else REPORT_PHASE

    @cached_property
    def report(self) -> ReportRule | None:
        """The report rule, with a mechanism that can decode symbols; None in a threshold epoch."""
        rule = self.campaign.report
        if rule is None or self.decoded is None:
            return rule
        from undertone_aggregator.design.mechanisms import traits_of

        decoding = traits_of(rule.mechanism).decoding
        return rule if decoding is None else ReportRule(rule.low, rule.theta, decoding(self.decoded), rule.ranges[1:])

    def block_at(self, slot: int) -> int:
        """Return the index of the block of the cycle that contains a slot; each block has a range of its own."""
        return bisect_right(self._block_starts, slot % self.campaign.cycle) - 1

    @cached_property
    def _block_starts(self) -> list[int]:
        return [first for first, _, _ in self.campaign.rule.ranges]

    def choice_of(self, block: int) -> "Threshold | None":
        """Return the choice of θ for one block, which includes an estimate of the block's readings."""
        chosen = self.threshold
        return chosen.blocks[block].choice if chosen is not None and chosen.blocks else chosen


class Timeline:
    """All epochs of a campaign, by time.

    An epoch lasts until the next one begins. Its reports are admitted for some slots more, namely for as long as a
    report may be late (`late_seconds`). A device without a connection goes on with the epoch that it knows, and sends
    the reports that it kept when it is back. Because of the limit, a device that lies cannot choose among the ranges of
    all past epochs.
    """

    def __init__(self, epochs: Sequence[Epoch]) -> None:
        self.epochs = tuple(sorted(epochs, key=lambda epoch: epoch.campaign.epoch))
        self._starts = [epoch.campaign.first_slot for epoch in self.epochs]
        self._spans = {}
        for i, epoch in enumerate(self.epochs):
            end = epoch.campaign.last_slot + 1
            if i + 1 < len(self.epochs):
                late = late_seconds(epoch.campaign.slot_seconds) // epoch.campaign.slot_seconds
                end = min(end, self._starts[i + 1] + late)
            self._spans[epoch.campaign.fingerprint] = (epoch, epoch.campaign.first_slot, end)

    def __len__(self) -> int:
        return len(self.epochs)

    def span(self, fingerprint: bytes) -> tuple[Epoch, int, int] | None:
        """Return (epoch, first, end): its reports are admitted for first <= slot < end. None for an unknown epoch."""
        return self._spans.get(fingerprint)

    def at(self, slot: int) -> Epoch | None:
        """Return the epoch that applies in ``slot``."""
        i = bisect_right(self._starts, slot) - 1
        return self.epochs[i] if i >= 0 and slot <= self.epochs[i].campaign.last_slot else None

    def bottom(self, slot: int) -> int:
        """Return the low end to which readings are truncated in ``slot``; 0 without an epoch or a range."""
        epoch = self.at(slot)
        ranges = () if epoch is None else epoch.campaign.ranges
        return ranges[epoch.block_at(slot)][1] if epoch is not None and ranges else 0

    def of(self, fingerprint: bytes) -> Epoch | None:
        """Return the epoch with this fingerprint, or None."""
        span = self._spans.get(fingerprint)
        return span and span[0]

    @property
    def last(self) -> Epoch | None:
        """The newest epoch, whether it has begun or not."""
        return self.epochs[-1] if self.epochs else None


def threshold_to_json(threshold: "Threshold") -> str:
    """Return the choice of θ as JSON, with its density."""
    return json.dumps(_fields(threshold), default=plain)


def _fields(threshold: "Threshold") -> dict[str, Any]:
    fields = {name: getattr(threshold, name) for name in threshold.__dataclass_fields__}
    if threshold.pieces is not None:
        fields["pieces"] = vars(threshold.pieces)
    return {**fields, "blocks": [(first, share, _fields(choice)) for first, share, choice in threshold.blocks]}


def threshold_from_json(text: str) -> "Threshold":
    """Return the choice that `threshold_to_json` wrote."""
    return _threshold(json.loads(text))


def _threshold(fields: dict[str, Any]) -> "Threshold":
    from undertone_aggregator.threshold.pieces import Pieces
    from undertone_aggregator.threshold.result import Block, Threshold

    values = {name: fields[name] for name in Threshold.__dataclass_fields__ if name in fields}
    blocks = [Block(first, share, _threshold(choice)) for first, share, choice in fields.get("blocks", ())]
    if values.get("pieces") is not None:
        values["pieces"] = Pieces(**values["pieces"])
    return Threshold(**{**values, "density": np.array(values["density"], dtype=np.float64), "blocks": blocks})
