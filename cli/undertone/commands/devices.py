"""``undertone devices``: manages the devices of a fleet that is in use."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_operate.devices import FleetFiles

Home = Annotated[Path | None, typer.Option("--home", help="the server's folder, as undertone init makes it")]
Campaign = Annotated[str | None, typer.Option("--campaign", help="with --home: the campaign; not needed for the only")]
Config = Annotated[Path | None, typer.Option("--config", help="without --home: the aggregator's configuration, TOML")]
Folder = Annotated[Path | None, typer.Option("--fleet", help="with --config: the folder that provision wrote")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Name = Annotated[str, typer.Argument(metavar="NAME")]

app = typer.Typer(help="Devices of a running fleet: add, list, rotate, revoke, forget.", no_args_is_help=True)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="devices")


@app.command()
def add(
    count: Annotated[int, typer.Argument(metavar="N", help="how many")],
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
    group: Annotated[str, typer.Option(help="their group")] = "all",
    as_json: AsJson = False,
) -> None:
    """Provision more devices like the first one of the fleet; names are never given twice."""
    from undertone_operate.devices import model_of
    from undertone_operate.provision import life_sentence

    with _open(home, campaign, config, fleet) as opened:
        target, policy, outbox = model_of(opened)
        names = opened.add(count, group, target, policy, int(time.time()), outbox)
    if as_json:
        print(json.dumps({"devices": names, "group": group}))
        return
    print(f"{len(names)} devices in {opened.folder / 'devices'}: {names[0]} to {names[-1]}, group {group}")
    print(life_sentence(json.loads(policy)))
    print(_told(opened))


@app.command("list")
def list_devices(
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
    silent: Annotated[str | None, typer.Option(help="only those without a report for so long: 90m, 12h, 2d")] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="only active ones, silent for so long that what they kept comes too late")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Every device: its group, state, and when the newest slot that it reported ended."""
    with _open(home, campaign, config, fleet) as opened:
        rows = _rows(opened, int(time.time()), None if silent is None else _seconds(silent), lost=lost)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:20} {row['group']:12} {row['state']:8} {_when(row['last_report'])}")


@app.command()
def show(
    name: Name,
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
    as_json: AsJson = False,
) -> None:
    """One device."""
    with _open(home, campaign, config, fleet) as opened:
        rows = [row for row in _rows(opened, int(time.time()), None) if row["name"] == name]
    if not rows:
        raise Invalid(f"{name} is not in the inventory of {opened.folder}")
    if as_json:
        print(json.dumps(rows[0]))
        return
    for field, value in rows[0].items():
        print(f"{field:12} {_when(value) if field in ('since', 'last_report') else value}")


@app.command()
def rotate(
    name: Name,
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
) -> None:
    """A new password, or certificate: the old one is refused from now on."""
    with _open(home, campaign, config, fleet) as opened:
        path = opened.rotate(name)
    what = "password" if path.name == "password" else "certificate, with its key beside it,"
    print(f"{path} holds the new {what} of {name}: put it onto the device")
    print(_told(opened))


@app.command()
def revoke(
    name: Name,
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
) -> None:
    """Refuse everything that a device sends from now on, at the broker and at admission."""
    with _open(home, campaign, config, fleet) as opened:
        print(opened.revoke(name, int(time.time())))
    print(_told(opened))


@app.command()
def forget(
    name: Name,
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
) -> None:
    """Drop a revoked device's name and files. Its key, which names nobody, stays: the name is not given again."""
    with _open(home, campaign, config, fleet) as opened:
        opened.forget(name, int(time.time()))
    print(f"{name} is forgotten; what it reported stays in the sums")


@app.command()
def conflicts(
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Devices that sent two reports for one interval: a copied ledger, or a stolen password. Needs store.audit."""
    with _open(home, campaign, config, fleet) as opened:
        names = sorted({device for device, _, outcome in opened.store.audit() if outcome == "conflict"})
        if not names and opened.store.outcomes()["conflict"]:
            raise Invalid("there are conflicts, but [store] audit is off: nobody knows whose they are")
    print(json.dumps(names) if as_json else "\n".join(names) or "none")


@app.command()
def export(
    out: Annotated[Path, typer.Option(help="a CSV file")],
    home: Home = None,
    campaign: Campaign = None,
    config: Config = None,
    fleet: Folder = None,
) -> None:
    """The inventory as CSV: name, group, state, since, last_report (Unix seconds)."""
    import csv
    import io

    from undertone_aggregator.store.files import write_private

    with _open(home, campaign, config, fleet) as opened:
        rows = _rows(opened, int(time.time()), None)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["name", "group", "state", "since", "last_report"])
    writer.writeheader()
    writer.writerows(rows)
    # Only the operator may know when a household reported last.
    write_private(out, text.getvalue())
    print(f"{len(rows)} devices in {out}")


@contextmanager
def _open(home: Path | None, campaign: str | None, config: Path | None, fleet: Path | None) -> "Iterator[FleetFiles]":
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.config import read_config
    from undertone_aggregator.store.store import open_store
    from undertone_operate.devices import FleetFiles

    if (home is None) == (config is None) or (config is None) != (fleet is None):
        raise Invalid("whose devices is not said, expected --home DIR [--campaign NAME], or --config FILE --fleet DIR")
    if home is not None:
        opened = Home(home)
        name = opened.only(campaign)
        with open_store(opened.config(name).store_url, campaign=name) as store:
            yield FleetFiles.at_home(opened, name, store)
        return
    assert config is not None
    assert fleet is not None
    read = read_config(config)
    with open_store(read.store_url, campaign=read.campaign.name) as store:
        yield FleetFiles.provisioned(read, fleet, store)


def _told(fleet: "FleetFiles") -> str:
    """Return a sentence about how the broker learns of the change."""
    from undertone_aggregator.mqtt.broker_process import CONFIG_FILE
    from undertone_aggregator.settings.broker_options import EXTERNAL

    if fleet.config.broker.mode != EXTERNAL or (fleet.broker / CONFIG_FILE).is_file():
        return "a server that runs, or that starts, has its broker know it"
    return f"for the broker: give it passwords and access of {fleet.broker}, and kill -HUP it while the server runs"


def _rows(fleet: "FleetFiles", now: int, silent: int | None, *, lost: bool = False) -> list[dict[str, Any]]:
    from undertone_aggregator.store.inventory import ACTIVE
    from undertone_operate.provision import late_seconds

    seconds = fleet.config.campaign.slot_seconds
    last = fleet.last_slots()
    rows = []
    for name, device in sorted(fleet.devices().items()):
        slot = last.get(name)
        ended = None if slot is None else (slot + 1) * seconds
        # A device that was just added is not lost.
        heard = device.since if ended is None else ended
        if lost and (device.state != ACTIVE or now - heard <= late_seconds(fleet.config.campaign)):
            continue
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
