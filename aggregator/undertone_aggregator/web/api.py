"""JSON answers of the HTTP API, made from results. Within version 1 of the API, fields are only added."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from undertone_aggregator.base.plain import plain
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.publish import told
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.against import Against
from undertone_aggregator.estimate.distribution import Quantile, Run, check_shares
from undertone_aggregator.estimate.estimates import Estimate, Estimates
from undertone_aggregator.estimate.export import means_csv
from undertone_aggregator.estimate.formats import FORMATS
from undertone_aggregator.estimate.losses import SlotLosses, SlotRefusals, gaps
from undertone_aggregator.estimate.public import PublicResults
from undertone_aggregator.estimate.query import LARGEST_SELECTION
from undertone_aggregator.estimate.selection import Hours, OnDays
from undertone_aggregator.ingest.admission import REASONS
from undertone_shared.errors import Invalid

_SPARK_SLOTS = 96
_MOST_SHARES = 20
# Largest number of runs of slots in one request for quantiles: a month of days. Computing a run may take long.
LARGEST_RUNS = 31
# Columns of a series of estimates, those that a chart and a table show.
COLUMNS = ("slot", "start", "kind", "reports", "cohort", "estimate", "model", "standard_error", "low", "high", "theta")
RAW = (*COLUMNS, "truncated_mean", "truncated_se", "misfit", "manipulation")
# What a file may have: each kind of row, and the means alone.
MEANS = "means"
FILES = (Estimate.plural, MEANS, SlotLosses.plural, SlotRefusals.plural)
FILTERED = ("slot", "start", "estimate", "standard_error", "low", "high", "truncated_mean", "truncated_se")


@dataclass(frozen=True)
class RecentSlots:
    """A campaign's newest settled slots, their warnings and their guarantee; valid as long as ``key`` is the same.

    ``rows``: the slots' estimates. If a slot has a filtered estimate, that is used, because the page shows it first.
    """

    key: tuple[int, ...]
    rows: list[Estimate]
    warnings: list[str]
    published: dict[str, Any] | None


def recent(results: PublicResults, before: RecentSlots | None = None) -> RecentSlots:
    """Return the newest slots. Reuse those of ``before`` if only the number of deliveries has changed since."""
    last = results.settled
    key = results.mark[:-1]
    if before is not None and before.key == key:
        return before
    begin = max(last - max(results.filter.memory, _SPARK_SLOTS) + 1, 0)
    raw = results.estimates(begin, last, settled=True) if last >= 0 else Estimates.of([])
    filtered = {(row.slot, row.series.coordinate): row for row in results.filter.smoothed(raw)}
    newest = raw.take(raw.slot > last - _SPARK_SLOTS)
    world = results.world(newest)
    rows = [filtered.get((row.slot, row.series.coordinate), row) for row in newest]
    return RecentSlots(key, rows, results.warnings(newest), None if world is None else told(world))


def summary(results: PublicResults, state: dict[str, Any], recent: RecentSlots) -> dict[str, Any]:
    """Return a campaign's summary."""
    campaign, rows = results.campaign, recent.rows
    newest = rows[-1] if rows else None
    return {
        "name": campaign.name,
        "sensor": campaign.sensor,
        "measure": campaign.measure,
        "unit": campaign.unit,
        "slot_seconds": campaign.slot_seconds,
        "cycle": campaign.cycle,
        "stride": campaign.schedule.stride,
        "time_zone": str(results.days.zone),
        "days_off": results.days.words,
        "phase": results.newest.phase,
        "theta": results.theta,
        "ranges": results.blocks,
        "theta_since": _theta_since(results),
        "epochs": len(results.timeline),
        "last_slot_ends": campaign.end,
        "guarantee": results.guarantee,
        "odds": [asdict(each) for each in results.odds],
        "kept_by_name": results.kept_by_name,
        "certificate": str(results.certificate),
        "groups": list(results.groups),
        "outcomes": results.outcomes(),
        "lost": {group: {"reports": n, "since_slot": slot} for group, (n, slot) in results.lost().items()},
        "unpublished": results.unpublished,
        "settled": recent.key[1],
        "published": recent.published,
        "newest": None if newest is None else _row(newest),
        "offset": campaign.offset,
        "begins": results.timeline.epochs[0].campaign.epoch,
        "largest_selection": LARGEST_SELECTION,
        "formats": list(FORMATS),
        "recent": _columns(rows, ("start", "kind", "estimate", "low", "high")),
        "warnings": recent.warnings,
        "server": state,
    }


def estimates(results: PublicResults, query: "Parameters") -> dict[str, Any]:
    """Return one group's raw series by column, and its filtered series if the query asks for it. Raises Invalid."""
    first, last = query.span(results)
    (rows,) = results.each_group(first, last, [query.group], filtered=query.filtered, settled=True)
    raw = rows.take(~rows.filtered)
    answer: dict[str, Any] = {
        "campaign": results.campaign.name,
        "unit": results.campaign.unit,
        "group": query.group,
        "time_zone": str(query.zone or results.days.zone),
        "guarantee": results.guarantee,
        "settled": results.settled,
        "raw": _columns(raw, RAW),
        "warnings": results.warnings(raw),
    }
    if query.filtered:
        answer["filtered"] = _columns(rows.take(rows.filtered), FILTERED)
        answer["filter"] = results.filter.sentence
    return answer


