"""Compares today so far with the same day of last week: one message after slots have settled, for Home Assistant."""

import math
from datetime import UTC, datetime

from undertone_aggregator.campaign.publish import to_json
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.against import Against
from undertone_aggregator.estimate.difference import MeanDifference, Side
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.estimate.publication import publication_of
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.store.store import Store
from undertone_shared.campaign import Campaign

# The levels of the message's topic below ``aggregate/``.
TOPIC = f"{EVERYBODY}/today"
_WEEK = Against(before=7 * 86400)
# The least time between two messages, in seconds.
_EVERY_SECONDS = 60
# The most slots of a day that are compared. If slots are shorter than a minute, a day has more: then the messages
# stop before the day is over.
_MOST_SLOTS = 1440


class Today:
    """Compares today with the same day of last week, for one campaign."""

    def __init__(self, store: Store, plan: CampaignPlan) -> None:
        self._store, self._plan = store, plan
        self._asked = -math.inf

    def message(self, settled: int, campaign: Campaign, estimator: Estimator) -> bytes | None:
        """Return the message about the day that the newest ``settled`` slot lies in.

        Return None if one of the two days has no number, if a day has too many slots or no whole number of them, or if
        the slot of the last comparison began less than a minute before this one.
        """
        seconds = self._plan.slot_seconds
        if settled * seconds < self._asked + _EVERY_SECONDS:
            return None
        self._asked = settled * seconds
        row = self.difference(settled, estimator)
        if row is None:
            return None
        return to_json({"campaign": campaign.name, "unit": campaign.unit, **row.row()})

    def difference(self, settled: int, estimator: Estimator) -> MeanDifference | None:
        """Return the mean of all devices today, up to the ``settled`` slot, minus the mean of the same time a week
        before; None as for `message`.
        """
        seconds, zone = self._plan.slot_seconds, self._plan.days.zone

        def slot(moment: datetime) -> int:
            return -(-int(moment.timestamp()) // seconds)

        newest = datetime.fromtimestamp(settled * seconds, UTC).astimezone(zone)
        first = slot(newest.replace(hour=0, minute=0, second=0, microsecond=0))
        if settled - first >= _MOST_SLOTS or 86400 % seconds:
            return None
        spans = ((first, settled), _WEEK.span(first, settled, seconds, zone, slot))
        rows = estimator.differences(*(self._side(*span, estimator.memory) for span in spans))
        return rows[0] if rows else None

    def _side(self, first: int, last: int, memory: int) -> Side:
        sums = self._store.sums(max(first - memory, 0), last)
        reports = publication_of(self._store, self._plan.min_reports).select(sums).everybody
        return Side(reports, EVERYBODY, range(first, last + 1))
