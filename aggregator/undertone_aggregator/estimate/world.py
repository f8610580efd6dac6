"""Privacy guarantee of a household against a reader of everything that the server publishes."""

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design.published import Published, about


def world_learns(epoch: Epoch, smallest: int) -> Published | None:
    """Return the guarantee of everything published in a cycle of slots of a report epoch for one household.

    ``smallest``: the fewest reports of a slot among which one hides, as `publication.Released.smallest` counts them.
    In a slot a household's report is in one group, or in the remainder: everybody's number is a function of those, so
    each of its turns in the cycle is one release. None for a stream, whose noise is another matter, and where
    nothing was measured. A threshold round's histogram is not published; what is made of it is covered by its own,
    larger, number of reports.
    """
    rule = epoch.campaign.report
    if rule is None or not smallest:
        return None
    turns = -(-epoch.campaign.cycle // epoch.campaign.schedule.stride)
    return about(rule.mechanism, smallest, turns)