def ranges(results: PublicResults, query: "Parameters", every: int | None) -> dict[str, Any]:
    """Return means over runs of slots, one cycle long by default. Each mean is over the run's published slots.

    Raises Invalid.
    """
    first, last = query.span(results)
    last = max(min(last, results.settled), first - 1)
    rows = results.ranges(every or results.campaign.cycle, first, last, query.group)
    return {
        "campaign": results.campaign.name,
        "unit": results.campaign.unit,
        "group": query.group,
        "guarantee": results.guarantee,
        "ranges": [plain(row.row()) for row in rows],
    }


def selection(results: PublicResults, query: "Parameters", hours: Hours | None, days: OnDays | None) -> dict[str, Any]:
    """Return the mean of all selected slots and the fleet's total, with their errors. Raises Invalid."""
    first, last = query.span(results)
    groups = None if query.by_group else query.group
    rows = results.selection(first, last, groups, hours=hours, days=days, zone=query.zone)
    return {
        "campaign": results.campaign.name,
        "unit": results.campaign.unit,
        "group": query.group,
        "guarantee": results.guarantee,
        "selections": [plain(row.row()) for row in rows],
    }


def difference(
    results: PublicResults, query: "Parameters", against: Against, hours: Hours | None, days: OnDays | None
) -> dict[str, Any]:
    """Return the mean of all selected slots minus another mean, with its error. Raises Invalid."""
    first, last = query.span(results)
    groups = None if query.by_group else query.group
    rows = results.difference(first, last, groups, against=against, hours=hours, days=days, zone=query.zone)
    return {
        "campaign": results.campaign.name,
        "unit": results.campaign.unit,
        "guarantee": results.guarantee,
        "differences": [plain(row.row()) for row in rows],
    }


def means(results: PublicResults, query: "Parameters") -> bytes:
    """Return the means of the selected slots as a small CSV file, see `means_csv`. Raises Invalid."""
    first, last = query.span(results)
    groups = results.groups if query.by_group else [query.group]
    if (last - first + 1) * len(groups) > LARGEST_SELECTION:
        raise Invalid(
            f"the selection has {many(last - first + 1, 'slot')} of each of {many(len(groups), 'group')}, expected "
            f"at most {LARGEST_SELECTION} slots of all groups together"
        )
    series = results.each_group(first, last, groups, filtered=query.filtered, settled=True)
    return means_csv(results, series, query.zone or results.days.zone)


def losses(results: PublicResults, query: "Parameters") -> dict[str, Any]:
    """Return a group's reports by slot (those that came, came late, or are missing), the gaps, and refused deliveries.

    Raises Invalid.
    """
    first, last = query.span(results)
    rows = results.losses(first, last, query.group)
    return {
        "campaign": results.campaign.name,
        "group": query.group,
        "time_zone": str(query.zone or results.days.zone),
        "losses": {name: [getattr(row, name) for row in rows] for name in SlotLosses.columns()},
        "gaps": [gap.row() for gap in gaps(rows, results.campaign.slot_seconds)],
        "refusals": SlotRefusals.table(results.refusals(first, last)),
        "meanings": REASONS,
    }


