"""``undertone query``: estimates from a store, as a table, JSON, CSV or Parquet."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.query import Results
    from undertone_aggregator.reconstruct import Estimate


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("query")(query)


def query(
    store: Annotated[Path, typer.Argument(help="The aggregator's store.")],
    first: Annotated[int, typer.Option(help="First slot.")] = 0,
    last: Annotated[int | None, typer.Option(help="Last slot.")] = None,
    newest: Annotated[int | None, typer.Option(help="Only this many newest slots.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only these groups; --group all is everybody.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file.")] = None,
) -> None:
    """Estimates with standard errors and 95 % intervals, per slot and group."""
    from undertone_aggregator.query import document, open_store, to_csv, write_parquet

    if as_json and as_csv:
        raise Invalid("--json and --csv exclude each other")
    with open_store(store) as results:
        estimates = results.estimates(first, 0xFFFFFFFF if last is None else last, group)
        if newest is not None:
            slots = sorted({one.slot for one in estimates})[-newest:] if newest > 0 else []
            estimates = [one for one in estimates if one.slot in set(slots)]
        if parquet is not None:
            write_parquet(results, estimates, parquet)
        if as_json:
            print(json.dumps(document(results, estimates), ensure_ascii=False))
        elif as_csv:
            sys.stdout.write(to_csv(estimates))
        elif parquet is None:
            _table(results, estimates)


def _table(results: "Results", estimates: "list[Estimate]") -> None:
    from rich.console import Console
    from rich.table import Table

    from undertone_aggregator.query import utc

    campaign, exact = results.campaign, results.certificate
    console = Console()
    table = Table("slot starts (UTC)", "group", "reports", "mean", "± s.e.", "95 % interval", "of", title=campaign.name)
    table.columns[0].no_wrap = True
    for one in estimates:
        measured = one.standard_error is not None
        table.add_row(
            utc(one.start),
            one.group,
            str(one.reports or one.cohort),
            f"{one.estimate:.1f}",
            f"{one.standard_error:.1f}" if measured else "",
            f"{one.low:.1f} to {one.high:.1f}" if measured else "",
            f"min(x, {one.theta})" if measured else "a model",
        )
    console.print(table)
    theta = f"theta = {results.theta} {campaign.unit}" if results.theta is not None else "theta is not chosen yet"
    console.print(f"{theta}; certificate {exact} ≤ e^{float(results.epsilon):g}; unit {campaign.unit}")
    console.print(results.guarantee)
    outcomes = results.outcomes()
    received = outcomes.pop("received", 0)
    console.print(f"{received} deliveries: " + ", ".join(f"{n} {name}" for name, n in sorted(outcomes.items()) if n))
