"""``undertone devices``: add, list, change and remove the devices of a running fleet."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone.options import with_options
from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.broker_options import BrokerOptions
    from undertone_operate.fleet.devices import FleetFiles

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name.")]


@dataclass(frozen=True, kw_only=True)
class FleetChoice:
    """The fleet that a command works on: the devices of one campaign of a server's folder."""

    home: Annotated[Path, "The server's folder, as undertone init makes it."]
    campaign: Annotated[
        str | None,
        "The campaign; needed if the folder has several fleets, unless one of them alone has the named device.",
    ] = None

    @contextmanager
    def open(self, device: str | None = None) -> "Iterator[FleetFiles]":
        """Open the fleet of the named campaign, or of the newest one (see `Home.newest`), and its store.

        Raises Invalid.
        """
        from undertone_aggregator.server.folder import Home

        home = Home(self.home)
        with _opened(home, home.newest(self.campaign, device)) as fleet:
            yield fleet

    def each(self, device: str | None = None) -> "Iterator[FleetFiles]":
        """Yield the fleet of each present and past campaign of these devices, with its store, newest first.

        Raises Invalid.
        """
        from undertone_aggregator.server.folder import Home

        home = Home(self.home)
        for name in home.chain(home.newest(self.campaign, device)):
            if home.file(name).is_file():
                with _opened(home, name) as fleet:
                    yield fleet


@contextmanager
def _opened(home: "Home", campaign: str) -> "Iterator[FleetFiles]":
    from undertone_aggregator.store.store import open_store
    from undertone_operate.fleet.devices import FleetFiles

    with open_store(home.config(campaign).store_url, campaign=campaign) as store:
        yield FleetFiles.at_home(home, campaign, store)


