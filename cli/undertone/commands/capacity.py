"""``undertone capacity``: what servers of several sizes need, from times that are measured on this machine."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_operate.examine.capacity import Need


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("capacity")(capacity)


def capacity(
    homes: Annotated[
        list[int] | None, typer.Option(help="Number of homes; may be repeated (default 1000, 20000, 100000, 1000000).")
    ] = None,
    slot: Annotated[str, typer.Option(help="Time between two reports of a home: 1800s, 30m, 1h.")] = "30m",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show memory, disk, open files, processor and network for servers of several sizes, and which setup to use.

    Reports and logins are timed on this machine, with TLS and passwords; the rest is computed.
    """
    from undertone_aggregator.base.durations import seconds_of
    from undertone_operate.examine.capacity import HOMES, MANY, ONE, here, measure, need

    seconds = seconds_of("--slot", slot)
    if not 1 <= seconds <= 86400:
        raise Invalid(f"--slot is {slot!r}, expected 1s to 24h")
    chosen = homes or list(HOMES)
    if bad := [number for number in chosen if not 1 <= number <= 10**9]:
        raise Invalid(f"--homes is {bad[0]}, expected 1 to 1000000000")
    speed, rooms = measure(), here()
    least = min(rooms.values(), key=lambda each: each.connections)
    needs = [need(number, seconds, speed, rooms) for number in chosen]
    if as_json:
        print(json.dumps({"here": asdict(least), "speed": asdict(speed), "needs": list(map(asdict, needs))}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("homes", *(f"{each.homes:,}" for each in needs), box=None, pad_edge=False)
    rows: dict[str, Callable[[Need], str]] = {
        "reports a second": lambda each: f"{each.reports_per_second:.3g}",
        "memory": lambda each: f"{each.memory_bytes / 1e9:.3g} GB",
        "disk after three years": lambda each: f"{each.disk_bytes / 1e9:.3g} GB",
        "open files": lambda each: f"{each.files:,}",
        "share of a processor core": lambda each: f"{100 * each.core:.2g} %",
        "time to reconnect all after a restart": lambda each: f"{each.back_seconds:,.0f} s",
        "network": lambda each: f"{each.network_bits_per_second / 1e6:.2g} Mbit/s",
        "setup": lambda each: each.way,
    }
    for name, shown in rows.items():
        table.add_row(name, *map(shown, needs))
    # Without markup, words in square brackets, such as [broker], are printed.
    console = Console(highlight=False, markup=False)
    console.print(table)
    # Advice about a limit is printed with its number of homes. Advice about a setup holds for every number of homes.
    said = {
        each.advice: each.way if each.way in (ONE, MANY) else f"{each.way} for {each.homes:,} homes" for each in needs
    }
    for advice, way in said.items():
        console.print(f"{way}: {advice}", soft_wrap=True)
    console.print(
        f"measured on this machine: a report takes {1e6 * speed.report:.3g} µs of processor time, and a login with TLS"
        f" and a password {1e3 * speed.login:.3g} ms; a slot takes {speed.slot_bytes:.0f} bytes of the store; at most"
        f" {least.connections:,} devices can be connected at once, because of {least.why}",
        soft_wrap=True,
    )
