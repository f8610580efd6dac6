"""Strays: devices that follow an epoch of another version of the campaign, which this server's store does not know.

Their reports are refused as `OTHER_CAMPAIGN`. That happens after a restore from a backup that is older than the epoch,
and when another server broadcasts the same campaign. Strays come back only to an epoch that is newer than theirs.
"""

from statistics import median

from undertone_aggregator.counts.partial import reports_in
from undertone_aggregator.ingest.admission import OTHER_CAMPAIGN
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.store.store import CountedReports

# The number of strays is a median over this many slots; if devices take turns, over whole rounds of turns.
_SPAN = 3
# Strays are worth a new epoch and an alarm only if they are more than this share of all devices that report now.
LEAST = 0.1


class Strays:
    """Counts devices whose reports name an epoch that the store does not know, because the epoch is of another version.

    Once a slot, it counts the reports that were refused in the newest slots that are over.
    """

    def __init__(self, plan: CampaignPlan) -> None:
        self._plan = plan
        self._slot, self._found = -1, 0

    def at(self, store: CountedReports, now: int) -> int:
        """Return the number of strays at Unix second ``now``; 0 if they are few among all devices that report.

        Raises StoreError.
        """
        slot = now // self._plan.slot_seconds - 1
        if slot != self._slot:
            self._slot, self._found = slot, self._count(store, slot)
        return self._found

    def _count(self, store: CountedReports, newest: int) -> int:
        stride = self._plan.stride
        # In this number of slots each device has a whole number of turns. The median over the turns is not changed by
        # the moment at which devices send all reports that they had kept.
        span = max(_SPAN // stride, 1) * stride
        first = newest + 1 - span
        refused = store.refusals(first, newest)
        of_slots = [refused.get((OTHER_CAMPAIGN, slot), 0) for slot in range(first, newest + 1)]
        strays = median(sum(of_slots[begin : begin + stride]) for begin in range(0, span, stride))
        if not strays:
            return 0
        # A report arrives only after its slot has ended.
        counted = store.partial(first - 1, newest - 1)
        reporting = sum(reports_in(key.kind, counts) for key, counts in counted.items()) * stride / span
        return int(strays) if strays > LEAST * (strays + reporting) else 0