app = typer.Typer(help="Add, list, change and remove the devices of a running fleet.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="devices")


@app.command()
@with_options(FleetChoice)
def add(
    choice: FleetChoice,
    count: Annotated[int, typer.Argument(metavar="N", help="Number of devices to add.")],
    group: Annotated[str, typer.Option(help="Group of the new devices.")] = "all",
    successors: Annotated[
        int, typer.Option(help="Number of later campaigns like this one that a device's lifetime budget allows.")
    ] = 0,
    absence: Annotated[
        str | None,
        typer.Option(
            help="Longest absence of the server, or of your own broker, such as 2d, for which devices keep reports."
            " Default: as many reports as the fleet's first device keeps, or 96."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the files of new devices, like those of the fleet's first device. No two devices ever get the same name."""
    from undertone_aggregator.base.durations import seconds_of
    from undertone_operate.fleet.device_files import life_sentence, outbox_for
    from undertone_operate.fleet.devices import for_successors, model_of

    with choice.open() as fleet:
        target, policy, outbox = model_of(fleet)
        if absence is not None:
            outbox = outbox_for(fleet.config.campaign, seconds_of("absence", absence))
        if successors:
            policy = for_successors(fleet.config, target, successors)
        about_group = fleet.about_group(group)
        names = fleet.add(count, group, target, policy, int(time.time()), outbox)
    if as_json:
        print(json.dumps({"devices": names, "group": group}))
        return
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    print(f"added {many(len(names), 'device')} in {fleet.folder / 'devices'}: {which}, group {group}")
    if about_group:
        print(about_group)
    print(life_sentence(json.loads(policy)))
    if absence is not None and outbox is not None:
        who = "broker" if fleet.config.broker.source.broker else "server"
        print(
            f"each device keeps its newest {outbox} reports, {24 * outbox:,} bytes, while the {who} is away for up"
            f" to {absence}"
        )
        print(f"a device that restarts while the {who} is away makes no reports until it hears from the server")
    print(broker_advice(fleet.config.broker, fleet.broker))


@app.command("list")
@with_options(FleetChoice)
def list_devices(
    choice: FleetChoice,
    silent: Annotated[
        str | None, typer.Option(help="Only devices that have not reported for this long, or never: 90m, 12h, 2d.")
    ] = None,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="Only active devices that were silent for so long that their queued reports no longer count."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List every device with its group, its state, and the end of the newest slot that it reported."""
    from undertone_aggregator.base.durations import seconds_of

    quiet = None if silent is None else seconds_of("--silent", silent)
    rows = _rows(choice.each(), int(time.time()), quiet, lost=lost)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        origin = "" if row["code"] is None else f", joined by code {row['code']}"
        print(f"{row['name']:20} {row['group']:12} {row['state']:8} {_when(row['last_report'])}{origin}")


@app.command()
@with_options(FleetChoice)
def show(
    choice: FleetChoice,
    name: Name,
    as_json: AsJson = False,
) -> None:
    """Show one device."""
    rows = [row for row in _rows(choice.each(name), int(time.time()), None) if row["name"] == name]
    if not rows:
        where = choice.home if choice.campaign is None else f"campaign {choice.campaign}"
        raise Invalid(f"{name} is not in the inventory of {where}")
    if as_json:
        print(json.dumps(rows[0]))
        return
    for field, value in rows[0].items():
        shown = _when(value) if field in ("since", "last_report") else value
        print(f"{field:12} {'-' if shown is None else shown}")


@app.command()
@with_options(FleetChoice)
def move(
    choice: FleetChoice,
    name: Name,
    to: Annotated[str | None, typer.Option(help="The campaign of this folder that the device moves to.")] = None,
    group: Annotated[str | None, typer.Option(help="Group of the device from now on.")] = None,
) -> None:
    """Move a device to another campaign of the server's folder, or to another group, while it reports.

    The device follows at its next contact if its policy allows hand-overs and the campaign. The server puts reports
    into groups, so a new group takes effect at once. A phone or Home Assistant goes on showing the same mean as before.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_operate.changes.moving import move_device

    if to is None and group is None:
        raise Invalid("the change is missing, expected --to CAMPAIGN or --group GROUP")
    if to is None:
        about_group = ""
        for fleet in choice.each(name):
            about_group = about_group or fleet.about_group(group or "all")
            fleet.regroup(name, group or "all")
        print(f"{name} is in group {group} from now on; what it reported stays in the sums of its old group")
        if about_group:
            print(about_group)
        return
    home = Home(choice.home)
    print("\n".join(move_device(home, home.newest(choice.campaign, name), name, to, group or "all")))


@app.command()
@with_options(FleetChoice)
def rotate(
    choice: FleetChoice,
    name: Name,
) -> None:
    """Give a device a new password or certificate; the old one is refused once the broker or server has the change."""
    with choice.open(name) as fleet:
        path = fleet.rotate(name)
    if path.name == "password":
        print(f"{path} holds the new password of {name}: put this file onto the device")
    else:
        key = path.with_suffix(".key")
        print(f"{path} holds the new certificate of {name}, and {key.name} its key: put both files onto the device")
    print(broker_advice(fleet.config.broker, fleet.broker))


@app.command()
@with_options(FleetChoice)
def revoke(
    choice: FleetChoice,
    name: Name,
) -> None:
    """Refuse everything that a device sends from now on, at the broker and at the server."""
    done = [(fleet, fleet.revoke(name, int(time.time()))) for fleet in choice.each(name)]
    fleet, sentence = done[0]
    print(sentence)
    print(broker_advice(fleet.config.broker, fleet.broker))


@app.command()
@with_options(FleetChoice)
def forget(
    choice: FleetChoice,
    name: Name,
) -> None:
    """Delete a revoked device's name and files.

    The server keeps a hash of the name, so that no other device gets the name.
    """
    for fleet in choice.each(name):
        fleet.forget(name, int(time.time()))
    print(f"{name} is forgotten; what it reported stays in the sums")


@app.command()
@with_options(FleetChoice)
def conflicts(
    choice: FleetChoice,
    as_json: AsJson = False,
) -> None:
    """List devices that sent two reports for one interval: a sign of a copied ledger or a stolen password.

    The list covers the time in which [store] audit was on in server.toml; the server's log names devices at any time.
    """
    from undertone_aggregator.settings.landing_plan import SPARK

    with choice.open() as fleet:
        names = sorted({device for device, _, outcome in fleet.store.audit() if outcome == "conflict"})
        refused = fleet.store.outcomes()["conflict"]
        audit, by_spark = fleet.config.store.audit, fleet.config.landing.counts == SPARK
    off, log = "[store] audit in server.toml", "look in the server's log for 'sent a second, different report'"
    if refused and not names:
        told = many(refused, "report contradicts another", "reports contradict others")
        why = "Spark counts the reports" if by_spark else f"{off} was off: {log}"
        raise Invalid(f"{told}, but the store names no device, because {why}")
    print(json.dumps(names) if as_json else "\n".join(names) or "none")
    if refused and not audit:
        print(f"{off} is off now, so the list can lack devices: {log}", file=sys.stderr)


@app.command()
@with_options(FleetChoice)
def export(
    choice: FleetChoice,
    output: Annotated[Path, typer.Option(help="CSV file to write.")],
) -> None:
    """Write the inventory as CSV: name, group, state, since, last_report (Unix seconds), code by which it joined."""
    import csv
    import io

    from undertone_aggregator.base.files import write_private

    rows = _rows(choice.each(), int(time.time()), None)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["name", "group", "state", "since", "last_report", "code"])
    writer.writeheader()
    writer.writerows(rows)
    # The file is private, because it shows when each household reported last.
    write_private(output, text.getvalue())
    print(f"wrote {many(len(rows), 'device')} into {output}")


def broker_advice(options: "BrokerOptions", folder: Path) -> str:
    """Return one sentence about how the broker, whose files are in ``folder``, learns of a change."""
    from undertone_aggregator.mqtt.mosquitto import CONFIG_FILE, running_pid

    if not options.source.broker:
        return "the server reads the changed files within a second, or when it starts"
    if running_pid(folder) is not None:
        return "the server reloads its broker now, or when it starts"
    copy = (
        f"copy the files passwords and access from {folder} to the broker; then send the broker a SIGHUP (kill -HUP)"
        " while the server runs"
    )
    if (folder / CONFIG_FILE).is_file():
        # The broker has not been started, or is another one, such as one on another machine.
        return (
            f"a broker that you start later with {folder / CONFIG_FILE} reads the changed files; for any other"
            f" broker, {copy}"
        )
    return copy


def _rows(fleets: "Iterator[FleetFiles]", now: int, silent: int | None, *, lost: bool = False) -> list[dict[str, Any]]:
    """Return a row for each device of these fleets, newest first: its state in the first fleet that has it, and the end
    of its last reported slot in any of them.

    ``silent``: only devices without a report for so many seconds. ``lost``: only active ones
    that were silent for so long that their queued reports no longer count.
    """
    from undertone_aggregator.counts.epochs import late_seconds
    from undertone_aggregator.store.inventory import ACTIVE

    rows: dict[str, dict[str, Any]] = {}
    late = None
    for fleet in fleets:
        late = late_seconds(fleet.config.campaign.slot_seconds) if late is None else late
        seconds, last, codes = fleet.config.campaign.slot_seconds, fleet.last_slots(), fleet.codes()
        for name, device in sorted(fleet.devices().items()):
            slot = last.get(name)
            ended = None if slot is None else (slot + 1) * seconds
            row = rows.setdefault(name, {**device._asdict(), "last_report": None, "code": codes.get(name)})
            row["last_report"] = max((each for each in (row["last_report"], ended) if each is not None), default=None)
    shown = []
    for _, row in sorted(rows.items()):
        ended = row["last_report"]
        # A device that has never reported counts as lost only if it was added long enough ago.
        heard = row["since"] if ended is None else ended
        if lost and (row["state"] != ACTIVE or late is None or now - heard <= late):
            continue
        if silent is None or ended is None or now - ended >= silent:
            shown.append(row)
    return shown


def _when(seconds: int | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else "never"
