"""Distribution of readings over time, by a model of the cohort's and other reports: quantiles with bands."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import Counts, Key
from undertone_aggregator.estimate.estimates import Row
from undertone_aggregator.threshold import CohortCounts, ReportCounts
from undertone_shared import report
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.threshold.posterior import Posterior

# Posterior probability of the band around a quantile, from ``low`` to ``high``.
BAND = 0.9


@dataclass(frozen=True)
class Quantile(Row):
    """The smallest reading x with P(reading <= x) >= ``share``, among all devices' readings of the slots first..last.

    ``value`` is the median of the posterior (`threshold.posterior`), and ``low`` to ``high`` its central 90 %. The tail
    of the posterior is extrapolated. ``cohort``: number of reports for the threshold that were used; ``reports``:
    number of other reports that were used.
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


@dataclass(frozen=True)
class Run:
    """The histograms of a run of slots, from which its quantiles are computed. Only ``posterior`` is slow.

    ``start``: Unix second. ``bound``, ``offset``: those of the campaign. ``cohort``: the reports for the threshold;
    ``stream``: the other reports.
    """

    first: int
    last: int
    start: int
    bound: int
    offset: int
    cohort: tuple[CohortCounts, ...]
    stream: tuple[ReportCounts, ...]

    @property
    def key(self) -> str:
        """Identifier of the run's input: runs with equal input have equal keys."""
        digest = hashlib.sha256(repr((self.first, self.last, self.start, self.bound, self.offset)).encode())
        for members in self.cohort:
            digest.update(repr((members.mechanism, list(members.counts))).encode())
        for others in self.stream:
            digest.update(repr((others.theta, list(others.counts))).encode() + others.rows.tobytes())
        return digest.hexdigest()

    def posterior(self) -> "Posterior":
        """Compute the distribution of the readings, which takes long."""
        # This import takes long, and only readers that ask for quantiles need it.
        from undertone_aggregator.threshold.posterior import posterior

        return posterior(self.cohort, self.stream, self.bound)

    def quantiles(self, shares: Sequence[float], after: "Posterior") -> list[Quantile]:
        """Return the quantiles from ``after``, the run's posterior. Raises Invalid for a share outside (0, 1)."""
        check_shares(shares)
        behind = (sum(counts.total for counts in self.cohort), sum(counts.total for counts in self.stream))
        rows = []
        for share in shares:
            drawn = np.array(after.quantile_edges(share)) + self.offset
            low, value, high = (int(np.quantile(drawn, part)) for part in ((1 - BAND) / 2, 0.5, (1 + BAND) / 2))
            rows.append(Quantile(self.first, self.last, self.start, share, value, low, high, *behind))
        return rows


def check_shares(shares: Sequence[float]) -> None:
    """Check the shares. Raises Invalid for a share outside (0, 1)."""
    for share in shares:
        if not 0 < share < 1:
            raise Invalid(f"the share of a quantile is {share}, expected a number between 0 and 1")


def runs_of(timeline: Timeline, partial: Mapping[Key, Counts], every: int) -> list[Run]:
    """Return each run of ``every`` slots that has cohort reports, counted from slot 0 of Unix time."""
    runs: dict[int, dict[tuple[int, bytes], Counts]] = {}
    for key, counts in partial.items():
        into = runs.setdefault(key.slot // every, {})
        source = (key.kind, key.fingerprint)
        into[source] = into[source] + counts if source in into else counts
    found = [_run(timeline, runs[number], number * every, every) for number in sorted(runs)]
    return [run for run in found if run.cohort]


def _run(timeline: Timeline, sources: Mapping[tuple[int, bytes], Counts], first: int, every: int) -> Run:
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
            # Rules with several blocks of the day are left out: the reports of a block come from its own time of day
            # and do not represent all readings.
            stream.append(ReportCounts.of(rule.mechanism, rule.theta, counts))
    start = first * campaign.slot_seconds
    return Run(first, first + every - 1, start, campaign.bound, campaign.offset, tuple(cohort), tuple(stream))
