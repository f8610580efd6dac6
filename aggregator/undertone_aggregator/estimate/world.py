"""Privacy guarantee of a household against a reader of everything that the server publishes."""

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.published import Published, about


def world_learns(epoch: Epoch, smallest: int) -> Published | None:
    """Return the guarantee for one household of everything that is published in a cycle of slots of a report epoch.

    ``smallest``: the fewest reports of a slot among which one report hides, see `publication.ReleasedCells.smallest`.
    In a slot a household's report is in one published group, or in the remainder; the number of all devices is a
    function of these. So each report of the household in the cycle is one release.

    Return None for a stream, whose noise needs another analysis, or if nothing was measured. A threshold round's
    histogram is not published. Results of the round hide a household among all reports of the round, which are more.
    """
    rule = epoch.campaign.report
    if rule is None or not smallest:
        return None
    turns = -(-epoch.campaign.cycle // epoch.campaign.schedule.stride)
    return about(rule.mechanism, smallest, turns)
