"""``undertone query``: estimates from a store, as a table, JSON, CSV or Parquet."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.estimate.distribution import Quantile
    from undertone_aggregator.estimate.query import Results
    from undertone_aggregator.estimate.ranges import RangeEstimate
    from undertone_aggregator.estimate.reconstruct import Estimate

_LAST = 0xFFFFFFFF


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("query")(query)


def query(
    store: Annotated[Path, typer.Argument(help="The aggregator's store.")],
    first: Annotated[int, typer.Option(help="First slot.")] = 0,
    last: Annotated[int, typer.Option(help="Last slot.")] = _LAST,
    newest: Annotated[int | None, typer.Option(min=1, help="Only this many newest slots.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only these groups; --group all is everybody.")] = None,
    every: Annotated[int | None, typer.Option(min=1, help="Runs of this many slots instead of single ones.")] = None,
    quantiles: Annotated[str | None, typer.Option(help="Quantiles of the readings per run, such as 0.5,0.9.")] = None,
    smoothed: Annotated[bool, typer.Option("--smoothed", help="Streams: smoothed over the slots asked for.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file.")] = None,
) -> None:
    """Estimates with standard errors and 95 % intervals, per slot and group.

    --every 48 gives means over days of half-hours; --quantiles the distribution of the readings, per cycle or --every.
    """
    from undertone_aggregator.estimate.query import document, open_store, to_csv, write_parquet
    from undertone_aggregator.estimate.ranges import over

    if as_json and as_csv:
        raise Invalid("--json and --csv exclude each other")
    with open_store(store) as results:
        estimates = (results.smoothed if smoothed else results.estimates)(first, last, group)
        if newest is not None:
            kept = set(sorted({one.slot for one in estimates})[-newest:])
            estimates = [one for one in estimates if one.slot in kept]
        rows: Sequence[Estimate | RangeEstimate | Quantile] = estimates
        if quantiles is not None:
            rows = results.quantiles(_shares(quantiles), every, first, last)
        elif every is not None:
            rows = results.ranges(every, first, last, group) if results.campaign.stream else over(estimates, every)
        if parquet is not None:
            write_parquet(results, rows, parquet)
        if as_json:
            found = document(results, estimates)
            if quantiles is not None or every is not None:
                del found["slots"]
                found["quantiles" if quantiles is not None else "ranges"] = [asdict(one) for one in rows]
            print(json.dumps(found, ensure_ascii=False))
        elif as_csv:
            sys.stdout.write(to_csv(rows))
        elif parquet is None:
            _show(results, estimates, rows)


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise Invalid(f"--quantiles is {text!r}, expected numbers between 0 and 1, such as 0.5,0.9") from None


def _show(
    results: "Results", estimates: "list[Estimate]", rows: "Sequence[Estimate | RangeEstimate | Quantile]"
) -> None:
    from rich.console import Console
    from rich.table import Table

    from undertone_aggregator.estimate.distribution import Quantile

    campaign, exact = results.campaign, results.certificate
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    if rows and isinstance(rows[0], Quantile):
        heads = ["starts (UTC)", "reports", "share", f"at most, {campaign.unit}", "90 % band (a model)"]
    else:
        heads = [
            "starts (UTC)",
            "group",
            "reports",
            f"mean, {campaign.unit}",
            "± s.e.",
            "95 %: min(x, θ)",
            "95 %: x (a model)",
            "± if 1 % are fake",
        ]
    table = Table(*heads, title=campaign.name)
    table.columns[0].no_wrap = True
    for one in rows:
        table.add_row(*_cells(one))
    console.print(table)
    theta = f"θ = {results.theta} {campaign.unit}" if results.theta is not None else "θ is not chosen yet"
    # Gaussian noise has no bound on the ratio for one report: its guarantee is for the stream.
    console.print(theta if exact == 0 else f"{theta}; certificate {exact} ≤ e^{float(results.epsilon):g}")
    console.print(results.guarantee)
    if results.mechanism is not None:
        console.print(results.mechanism.sentence())
    outcomes = results.outcomes()
    received = outcomes.pop("received", 0)
    console.print(f"{received} deliveries: " + ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()) if n))
    for warning in results.warnings(estimates):
        console.print(f"warning: {warning}")


def _cells(one: "Estimate | RangeEstimate | Quantile") -> list[str]:
    from undertone_aggregator.estimate.distribution import Quantile
    from undertone_aggregator.estimate.query import utc
    from undertone_aggregator.estimate.reconstruct import Estimate

    if isinstance(one, Quantile):
        reports = str(one.cohort + one.reports)
        return [utc(one.start), reports, f"{one.share:g}", str(one.value), f"{one.low} to {one.high}"]
    head = [utc(one.start), one.group]
    if isinstance(one, Estimate) and one.standard_error is None:
        return [*head, str(one.cohort), f"{one.estimate:.1f}", "", "", "a threshold round", ""]
    raw = "" if one.low_raw is None else f"{one.low_raw:.1f} to {one.high_raw:.1f}"
    truncated = f"{one.low:.1f} to {one.high:.1f}"
    fakes = f"{one.manipulation:.1f}" if isinstance(one, Estimate) and one.manipulation is not None else ""
    return [*head, str(one.reports), f"{one.estimate:.1f}", f"{one.standard_error:.1f}", truncated, raw, fakes]
