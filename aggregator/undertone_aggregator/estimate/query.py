"""Results for analysts, read from a store. Reading never disturbs a running aggregator."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.counts.compact import Compact, Tables
from undertone_aggregator.counts.histograms import Histograms
from undertone_aggregator.counts.partial import EVERYBODY, Partial
from undertone_aggregator.design.published import Published
from undertone_aggregator.estimate.against import Against
from undertone_aggregator.estimate.difference import MeanDifference, Side
from undertone_aggregator.estimate.distribution import Quantile, Run, check_shares, runs_of
from undertone_aggregator.estimate.estimates import ABSENT, Estimate, Estimates, RangeEstimate, Row, with_absent
from undertone_aggregator.estimate.losses import SlotLosses, SlotRefusals, reports_by_slot
from undertone_aggregator.estimate.opened import OpenCampaign
from undertone_aggregator.estimate.publication import publication_of
from undertone_aggregator.estimate.selection import Hours, OnDays, RegisteredFleet, Selection, chosen_slots, selection
from undertone_aggregator.estimate.warnings import warnings_of
from undertone_aggregator.estimate.world import world_learns
from undertone_aggregator.store.inventory import ACTIVE
from undertone_shared.errors import Invalid

_LAST = 0xFFFFFFFF
# Number of slots times groups that are read from the store at a time.
_PIECE = 6720
# The largest number of slots in one query: more than a year of half-hours.
LARGEST_SELECTION = 20_000
# Type of the ends of a selection: a slot number, a date, or a time. A time without a zone is in the campaign's zone.
When = int | datetime | date | None


class Results(OpenCampaign):
    """The results in a store: estimates, ranges and quantiles, as rows, arrays and frames."""

    # --- Methods that return results.

    def estimates(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        filtered: bool = False,
        settled: bool = False,
        absent: bool = False,
    ) -> Estimates:
        """Return the estimates from ``first`` to ``last``; ``groups`` None for all groups.

        Both ends are slots, and then included, or moments: slots are selected that start at or after the first moment
        and before the last. A moment without a zone is in the campaign's zone. ``filtered``: return the filtered series
        as well, whose value in each slot uses the selected slots and `SeriesFilter.memory` slots before and after them.
        ``settled``: leave out slots that have not settled. ``absent``: return also a raw row for each selected slot
        without a number, from the first epoch to the newest slot, see `with_absent`. Raises Invalid for a group that
        has no report, and for a selection that ends before it begins.
        """
        tables = self.each_group(first, last, groups, filtered=filtered, settled=settled, absent=absent)
        return Estimates.together(list(tables))

    def each_group(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        filtered: bool = False,
        settled: bool = False,
        absent: bool = False,
    ) -> Iterator[Estimates]:
        """Yield the result of ``estimates`` for one group after the other, which needs less memory."""
        low, high = self.span(first, last)
        high = max(min(high, self.settled), low - 1) if settled else high
        memory = self.filter.memory if filtered else 0
        begin, end = max(low - memory, 0), min(high + memory, _LAST)
        for group, reports in self._parts(max(begin - self._estimator.memory, 0), end, self._wanted(groups)):
            raw = self._estimator.estimates(reports.tables(), group)
            raw = raw.take(raw.slot >= begin)
            # Free the histograms of a long series: the filter needs their memory.
            del reports
            rows = Estimates.together([raw, self.filter.smoothed(raw)]) if filtered else raw
            rows = rows.take((low <= rows.slot) & (rows.slot <= high))
            yield self._with_absent(rows, low, high, group) if absent else rows

    def ranges(
        self, every: int, first: When = None, last: When = None, groups: Iterable[str] | str | None = (EVERYBODY,)
    ) -> list[RangeEstimate]:
        """Return means over runs of ``every`` slots of the raw series; 48 half-hours make UTC days.

        Raises Invalid for ``every`` below 1, and as ``estimates`` does.
        """
        if every < 1:
            raise Invalid(f"every is {every}, expected at least 1 slot")
        low, high = self.span(first, last)
        parts = self._parts(low, high, self._wanted(groups))
        rows = [row for group, of in parts for row in self._estimator.ranges(of.tables(), group, every)]
        return sorted(rows, key=lambda row: (row.first, row.series))

    def selection(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        hours: Hours | str | None = None,
        days: OnDays | str | None = None,
        zone: tzinfo | None = None,
    ) -> list[Selection]:
        """Return the mean of the selected slots and the fleet's total, with their errors.

        There is one row for each group and coordinate that has a number.

        ``hours``, ``days``: select only slots that start within these times of day ("18:00-23:00") and on these days
        ("workdays", "days-off", "mon,sat"), by the clock of ``zone``; by default, that of the campaign. Without a first
        or last moment the selection begins with the first epoch and ends with the newest slot. Raises Invalid for a
        selection without a slot, or with more than `LARGEST_SELECTION`.
        """
        low, high = self._existing(first, last)
        slots = set(self._slots(low, high, hours, days, zone))
        parts = self._parts(max(low - self._estimator.memory, 0), high, self._wanted(groups))
        means = [row for group, of in parts for row in self._estimator.means(of.tables(), group, slots)]
        rows = [selection(mean, slots, self._fleet(mean.group)) for mean in means]
        return sorted(rows, key=lambda row: row.series)

    def difference(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        against: Against | str,
        hours: Hours | str | None = None,
        days: OnDays | str | None = None,
        zone: tzinfo | None = None,
    ) -> list[MeanDifference]:
        """Return the mean of each group's selected slots minus another mean, with its error: see `MeanDifference`.

        ``against``: "group:north", a time ago such as "7d" (days by the clock of ``zone``), another time such as
        "2026-03-02..2026-03-09", or other days of the same time such as "days:days-off". The other arguments are those
        of ``selection``, and select slots on both sides, except that ``against`` may have days of its own. A group is
        not compared with itself at the same time. There is no row if a side has no number. Raises Invalid as
        ``selection`` does.
        """
        against = Against.parse("against", against) if isinstance(against, str) else against
        low, high = self._existing(first, last)
        wanted = against.differing(self._wanted(groups))
        if against.group is not None:
            self._wanted(against.group)
        clock = zone or self.days.zone
        span = against.span(low, high, self.campaign.slot_seconds, clock, self._slot)
        if span[0] < 0:
            raise Invalid(f"against is {against}, expected a time after 1970")
        # If ``against`` is a time ago, the other side keeps slots from before the campaign. So both sides have equally
        # many slots, and a slot counts only if its counterpart has a number, too.
        other = span if against.begin is None else self._existing(*span)
        days = OnDays.parse("days", days) if isinstance(days, str) else days
        spans = ((low, high, days), (*other, against.on(days)))
        names = ("the selection", f"the other side ({against})")
        sides = [
            self._slots(begin, end, hours, on, zone, name) for (begin, end, on), name in zip(spans, names, strict=True)
        ]
        rows = []
        for group in wanted:
            one = self._side(group, sides[0])
            rows += self._estimator.differences(one, self._side(against.group or group, sides[1]))
        return sorted(rows, key=lambda row: row.series)

    def _side(self, group: str, slots: list[int]) -> Side:
        """Return the reports that one side of a difference needs."""
        ((_, reports),) = self._parts(max(slots[0] - self._estimator.memory, 0), slots[-1], [group])
        return Side(reports.tables(), group, slots)

    def _slots(
        self,
        low: int,
        high: int,
        hours: Hours | str | None,
        days: OnDays | str | None,
        zone: tzinfo | None,
        what: str = "the selection",
    ) -> list[int]:
        """Return the selected slots of low..high, ascending. Raises Invalid, which names ``what``, if there is none."""
        hours = Hours.parse("hours", hours) if isinstance(hours, str) else hours
        days = OnDays.parse("days", days) if isinstance(days, str) else days
        calendar = replace(self.days, zone=zone or self.days.zone)
        slots = chosen_slots(low, high, self.campaign.slot_seconds, hours, days, calendar)
        if not slots:
            raise Invalid(f"{what} has no slot of the campaign: choose another time, other days, or other hours")
        return slots

    def _fleet(self, group: str) -> RegisteredFleet:
        """Return what the total of a group needs.

        Without a threshold round, readings get the largest variance that their range allows.
        """
        campaign = next((e.campaign for e in reversed(self.timeline.epochs) if e.campaign.theta), self.campaign)
        cohort_stride, stride = campaign.schedule.cohort_stride, campaign.schedule.stride
        chosen = next((epoch.threshold for epoch in reversed(self.timeline.epochs) if epoch.threshold), None)
        # The variance of readings within a range of width w is at most (w/2)² (Popoviciu, 1935).
        width = campaign.bound if campaign.theta is None else campaign.theta - campaign.offset
        variance = width**2 / 4
        if chosen is not None:
            middles = (np.array(chosen.edges[:-1]) + np.array(chosen.edges[1:]) - 1) / 2
            density = np.asarray(chosen.density)
            variance = float(density @ np.square(middles) - (density @ middles) ** 2)
        measured = 1 - 1 / cohort_stride if cohort_stride > 1 else 1.0
        return RegisteredFleet(self.registered(group), measured / stride, variance)

    def losses(
        self, first: When = None, last: When = None, groups: Iterable[str] | str | None = (EVERYBODY,)
    ) -> list[SlotLosses]:
        """Return, for each slot and group, the reports that came, came late, are missing, or were refused.

        The rows come group by group in the order of ``groups``, and by slot. Raises Invalid for more than
        `LARGEST_SELECTION` slots.
        """
        low, high = self._existing(first, last)
        rows = []
        for group, of_group in self._parts(low, high, self._wanted(groups)):
            reports = reports_by_slot(of_group.tables())
            late, lost = self._late_and_lost(low, high, group)
            refused = self._refused(low, high) if group == EVERYBODY else None
            rows += [
                SlotLosses(
                    slot,
                    slot * self.campaign.slot_seconds,
                    group,
                    reports[slot],
                    None if late is None else late.get(slot, 0),
                    None if lost is None else lost.get(slot, 0),
                    None if refused is None else sum(refused.get(slot, {}).values()),
                )
                for slot in range(low, high + 1)
            ]
        return rows

    def refusals(self, first: When = None, last: When = None) -> list[SlotRefusals]:
        """Return the refused deliveries by slot of arrival and reason; slots without any have no row.

        The result is empty if they may not be published. Raises Invalid for more than `LARGEST_SELECTION` slots.
        """
        low, high = self._existing(first, last)
        refused = self._refused(low, high) or {}
        return [
            SlotRefusals(slot, slot * self.campaign.slot_seconds, reason, refused[slot][reason])
            for slot in sorted(refused)
            for reason in sorted(refused[slot])
        ]

    def _refused(self, low: int, high: int) -> Mapping[int, Mapping[str, int]] | None:
        """Return a map: slot of arrival -> reason -> number of refused deliveries. None if these may not be
        published.
        """
        refused: dict[int, dict[str, int]] = {}
        for (reason, slot), n in self._store.refusals(low, high).items():
            refused.setdefault(slot, {})[reason] = n
        return refused

    def _late_and_lost(
        self, low: int, high: int, group: str
    ) -> tuple[Mapping[int, int] | None, Mapping[int, int] | None]:
        """Return two maps: slot -> late reports, and slot -> missing reports that were noticed in that slot.

        Public results return None for a map that may not be published.
        """
        ((_, tables),) = self._store.histograms(low, high, late=True).each_group([group])
        late = reports_by_slot(tables)
        lost: Counter[int] = Counter()
        for (name, slot), n in self._store.losses().items():
            if group in (name, EVERYBODY):
                lost[slot] += n
        return late, lost

    def _existing(self, first: When, last: When) -> tuple[int, int]:
        """Return (first slot, last slot) of a selection among the campaign's slots.

        Raises Invalid for more than `LARGEST_SELECTION` slots.
        """
        low, high = self.span(first, last)
        low = max(low, self.timeline.epochs[0].campaign.first_slot)
        high = min(high, self.ends // self.campaign.slot_seconds - 1)
        if high - low >= LARGEST_SELECTION:
            raise Invalid(f"the selection has {high - low + 1} slots, expected at most {LARGEST_SELECTION}")
        return low, high

    def registered(self, group: str) -> int | None:
        """Return the number of active devices of a group in the inventory, with None in place of 0."""
        active = [device.group for device in self._store.devices().values() if device.state == ACTIVE]
        return sum(group in (EVERYBODY, of) for of in active) or None

    def quantiles(
        self,
        shares: Sequence[float] = (0.1, 0.5, 0.9),
        every: int | None = None,
        first: When = None,
        last: When = None,
    ) -> list[Quantile]:
        """Return quantiles of the readings over runs of ``every`` slots, by default one cycle, with 90 % bands, by a
        model.

        Raises Invalid for a share outside (0, 1), and for a campaign without a cohort.
        """
        check_shares(shares)
        return [row for run in self.quantile_runs(every, first, last) for row in run.quantiles(shares, run.posterior())]

    def quantile_runs(self, every: int | None = None, first: When = None, last: When = None) -> list[Run]:
        """Read the runs of ``every`` slots for ``quantiles``, without computing quantiles yet. Raises Invalid."""
        if self.campaign.cohort is None:
            raise Invalid(f"quantiles need reports for the threshold, and campaign {self.campaign.name} collects none")
        every = every or self.campaign.cycle
        return runs_of(self.timeline, self._pooled(*self.span(first, last), every), every)

    def span(self, first: When, last: When) -> tuple[int, int]:
        """Return (first slot, last slot) of a selection. Raises Invalid for a selection that ends before it begins."""
        low = 0 if first is None else first if isinstance(first, int) else self._slot(first)
        high = _LAST if last is None else last if isinstance(last, int) else self._slot(last) - 1
        if not 0 <= low <= high + 1 <= _LAST + 1:
            raise Invalid(f"the selection is {first} to {last}, expected times after 1970, the first before the last")
        return low, high

    def newest_slots(self, count: int, first: When, last: When, *, settled: bool = False) -> tuple[int, int]:
        """Return (first slot, last slot) of the newest ``count`` slots of a selection.

        ``settled``: only settled slots count. Raises Invalid as ``span``.
        """
        low, high = self.span(first, last)
        newest = self.settled if settled else self.ends // self.campaign.slot_seconds - 1
        high = max(min(high, newest), low - 1)
        return max(low, high - count + 1), high

    def _slot(self, when: datetime | date) -> int:
        """Return the first slot that starts at or after a moment."""
        moment = when if isinstance(when, datetime) else datetime.combine(when, time())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self.days.zone)
        return int(-(-moment.timestamp() // self.campaign.slot_seconds))

    def _wanted(self, groups: Iterable[str] | str | None) -> list[str]:
        """Return the names of these groups, or of all for None. Raises Invalid for a group that has no report."""
        if groups is None:
            return list(self.groups)
        wanted = [groups] if isinstance(groups, str) else list(groups)
        for group in wanted:
            if group != EVERYBODY and group not in self.groups:
                raise Invalid(f"group is {group!r}, expected one of {', '.join(self.groups)}")
        return wanted

    def _with_absent(self, rows: Estimates, low: int, high: int, group: str) -> Estimates:
        low = max(low, self.timeline.epochs[0].campaign.first_slot)
        high = min(high, self.ends // self.campaign.slot_seconds - 1)
        return with_absent(rows, low, high, self.campaign.slot_seconds, [group], self.campaign.rule.dimension)

    def _parts(self, first: int, last: int, groups: list[str]) -> Iterator[tuple[str, Compact]]:
        """Yield each group with its reports."""
        parts = [(group, Compact()) for group in groups]
        for low, high in self._pieces(first, last, len(groups)):
            for group, tables in self._tables(low, high, groups):
                dict(parts)[group].add(tables)
        while parts:
            yield parts.pop(0)

    def _tables(self, first: int, last: int, groups: list[str]) -> Iterator[tuple[str, Tables]]:
        """Yield the histograms of these groups for the slots first..last; a group may come in several parts."""
        if EVERYBODY in groups:
            yield EVERYBODY, self._store.sums(first, last).everybody()
            yield EVERYBODY, self._store.histograms(first, last, late=True).sums().everybody()
        for late in (False, True):
            cells = self._cells(first, last, groups, late=late)
            yield from ((group, cells.group(group)) for group in groups if group != EVERYBODY)

    def _cells(self, first: int, last: int, groups: list[str], *, late: bool = False) -> Histograms:
        """Return the histograms of these groups without `EVERYBODY`, whose histograms are the sums of the others."""
        named = [group for group in groups if group != EVERYBODY]
        return self._store.histograms(first, last, groups=named, late=late)

    def _pieces(self, first: int, last: int, groups: int) -> Iterator[tuple[int, int]]:
        """Yield (first slot, last slot) of pieces that hold all reports of first..last.

        A piece has at most `_PIECE` slots times groups, and at least one slot. A reader that adds up a piece before it
        reads the next one needs memory for a single piece instead of for all groups.
        """
        low = max(first, self.timeline.epochs[0].campaign.first_slot)
        high = min(last, self._store.newest_slot() or 0)
        slots = max(_PIECE // max(groups, 1), 1)
        for begin in range(low, high + 1, slots):
            yield begin, min(begin + slots - 1, high)

    def _pooled(self, first: int, last: int, every: int) -> Partial:
        """Return the reports from which the quantiles of runs of ``every`` slots are made."""
        return self._store.partial(first, last)

    def world(self, estimates: Estimates) -> Published | None:
        """Return what all published estimates together reveal about one household in a cycle.

        It is computed for the slot in which a report hides among the fewest reports, from the first to the last slot of
        ``estimates`` that has a number. Returns None if there is no such slot, and where `world_learns` does.
        """
        slots = estimates.slot[estimates.kind != ABSENT]
        if not len(slots):
            return None
        publication = publication_of(self._store, self.min_reports)
        pieces = self._pieces(int(slots.min()), int(slots.max()), 1)
        fewest = [publication.select(self._store.sums(low, high)).smallest for low, high in pieces]
        return world_learns(self.newest, min(filter(None, fewest), default=0))

    def warnings(self, estimates: Estimates) -> list[str]:
        """Return sentences about what these estimates cannot show, and about the choice of θ."""
        return warnings_of(self.timeline, self._estimator, estimates)

    # --- results as arrays and frames

    def arrays(
        self, first: When = None, last: When = None, group: str = EVERYBODY, *, filtered: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Return the estimates of one group as numpy arrays by column; missing values are nan.

        ``filtered``: the filtered series instead of the raw one.
        """
        estimates = self.estimates(first, last, [group], filtered=filtered)
        columns = estimates.take(estimates.filtered == filtered).table()
        return {
            name: np.array([np.nan if value is None else value for value in values]) for name, values in columns.items()
        }

    def frame(
        self,
        first: When = None,
        last: When = None,
        groups: Iterable[str] | str | None = (EVERYBODY,),
        *,
        filtered: bool = False,
        settled: bool = False,
        absent: bool = False,
    ) -> Any:
        """Return the estimates as a pandas DataFrame indexed by the slot's start in the campaign's zone. Needs pandas.

        ``attrs`` contain campaign, unit, ε, δ, guarantee and, for filtered series, the filter's assumptions.
        """
        estimates = self.estimates(first, last, groups, filtered=filtered, settled=settled, absent=absent)
        frame = self._framed(estimates, Estimate)
        if filtered:
            frame.attrs["filter"] = self.filter.sentence
        return frame

    def ranges_frame(
        self, every: int, first: When = None, last: When = None, groups: Iterable[str] | str | None = (EVERYBODY,)
    ) -> Any:
        """Return ``ranges`` as a DataFrame, see ``frame``."""
        return self._framed(self.ranges(every, first, last, groups), RangeEstimate)

    def quantiles_frame(
        self,
        shares: Sequence[float] = (0.1, 0.5, 0.9),
        every: int | None = None,
        first: When = None,
        last: When = None,
    ) -> Any:
        """Return ``quantiles`` as a DataFrame, see ``frame``."""
        return self._framed(self.quantiles(shares, every, first, last), Quantile)

    def _framed(self, rows: Sequence[Row], kind: type[Row]) -> Any:
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise Invalid("frames need pandas: pip install 'undertone-ldp[all]'") from None
        frame = pd.DataFrame(kind.table(rows))
        start = pd.to_datetime(frame.pop("start"), unit="s", utc=True)
        frame.index = pd.DatetimeIndex(start, name="start").tz_convert(self.days.zone)
        frame.attrs = {
            "campaign": self.campaign.name,
            "unit": self.campaign.unit,
            **self.budget.as_json(),
            "guarantee": self.guarantee,
        }
        return frame
