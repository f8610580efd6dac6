"""Privacy guarantee of a household against a reader of everything that the server publishes."""

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.published import Published, about


def world_learns(epoch: Epoch, smallest: int) -> Published | None:
    """Return the guarantee for one household of everything that is published in a cycle of slots of a report epoch.

    ``smallest``: the fewest reports of a slot among which one report hides, see `publication.ReleasedCells.smallest`.
    In a slot a household's report is in one published group, or in the remainder of all devices less these groups.
    What is published of all devices together is computed from the groups and the remainder. So each report of the
    household in the cycle is one release.

    Return None for a stream, whose noise needs another analysis; for a threshold round, whose histogram of a slot is
    not published; and if ``smallest`` is 0, because nothing was published.
    """
    rule = epoch.campaign.report
    if rule is None or not smallest:
        return None
    turns = -(-epoch.campaign.cycle // epoch.campaign.schedule.stride)
    return about(rule.mechanism, smallest, turns)
