"""The distribution of readings over time, from the cohort's and the stream's reports: quantiles with bands, a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.partial import Counts, Key
from undertone_aggregator.estimate.estimates import Row
from undertone_aggregator.threshold import CohortCounts, ReportCounts
from undertone_aggregator.threshold.posterior import posterior
from undertone_shared import report
from undertone_shared.errors import Invalid

# Central mass of a band.
BAND = 0.9


@dataclass(frozen=True)
class Quantile(Row):
    """The smallest reading x with P(reading <= x) >= ``share`` among all (device, slot) of slots first..last.

    ``low``, ``high``: central 90 % of the posterior (`undertone_aggregator.threshold`), whose tail is extrapolated.
    ``cohort``, ``reports``: reports of either kind behind it.
    """

    plural: ClassVar[str] = "quantiles"

    first: int
    last: int
    start: int
    share: float
    value: int
    low: int
    high: int
    cohort: int
    reports: int


def quantiles(timeline: Timeline, partial: Mapping[Key, Counts], shares: Sequence[float], every: int) -> list[Quantile]:
    """Quantiles of each run of ``every`` slots that has cohort reports, counted from slot 0 of Unix time.

    Takes about a second per run. Raises Invalid for a share outside (0, 1).
    """
    for share in shares:
        if not 0 < share < 1:
            raise Invalid(f"the share of a quantile is {share}, expected a number between 0 and 1")
    runs: dict[int, dict[tuple[int, bytes], Counts]] = {}
    for key, counts in partial.items():
        into = runs.setdefault(key.slot // every, {})
        source = (key.kind, key.fingerprint)
        into[source] = into[source] + counts if source in into else counts
    quantiles: list[Quantile] = []
    for number in sorted(runs):
        quantiles += _run(timeline, runs[number], shares, number * every, every)
    return quantiles


def _run(
    timeline: Timeline, sources: Mapping[tuple[int, bytes], Counts], shares: Sequence[float], first: int, every: int
) -> list[Quantile]:
    cohort: list[CohortCounts] = []
    stream: list[ReportCounts] = []
    campaign = timeline.epochs[-1].campaign
    for (kind, fingerprint), counts in sources.items():
        epoch = timeline.of(fingerprint)
        if epoch is None or not counts.sum():
            continue
        rule = epoch.report
        members = epoch.campaign.cohort
        if kind == report.COHORT and members is not None:
            cohort.append(CohortCounts(members.mechanism, counts))
        elif rule is not None and not rule.low and len(rule.ranges) == 1:
            # A block's reports are of its own time of day, not of all readings.
            stream.append(ReportCounts.of(rule.mechanism, rule.theta, counts))
    if not cohort:
        return []
    after = posterior(cohort, stream, campaign.bound)
    behind = (sum(counts.total for counts in cohort), sum(counts.total for counts in stream))
    quantiles = []
    for share in shares:
        drawn = np.array(after.quantile_edges(share)) + campaign.offset
        low, value, high = (int(np.quantile(drawn, part)) for part in ((1 - BAND) / 2, 0.5, (1 + BAND) / 2))
        start = first * campaign.slot_seconds
        quantiles.append(Quantile(first, first + every - 1, start, share, value, low, high, *behind))
    return quantiles
