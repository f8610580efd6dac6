"""What whoever sees only the published estimates learns: of which estimates may be published, and at what cost."""

from collections.abc import Iterable, Sequence

from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.partial import EVERYBODY
from undertone_aggregator.design.published import Published, about
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate


def publishable(estimates: Iterable[Estimate], least: int) -> list[Estimate]:
    """Those over at least so many reports."""
    return [each for each in estimates if (each.cohort if each.kind == MODEL else each.reports) >= least]


def world_learns(epoch: Epoch, estimates: Sequence[Estimate]) -> Published | None:
    """Of a cycle of slots, each with as many reports as the smallest of these estimates of a report epoch.

    A household reports in its turns of the cycle alone.

    Where groups are published, each household is in two numbers of a slot: its group's and everybody's.
    None for a stream, whose noise is another matter, and where nothing was measured. A threshold round's histogram is
    not published; what is made of it is covered by its own, larger, number of reports.
    """
    rule = epoch.campaign.report
    smallest = min((each.reports for each in estimates if each.kind == MEASURED and each.reports), default=0)
    if rule is None or not smallest:
        return None
    partitions = 2 if any(each.series.group != EVERYBODY for each in estimates) else 1
    turns = -(-epoch.campaign.cycle // epoch.campaign.schedule.stride)
    return about(rule.mechanism, smallest, partitions * turns)