def quantile_runs(results: PublicResults, query: "Parameters", every: int | None) -> tuple[dict[str, Any], list[Run]]:
    """Return (fields about the campaign, runs of slots) for a request of quantiles. Without ``from``, take the newest
    runs.

    The runs are only read from the store; the quantiles are computed later. Raises Invalid.
    """
    first, last = query.span(results)
    last = max(min(last, results.settled), first - 1)
    every = every or results.campaign.cycle
    if query.open:
        first = max(first, (last // every - LARGEST_RUNS + 1) * every)
    runs = last // every - first // every + 1
    if runs > LARGEST_RUNS:
        raise Invalid(f"the selection has {runs} runs of {many(every, 'slot')}, expected at most {LARGEST_RUNS} runs")
    facts = {"campaign": results.campaign.name, "unit": results.campaign.unit, "guarantee": results.guarantee}
    return facts, results.quantile_runs(every, first, last)


def quantiles(facts: dict[str, Any], rows: list[Quantile]) -> dict[str, Any]:
    """Return quantiles over runs of slots, by a model, with 90 % bands."""
    return {**facts, "quantiles": [{name: _rounded(value) for name, value in row.row().items()} for row in rows]}


def epochs(results: PublicResults) -> dict[str, Any]:
    """Return the campaign's epochs: theta, the range that holds the best theta with 90 %, warnings and notices.

    The warnings and notices are those of the choice of theta. In an epoch with several blocks, theta is the highest of
    them, and field ``ranges`` has [first slot of the cycle, low, theta] for each block.
    """
    rows = []
    for epoch in results.timeline.epochs:
        campaign, chosen = epoch.campaign, epoch.threshold
        rows.append(
            {
                "epoch": campaign.epoch,
                "phase": epoch.phase,
                "theta": campaign.theta,
                "ranges": campaign.ranges,
                "low": None if chosen is None else _rounded(campaign.offset + chosen.low),
                "high": None if chosen is None else _rounded(campaign.offset + chosen.high),
                "warnings": [] if chosen is None else list(chosen.warnings),
                "notices": [] if chosen is None else list(chosen.notices),
            }
        )
    campaign = results.campaign
    return {
        "campaign": campaign.name,
        "unit": campaign.unit,
        "slot_seconds": campaign.slot_seconds,
        "cycle": campaign.cycle,
        "time_zone": str(results.days.zone),
        "epochs": rows,
    }


class Parameters:
    """The parameters of a request: ``from``, ``to`` (ISO 8601 or Unix seconds), ``tz``, ``group``, ``by``,
    ``filtered``.

    Raises Invalid with the parameter's name.
    """

    def __init__(self, parameters: dict[str, str], names: tuple[str, ...]) -> None:
        for name in parameters:
            if name not in names:
                raise Invalid(f"there is no parameter {name!r}, expected {', '.join(names) or 'none'}")
        self.zone = _zone(parameters["tz"]) if "tz" in parameters else None
        self._from = self._moment("from", parameters.get("from"))
        self._to = self._moment("to", parameters.get("to"))
        # True if the request does not say where its span begins.
        self.open = self._from is None
        self.group = parameters.get("group", EVERYBODY)
        self.by_group = parameters.get("by") == "group"
        if "by" in parameters and not self.by_group:
            raise Invalid(f"the parameter 'by' is {parameters['by']!r}, expected 'group'")
        if self.by_group and "group" in parameters:
            raise Invalid("the parameters 'by' and 'group' exclude each other")
        self.filtered = _flag("filtered", parameters.get("filtered", "false"))

    def span(self, results: PublicResults) -> tuple[int, int]:
        """Return (first slot, last slot); by default the newest `LARGEST_SELECTION` slots.

        Raises Invalid for a longer span.
        """
        first, last = results.span(self._from, self._to)
        newest = results.ends // results.campaign.slot_seconds - 1
        last = min(last, newest)
        oldest = results.timeline.epochs[0].campaign.first_slot
        if self._from is None:
            first = max(last - LARGEST_SELECTION + 1, oldest, 0)
        if last - first >= LARGEST_SELECTION:
            raise Invalid(f"the selection has {last - first + 1} slots, expected at most {LARGEST_SELECTION}")
        return first, max(last, first - 1)

    def _moment(self, name: str, text: str | None) -> datetime | None:
        if text is None:
            return None
        try:
            if text.isdecimal():
                return datetime.fromtimestamp(int(text), UTC)
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError, OSError):
            raise Invalid(f"{name} is {text!r}, expected a time such as 2026-11-21T18:00 or Unix seconds") from None
        return moment if moment.tzinfo or self.zone is None else moment.replace(tzinfo=self.zone)


def whole_number(name: str, text: str | None) -> int | None:
    """Parse a whole number in a parameter; return None if it is absent. Raises Invalid."""
    if text is None:
        return None
    # Python refuses to convert thousands of digits, so the length is checked first.
    if not text.isdecimal() or len(text) > len(str(LARGEST_SELECTION)) or not 1 <= int(text) <= LARGEST_SELECTION:
        raise Invalid(f"{name} is {text!r}, expected a whole number from 1 to {LARGEST_SELECTION}")
    return int(text)


def shares_of(text: str | None) -> list[float]:
    """Parse the shares in a parameter; by default the first and last decile and the median. Raises Invalid."""
    try:
        shares = [float(share) for share in (text or "0.1,0.5,0.9").split(",")]
    except ValueError:
        shares = []
    if not 1 <= len(shares) <= _MOST_SHARES:
        raise Invalid(f"shares is {text!r}, expected 1 to {_MOST_SHARES} numbers between 0 and 1, such as 0.1,0.5,0.9")
    check_shares(shares)
    return shares


def _theta_since(results: PublicResults) -> int | None:
    since = None
    for epoch in reversed(results.timeline.epochs):
        if epoch.campaign.ranges != results.blocks:
            break
        since = epoch.campaign.epoch
    return since


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(f"tz is {text!r}, expected a time zone such as Europe/Amsterdam") from None


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise Invalid(f"{name} is {text!r}, expected true or false")
    return text == "true"


def _row(estimate: Estimate) -> dict[str, Any]:
    row = estimate.row()
    return {name: _rounded(row[name]) for name in RAW}


def _columns(rows: Sequence[Estimate], columns: tuple[str, ...]) -> dict[str, list[Any]]:
    table = Estimate.table(rows)
    # This is faster than `_rounded`, which also replaces infinite numbers: a table has none.
    return {
        name: [float(f"{value:.7g}") if isinstance(value, float) else value for value in table[name]]
        for name in columns
    }


def _rounded(value: Any) -> Any:
    """Return a value as JSON can carry it; a float has at most seven significant digits."""
    return plain(float(f"{value:.7g}") if isinstance(value, float) else value)
