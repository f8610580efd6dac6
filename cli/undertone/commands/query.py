"""``undertone query``: print estimates from a store, as a table or in the formats of other tools."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.applies import refuse
from undertone.stores import StoreUrl, WhichCampaign
from undertone_aggregator.base.plural import many
from undertone_aggregator.estimate.formats import FORMATS, format_of
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.estimate.estimates import Estimates, MeanRow, Row
    from undertone_aggregator.estimate.query import Results

# Formats beside those of `formats.FORMATS`: a table for people, and one JSON object with everything.
_TABLE, _JSON = "table", "json"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("query")(query)


def query(
    context: typer.Context,
    store: StoreUrl,
    campaign: WhichCampaign = None,
    since: Annotated[
        str | None, typer.Option(help="Use only slots of the most recent 90m, 24h, 7d or 2w, for example.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="Use only slots from this local time on: 2026-03-01T18:00.")
    ] = None,
    to: Annotated[str | None, typer.Option(help="Use only slots before this local time.")] = None,
    tz: Annotated[
        str | None, typer.Option(help="Time zone of given and printed times; by default the campaign's.")
    ] = None,
    first: Annotated[int | None, typer.Option(help="Number of the first slot.")] = None,
    last: Annotated[int | None, typer.Option(help="Number of the last slot.")] = None,
    newest: Annotated[int | None, typer.Option(min=1, help="Use only this many newest slots.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Use only these groups; by default the group all, which is everybody, or with --by group every group."
        ),
    ] = None,
    groups: Annotated[bool, typer.Option("--groups", help="Print every group.")] = False,
    settled: Annotated[
        bool,
        typer.Option("--settled", help="Use only settled slots: later reports do not change their means."),
    ] = False,
    filtered: Annotated[bool, typer.Option("--filtered", help="Print the filtered series beside the raw one.")] = False,
    every: Annotated[
        int | None, typer.Option(min=1, help="Print means over this many slots instead of single slots.")
    ] = None,
    between: Annotated[
        str | None,
        typer.Option(help="Print one mean of the selected slots in these hours of the day, such as 18:00-23:00."),
    ] = None,
    days: Annotated[
        str | None,
        typer.Option(help="Print one mean of the selected slots on workdays, on days-off, or on days such as mon,sat."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Print one mean of the selected slots: for each group (group) or for everybody (all)."),
    ] = None,
    total: Annotated[
        bool,
        typer.Option("--total", help="Print the mean of the selected slots, and the total of all registered devices."),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare the mean of the selected slots with another mean: group:NAME (a group), 7d (the same time 7"
            " days earlier), FROM..TO (another time), or days:days-off (other days, with --days workdays)."
        ),
    ] = None,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses",
            help="Print gaps: slots without reports, or with late or lost reports; in other formats than table, print"
            " every slot.",
        ),
    ] = False,
    quantiles: Annotated[
        str | None,
        typer.Option(
            help="Print these quantiles of the readings, such as 0.5,0.9, for each cycle or each --every slots."
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help=f"Format of the output: one of {', '.join([_TABLE, _JSON, *FORMATS])}.")
    ] = _TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write to this file; required for a binary format.")] = None,
) -> None:
    """Print the mean of the readings with its 95 % interval, for each slot and group.

    --every 48 prints means over days of half-hours, --quantiles the distribution of the readings.
    --from 2026-03-02 --to 2026-03-09 --between 18:00-23:00 --days workdays --by group --total prints, for each group,
    the mean of that week's evenings on workdays, and the sum of all devices' readings in them.
    --since 7d --against 7d prints how much the last seven days differ from the seven before, with the error.
    """
    from undertone_aggregator.campaign.results import open_results
    from undertone_aggregator.estimate.against import Against
    from undertone_aggregator.estimate.difference import MeanDifference
    from undertone_aggregator.estimate.distribution import Quantile
    from undertone_aggregator.estimate.estimates import Estimate, RangeEstimate
    from undertone_aggregator.estimate.losses import Gap, SlotLosses, gaps
    from undertone_aggregator.estimate.selection import Hours, OnDays, Selection

    _refuse_others(context)
    form = _JSON if as_json else form
    writer = None if form in (_TABLE, _JSON) else format_of("--format", form, (_TABLE, _JSON))
    if form == _TABLE and output is not None:
        raise Invalid("--output needs a --format other than table")
    if writer is not None and writer.binary and output is None:
        raise Invalid(f"--format {form} needs --output FILE")
    if by not in (None, "group", "all"):
        raise Invalid(f"--by is {by!r}, expected group or all")
    selects = between is not None or days is not None or by is not None or total or against is not None
    other = None if against is None else Against.parse("--against", against)
    hours = None if between is None else Hours.parse("--between", between)
    on = None if days is None else OnDays.parse("--days", days)
    with open_results(store, campaign) as results:
        zone = _zone(results, tz)
        span = _span(results, zone, (since, from_, to), (first, last))
        if newest is not None:
            span = results.newest_slots(newest, *span, settled=settled)
        wanted = None if groups or (by == "group" and not group) else group or ["all"]
        estimates = results.estimates(*span, wanted, filtered=filtered, settled=settled, absent=True)
        rows: Sequence[Row] = estimates
        kind: type[Row] = Estimate
        if other is not None:
            rows, kind = (
                results.difference(*span, wanted, against=other, hours=hours, days=on, zone=zone),
                MeanDifference,
            )
        elif selects:
            rows, kind = results.selection(*span, wanted, hours=hours, days=on, zone=zone), Selection
            chosen = {slot for row in rows for slot in (row.first, row.last)}
            inside = (min(chosen, default=0) <= estimates.slot) & (estimates.slot <= max(chosen, default=0))
            estimates = estimates.take(inside)
        elif quantiles is not None:
            rows, kind = results.quantiles(_shares(quantiles), every, *span), Quantile
        elif losses:
            lost = results.losses(*span, wanted)
            rows, kind = lost, SlotLosses
            if form == _TABLE:
                each = {group: [row for row in lost if row.group == group] for group in {row.group for row in lost}}
                rows = [gap for group in sorted(each) for gap in gaps(each[group], results.campaign.slot_seconds)]
                estimates = estimates[:0]
        elif every is not None:
            rows, kind = results.ranges(every, *span, wanted), RangeEstimate
        if form == _TABLE:
            _show(results, zone, estimates, rows, Gap if losses else kind, total)
        elif writer is None:
            _write(_document(results, estimates, rows, kind).encode(), output)
        else:
            _write(writer.write(results, rows, kind), output)


# Options that select slots for one mean.
_SELECTS = ("between", "days", "by", "total", "against")
_RUNS = "with --every or --quantiles: over several slots, noise averages out without a filter"
_ONE_MEAN = "with --between, --days, --by, --total or --against, which print one mean"
# Option -> the options that cannot be combined with it, and the reason.
_OTHERS = {
    "as_json": (("form",), "with --json, which is a format"),
    "groups": (("group",), "with --groups"),
    "since": (("from_", "first"), "with --since"),
    "from_": (("first",), "with --from"),
    "to": (("last",), "with --to"),
    "every": (("filtered",), _RUNS),
    "quantiles": (("filtered",), _RUNS),
    **dict.fromkeys(_SELECTS, (("every", "quantiles", "filtered", "newest", "settled"), _ONE_MEAN)),
}


def _refuse_others(context: typer.Context) -> None:
    """Raise Invalid if options contradict each other, or if one of them would make the command ignore another one."""
    given = {name for name, value in context.params.items() if value not in (None, False)}
    if "losses" in given:
        unlike = (*_SELECTS, "every", "quantiles", "filtered", "newest", "settled")
        refuse(context, unlike, "with --losses: choose slots by --since, --from, --to, --first or --last")
    for name, (others, where) in _OTHERS.items():
        if name in given:
            refuse(context, others, where)
    if "quantiles" in given:
        refuse(context, ["group", "groups"], "with --quantiles, which cover everybody")
    if "total" in given:
        refuse(context, ["against"], "with --total: a difference of means has no total")
    if given & {"every", "quantiles"} and "newest" not in given:
        refuse(context, ["settled"], "with --every or --quantiles, unless --newest is given, too")


def _zone(results: "Results", name: str | None) -> tzinfo:
    from undertone_aggregator.base.zones import zone

    return results.days.zone if name is None else zone("--tz", name)


def _span(
    results: "Results",
    zone: tzinfo,
    moments: tuple[str | None, str | None, str | None],
    slots: tuple[int | None, int | None],
) -> tuple[int | datetime | None, int | datetime | None]:
    """Return the begin and the end of the selected slots: a slot's number, a time or None (no limit). Raises
    Invalid.
    """
    from undertone_aggregator.base.durations import moment_of, seconds_of

    since, start, end = moments
    first, last = slots
    for name, number in (("--first", first), ("--last", last)):
        if number is not None and number < 0:
            raise Invalid(f"{name} is {number}, expected the number of a slot, from 0")
    begin: int | datetime | None = first if start is None else moment_of("--from", start, zone)
    if since is not None:
        # A start before 1970, which results if the store has no report, becomes 1970 and selects everything.
        begin = datetime.fromtimestamp(max(results.ends - seconds_of("--since", since), 0), UTC)
    return begin, last if end is None else moment_of("--to", end, zone)


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise Invalid(f"--quantiles is {text!r}, expected numbers between 0 and 1, such as 0.5,0.9") from None


def _document(results: "Results", estimates: "Estimates", rows: "Sequence[Row]", kind: "type[Row]") -> str:
    """Return the campaign and these rows as one JSON object."""
    from undertone_aggregator.base.plain import plain
    from undertone_aggregator.estimate import export

    document = export.document(results, estimates)
    if rows is not estimates:
        del document["slots"]
        document[kind.plural] = [row.row() for row in rows]
    return json.dumps(plain(document), ensure_ascii=False) + "\n"


def _write(data: bytes, output: Path | None) -> None:
    from undertone_aggregator.base.files import naming

    if output is None:
        _print(data.decode())
    else:
        with naming(output):
            output.write_bytes(data)


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does: flush nothing to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(
    results: "Results",
    zone: tzinfo,
    estimates: "Estimates",
    rows: "Sequence[Row]",
    kind: "type[Row]",
    total: bool = False,
) -> None:
    from rich.console import Console

    from undertone.long_table import long_table
    from undertone_aggregator.counts.partial import EVERYBODY
    from undertone_aggregator.design.budget import shown
    from undertone_aggregator.estimate.difference import MeanDifference
    from undertone_aggregator.estimate.distribution import Quantile
    from undertone_aggregator.estimate.estimates import Estimate, RangeEstimate
    from undertone_aggregator.estimate.losses import Gap
    from undertone_aggregator.estimate.selection import Selection

    campaign, exact = results.campaign, results.certificate
    console = Console(markup=False)
    if not console.is_terminal:
        console = Console(markup=False, width=120)
    starts = f"starts ({zone})"
    if kind is Gap:
        heads = [starts, "ends", "group", "slots", "without a number", "late", "lost", "refused"]
    elif rows and isinstance(rows[0], Quantile):
        heads = [starts, "reports", "share", f"at most, {campaign.unit}", "90 % band (a model)"]
    elif kind is MeanDifference:
        heads = [starts, "series", f"mean, {campaign.unit}", "compared with", f"its mean, {campaign.unit}"]
        heads += [f"difference, {campaign.unit}", "95 %", "verdict", "by chance"]
    elif rows and isinstance(rows[0], Selection):
        heads = [starts, "series", "slots", "absent", f"mean, {campaign.unit}", "95 %", "mean of min(x, θ)"]
        heads += [f"total of all devices, {campaign.unit}", "± 95 %"] if total else []
    else:
        heads = [starts, "series", "reports", f"mean, {campaign.unit}", "± 95 %", "95 %", "mean of min(x, θ)"]
        heads.append("± if 1 % are fake")
        if rows and isinstance(rows[0], RangeEstimate):
            # A mean at the beginning or end of the campaign, or over a gap, has fewer slots than --every asks for.
            heads[2:2] = ["slots"]
            heads.pop()
    settled = results.settled
    cells = [_cells(row, zone, settled)[: len(heads)] for row in rows]
    table = long_table(console, campaign.name, heads, cells)
    theta = f"threshold θ = {results.thetas}" if results.theta is not None else "the threshold θ is not chosen yet"
    # With Gaussian noise, a single report has no bound e^ε and no certificate: only the whole stream has a guarantee.
    certificate = "" if exact is None else f"; certificate {exact} ≤ e^{shown(results.budget.epsilon)}"
    lines = [theta + certificate, results.guarantee]
    lines.append(
        "this is the operator's own view: it can also show slots that have not settled, late reports, and numbers over"
        " fewer reports than may be published; undertone export writes what may be published"
    )
    if total and rows and all(isinstance(row, Selection) and row.total is None for row in rows):
        names = sorted({row.series.group for row in rows if isinstance(row, Selection)})
        of = "" if EVERYBODY in names else f" of group{'s' * (len(names) > 1)} {', '.join(names)}"
        lines.append(
            f"there is no total, because the store lists no active device{of}; undertone devices add adds devices to it"
        )
    world = results.world(estimates)
    if world is not None:
        lines.append(f"published numbers: {world.sentence('a cycle of slots')}")
    if results.mechanism is not None:
        lines.append(results.mechanism.sentence())
    if estimates.filtered.any():
        lines.append(results.filter.sentence)
    if (estimates.slot > settled).any():
        which = "… marks slots" if kind is Estimate else "the table covers slots"
        lines.append(f"{which} that have not settled: more reports may still come for them")
    outcomes, late = results.outcomes(), results.unpublished
    if late:
        share = late / max(outcomes.get("counted", 0), late)
        lines.append(
            f"{many(late, 'report')} ({share:.2%} of those counted) came too late for the published means; these"
            " numbers include late reports"
        )
    received = outcomes.pop("received", 0)
    lines.append(
        f"{many(received, 'delivery', 'deliveries')}: "
        + ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()) if n)
    )
    lines += [f"warning: {warning}" for warning in results.warnings(estimates)]
    with console.capture() as capture:
        for line in lines:
            console.print(line)
    _print(table + capture.get())


def _cells(row: "Row", zone: tzinfo, settled: int) -> list[str]:
    from undertone_aggregator.estimate.difference import MeanDifference, chance_of
    from undertone_aggregator.estimate.distribution import Quantile
    from undertone_aggregator.estimate.estimates import Estimate, RangeEstimate, Z
    from undertone_aggregator.estimate.export import local
    from undertone_aggregator.estimate.losses import Gap
    from undertone_aggregator.estimate.selection import Selection

    if isinstance(row, Gap):
        counts = [row.slots, row.empty, row.late, row.lost, row.refused]
        return [local(row.start, zone), local(row.end, zone), row.group, *("" if n is None else str(n) for n in counts)]
    if isinstance(row, Quantile):
        reports = str(row.cohort + row.reports)
        return [local(row.start, zone), reports, f"{row.share:g}", str(row.value), f"{row.low} to {row.high}"]
    if isinstance(row, MeanDifference):
        other = "at the same time" if row.against_start == row.start else f"from {local(row.against_start, zone)}"
        sides = [f"{row.mean:.1f}", f"{row.against_group} {other}", f"{row.against:.1f}"]
        difference = [f"{row.estimate:+.1f}", f"{row.low:+.1f} to {row.high:+.1f}", row.verdict]
        return [local(row.start, zone), str(row.series), *sides, *difference, chance_of(row)]
    if isinstance(row, Selection):
        total = ["", ""]
        if row.total is not None and row.total_se is not None:
            total = [f"{row.total:.4g} of {many(row.devices or 0, 'device')}", f"{Z * row.total_se:.2g}"]
        mean = [f"{row.estimate:.1f}", f"{row.low:.1f} to {row.high:.1f}", _truncated(row)]
        return [local(row.start, zone), str(row.series), str(row.slots), str(row.absent), *mean, *total]
    assert isinstance(row, (Estimate, RangeEstimate))
    # Late reports can still change the estimate of this slot.
    mark = " …" if isinstance(row, Estimate) and row.slot > settled else ""
    head = [local(row.start, zone) + mark, str(row.series)]
    if isinstance(row, Estimate) and row.is_absent:
        return [*head, "0", "no report", "", "", "", ""]
    if isinstance(row, Estimate) and row.standard_error is None:
        return [*head, str(row.cohort), "learning θ", "", "", "a threshold round", ""]
    mean = [f"{row.estimate:.1f}", f"{Z * (row.standard_error or 0.0):.1f}", f"{row.low:.1f} to {row.high:.1f}"]
    if isinstance(row, RangeEstimate):
        return [*head, str(row.slots), str(row.reports), *mean, _truncated(row)]
    fakes = f"{row.manipulation:.1f}" if row.manipulation is not None else ""
    return [*head, str(row.reports), *mean, _truncated(row), fakes]


def _truncated(row: "MeanRow") -> str:
    """Return the truncated mean with its 95 % interval; "" if the row's mean is the truncated mean itself."""
    from undertone_aggregator.estimate.estimates import Z

    return "" if row.bias is None else f"{row.truncated_mean:.1f} ± {Z * (row.truncated_se or 0.0):.1f}"
