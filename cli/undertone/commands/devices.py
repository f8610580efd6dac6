"""``undertone devices``: a fleet after its first day."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_simulator.fleet_life import Fleet

Campaign = Annotated[Path, typer.Option("--config", help="the aggregator's configuration, TOML")]
Folder = Annotated[Path, typer.Option("--fleet", help="the fleet's folder, as provision writes it")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Name = Annotated[str, typer.Argument(metavar="NAME")]

app = typer.Typer(help="Devices of a running fleet: add, list, rotate, revoke, forget.", no_args_is_help=True)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def register(root: typer.Typer) -> None:
    """Add the commands."""
    root.add_typer(app, name="devices")


@app.command()
def add(
    count: Annotated[int, typer.Argument(metavar="N", help="how many")],
    config: Campaign,
    fleet: Folder,
    group: Annotated[str, typer.Option(help="their group")] = "all",
    as_json: AsJson = False,
) -> None:
    """Provision more devices like the first one of the fleet; names are never given twice."""
    from undertone_simulator.fleet_life import model_of

    with _open(config, fleet) as opened:
        target, policy = model_of(opened.folder)
        names = opened.add(count, group, target, policy, int(time.time()))
    if as_json:
        print(json.dumps({"devices": names, "group": group}))
        return
    print(f"{len(names)} devices in {fleet / 'devices'}: {names[0]} to {names[-1]}, group {group}")
    print("a server that runs this broker knows them within a second; elsewhere: kill -HUP of the broker")


@app.command("list")
def list_devices(
    config: Campaign,
    fleet: Folder,
    silent: Annotated[str | None, typer.Option(help="only those without a report for so long: 90m, 12h, 2d")] = None,
    as_json: AsJson = False,
) -> None:
    """Every device: its group, state, and when the newest slot that it reported ended."""
    with _open(config, fleet) as opened:
        rows = _rows(opened, int(time.time()), None if silent is None else _seconds(silent))
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:20} {row['group']:12} {row['state']:8} {_when(row['last_report'])}")


@app.command()
def show(name: Name, config: Campaign, fleet: Folder, as_json: AsJson = False) -> None:
    """One device."""
    with _open(config, fleet) as opened:
        rows = [row for row in _rows(opened, int(time.time()), None) if row["name"] == name]
    if not rows:
        raise Invalid(f"{name} is not in the inventory of {fleet}")
    if as_json:
        print(json.dumps(rows[0]))
        return
    for field, value in rows[0].items():
        print(f"{field:12} {_when(value) if field in ('since', 'last_report') else value}")


@app.command()
def rotate(name: Name, config: Campaign, fleet: Folder) -> None:
    """A new password: the old one is refused from now on."""
    with _open(config, fleet) as opened:
        path = opened.rotate(name)
    print(f"{path} holds the new password of {name}: put it onto the device")


@app.command()
def revoke(name: Name, config: Campaign, fleet: Folder) -> None:
    """Refuse everything that a device sends from now on, at the broker and at admission."""
    with _open(config, fleet) as opened:
        opened.revoke(name, int(time.time()))
    print(f"{name} is revoked: its later reports are refused; its earlier ones stay in the sums")


@app.command()
def forget(name: Name, config: Campaign, fleet: Folder) -> None:
    """Drop a revoked device's name and files. Its key, which names nobody, stays: the name is not given again."""
    with _open(config, fleet) as opened:
        opened.forget(name, int(time.time()))
    print(f"{name} is forgotten; what it reported stays in the sums")


@app.command()
def conflicts(config: Campaign, fleet: Folder, as_json: AsJson = False) -> None:
    """Devices that sent two reports for one interval: a copied ledger, or a stolen password. Needs store.audit."""
    with _open(config, fleet) as opened:
        names = sorted({device for device, _, outcome in opened.store.audit() if outcome == "conflict"})
        if not names and opened.store.outcomes()["conflict"]:
            raise Invalid("there are conflicts, but [store] audit is off: nobody knows whose they are")
    print(json.dumps(names) if as_json else "\n".join(names) or "none")


@app.command()
def export(config: Campaign, fleet: Folder, out: Annotated[Path, typer.Option(help="a CSV file")]) -> None:
    """The inventory as CSV: name, group, state, since, last_report (Unix seconds)."""
    import csv

    with _open(config, fleet) as opened:
        rows = _rows(opened, int(time.time()), None)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["name", "group", "state", "since", "last_report"])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} devices in {out}")


@contextmanager
def _open(config: Path, fleet: Path) -> "Iterator[Fleet]":
    from undertone_aggregator.collect.store import open_store
    from undertone_aggregator.config import read_config
    from undertone_simulator.fleet_life import Fleet

    read = read_config(config)
    with open_store(read.store_url, campaign=read.campaign.name) as store:
        yield Fleet(read, fleet, store)


def _rows(fleet: "Fleet", now: int, silent: int | None) -> list[dict[str, Any]]:
    seconds = fleet.config.campaign.slot_seconds
    last = fleet.last_slots()
    rows = []
    for name, device in sorted(fleet.devices().items()):
        slot = last.get(name)
        ended = None if slot is None else (slot + 1) * seconds
        if silent is None or ended is None or now - ended >= silent:
            rows.append({**device._asdict(), "last_report": ended})
    return rows


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _UNITS:
        raise Invalid(f"--silent is {text!r}, expected a number and s, m, h or d, such as 2d")
    return int(number) * _UNITS[unit]


def _when(seconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else "never"
