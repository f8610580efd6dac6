"""Presence of the devices that reported before: while they are away, the server issues no new epoch.

A device without a connection stays in its epoch and keeps its reports. A new θ would be chosen without these devices,
and none of them would use it. After a long absence the server would also refuse the reports that they kept
(`counts.epochs.Timeline`).

Some devices follow an epoch that the store does not know (`strays`). Their reports are refused, but they do not count
as away.
"""

from dataclasses import dataclass

import numpy as np

from undertone_aggregator.campaign.epoch_sums import Reader
from undertone_aggregator.counts.partial import reports_in
from undertone_shared import report

# Slots over which reports are averaged: a single slot may lack reports by chance.
_SPAN = 3
# Number of slots with reports that show how many devices reported before. It is twice the number of reports that a
# device by default keeps while it has no connection.
REMEMBERED = 192
# This quantile of the remembered numbers of reports, the upper quartile, counts as the number of devices before.
_USUAL = 0.75
# A new epoch waits while the devices that report now are less than this share of those that did before.
LEAST = 0.9


@dataclass(frozen=True)
class Presence:
    """Mean number of reports in a slot: ``now``, in the newest settled slots, and ``before``."""

    now: float
    before: float

    @property
    def away(self) -> bool:
        """True while more than a tenth of the devices that reported before do not report."""
        return self.now < LEAST * self.before


def presence_of(read: Reader, first: int, settled: int, stride: int, strays: int = 0) -> Presence:
    """Return the presence in the slots from the campaign's ``first`` to the newest ``settled`` one.

    ``stride``: each device reports in one of this number of slots. ``strays``: number of devices that are present
    although nothing of them is counted, see `strays.Strays`.

    The slots are cut into spans of ``stride`` slots, or of 3 if that is more. The newest gives ``now``. Earlier
    spans with reports, about `REMEMBERED` slots but at least 4 spans, give ``before``: the upper quartile of their mean
    numbers of reports. If devices stay away for good, ``before`` sinks to ``now`` once three quarters of these spans
    are newer than the departure. Spans without any report show nothing about the devices.
    """
    span = max(_SPAN, stride)
    wanted = max(REMEMBERED // span, 4)
    # Number of the span, 0 for the newest -> its reports. After a long outage the newest spans are empty, so more and
    # more of the store is read until enough spans have reports.
    spans: dict[int, int] = {}
    begin, end, length = settled, settled + 1, wanted * span
    while end > first and len(spans) <= wanted:
        begin = max(end - length, first)
        for kind in (report.COHORT, report.REPORT):
            for key, counts in read(begin, end - 1, kind).items():
                number = (settled - key.slot) // span
                spans[number] = spans.get(number, 0) + reports_in(key.kind, counts)
        end, length = begin, 2 * length
    newest = min(span, max(settled - first + 1, 1))
    # Leave out the oldest span if it is incomplete, because it begins before the campaign does.
    whole = [n for n in sorted(spans) if n > 0 and settled - (n + 1) * span + 1 >= first]
    earlier = [spans[n] / span for n in whole[:wanted]]
    before = float(np.quantile(earlier, _USUAL)) if earlier else 0.0
    return Presence(spans.get(0, 0) / newest + strays / stride, before)
