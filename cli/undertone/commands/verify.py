"""``undertone verify``: compare what a fleet sent with what the server stored."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from undertone.stores import STORE_HELP, WhichCampaign
from undertone_simulator.wire.ledger import BROKER_WINDOW_SECONDS, read_ledgers

if TYPE_CHECKING:
    from undertone_simulator.wire.verify import Accounts


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("verify")(verify)


def verify(
    ledger: Annotated[list[Path], typer.Option(help="Ledger of a fleet, or log of a device; may be repeated.")],
    store: Annotated[str, typer.Option(help=STORE_HELP + " The server must have run with [store] audit = true.")],
    campaign: WhichCampaign = None,
    landing: Annotated[
        Path | None, typer.Option(help="The folder of [landing], where Spark counts: its files hold the audit.")
    ] = None,
    broker_window: Annotated[
        float,
        typer.Option(
            help="A broker that was killed may have lost what it acknowledged within this many seconds before."
        ),
    ] = BROKER_WINDOW_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Account for every report that was sent and every delivery that came; exit code 1 if one is unexplained.

    Deliveries: received = counted + duplicates + rejected. Distinct reports: sent = counted + rejected + lost by a
    named fault.
    """
    from undertone_aggregator.store.store import open_store
    from undertone_simulator.wire.verify import reconcile

    with open_store(store, campaign=campaign, read_only=True) as opened:
        landed = None
        if landing is not None:
            from undertone_operate.examine.recount import landed_audit

            landed = landed_audit(landing)
        accounts = reconcile(read_ledgers(ledger), opened, landed=landed, broker_window=broker_window)
    if as_json:
        print(json.dumps(accounts.as_json(), indent=2))
    else:
        console = Console(highlight=False)
        console.print(accounts_table(accounts))
        for sentence in accounts.examples:
            console.print(f"  unexplained, {sentence}", markup=False)
        console.print(verdict(accounts))
    if not accounts.holds:
        raise typer.Exit(1)


def accounts_table(accounts: "Accounts") -> Table:
    """Return a table of both identities, one in each column."""
    table = Table("", "deliveries", "distinct reports", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    deliveries = accounts.deliveries
    table.add_row("sent", "", str(accounts.sent))
    table.add_row("acknowledged", "", str(accounts.acknowledged))
    table.add_row("received", str(accounts.received), "")
    table.add_row("counted", str(deliveries.get("counted", 0)), str(accounts.counted))
    table.add_row("duplicates", str(accounts.duplicates), "")
    rejected = accounts.rejected_deliveries
    for reason in sorted({*rejected, *accounts.rejected}):
        table.add_row(f"rejected: {reason}", str(rejected.get(reason, 0)), str(accounts.rejected.get(reason, 0)))
    for fault, count in sorted(accounts.lost.items()):
        table.add_row(f"lost: {fault}", "", str(count))
    for fault, count in sorted(accounts.faults.items()):
        table.add_row(f"fault that happened: {fault}", "", f"{count} times")
    return table


def verdict(accounts: "Accounts") -> str:
    """Return one sentence that says whether the accounts agree."""
    if accounts.holds:
        return "Both columns add up: nothing is unexplained."
    counts = ", ".join(f"{n} {what}" for what, n in accounts.unexplained.items())
    return f"[bold red]Unexplained: {counts}.[/]"
