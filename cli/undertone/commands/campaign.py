"""``undertone campaign``: create, show, change and end the campaigns of a server's folder."""

import json
import re
from collections.abc import Container
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone.applies import refuse
from undertone_aggregator.base.plural import many
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.config import Config

_KEY = re.compile(r"[a-z_]+")

app = typer.Typer(help="Create, show, change and end the campaigns of a server's folder.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")]
Name = Annotated[str, typer.Argument(help="The campaign's name.")]
Plan = Annotated[Path, typer.Argument(help="The changed plan, a TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="campaign")


@app.command()
def create(
    context: typer.Context,
    folder: Folder,
    name: Name,
    sensor: Annotated[str, typer.Option(help="The sensor that the campaign collects from.")],
    unit: Annotated[str, typer.Option(help="Unit of the readings, which are whole numbers.")],
    bound: Annotated[int, typer.Option(help="Public upper bound of a reading.")],
    epsilon: Annotated[str, typer.Option(help="Privacy budget ε of one reading, or of a whole stream: 0.05 to 8.")],
    title: Annotated[
        str | None, typer.Option(help="What is measured, as the page shows it, such as 'Electricity of a home'.")
    ] = None,
    slot_seconds: Annotated[int, typer.Option(help="Length of a slot in seconds.")] = 1800,
    window: Annotated[
        str | None,
        typer.Option(help="A time such as 24h: devices take turns, so that epsilon protects any span of this length."),
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(metavar="SLOTS,SLOTS,...", help="Length of each threshold round in slots, such as 48,48,48."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another option of [campaign], such as --set report_slots=8640."),
    ] = None,
    collect: Annotated[
        str, typer.Option(help="How to collect: reports, or stream, where one budget covers all reports of a device.")
    ] = "reports",
    as_papers: Annotated[
        bool,
        typer.Option(
            "--as-papers",
            help="Collect as the paper of ToPL does: one threshold round, by Square Wave; θ as in Eq. 8 of the paper;"
            " reports by the Hybrid; no filter.",
        ),
    ] = False,
    only_show: Annotated[
        bool, typer.Option("--preview", help="Show the campaign and what undertone plan predicts, and write nothing.")
    ] = False,
    devices: Annotated[int | None, typer.Option(help="With --preview: number of devices (default 1000).")] = None,
    population: Annotated[
        str | None, typer.Option(help="With --preview: synthetic readings, named as in undertone plan --population.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="With --preview: file of readings like those to come.")] = None,
) -> None:
    """Show the privacy cost of a campaign and what would go wrong, then write its plan.

    A running server starts the campaign at once. `undertone campaign delete` deletes a campaign without reports.
    """
    import math
    import time

    from undertone_aggregator.campaign.preview import preview
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.server.history import note
    from undertone_aggregator.settings.toml import document
    from undertone_device.core.units import UNIT
    from undertone_device.host.consent import LARGEST_FOR_PEOPLE, percent
    from undertone_operate.fleet.device_groups import with_group_file

    if not only_show:
        refuse(context, ["devices", "population", "data"], "without --preview")
    home = Home(folder)
    if home.file(name).exists():
        raise Invalid(f"there is a campaign {name} in {folder} already: choose another name for the new campaign")
    values: dict[str, Any] = {"name": name, "version": 1, "sensor": sensor, "unit": unit, "bound": bound}
    if devices is not None:
        check_integer("--devices", devices, 1, 10**9)
    values |= {"epsilon": epsilon, "slot_seconds": slot_seconds, "collect": collect}
    if title is not None:
        values["title"] = title
    if as_papers:
        values["as_papers"] = True
    if window is not None:
        values["window"] = window
    if rounds is not None:
        values["rounds"] = _numbers("--rounds", rounds)
    values |= _settings(options, values)
    plan = document({"campaign": values})
    config = home.config(name, plan)
    print("\n".join(preview(config, int(time.time()))))
    if home.join.listen is not None and config.budget.epsilon > LARGEST_FOR_PEOPLE:
        likely = percent(math.ceil(config.budget.epsilon * UNIT)) or 100
        what = "a report" if config.stream is None else "all reports of a device's stream together"
        print(
            f"warning: people are asked to take part; with epsilon = {float(config.budget.epsilon):g}, {what} can"
            f" raise a guess about one reading from 50 % to {likely} %. Choose an epsilon of at most"
            f" {LARGEST_FOR_PEOPLE}, or be ready to explain this epsilon"
        )
    if only_show:
        _predict(config, 1000 if devices is None else devices, population, data)
        print("nothing was written")
        return
    with home.changing():
        if home.file(name).exists():
            raise Invalid(f"somebody else has created a campaign {name} in {folder} meanwhile")
        home.write_plan(name, with_group_file(home, name, plan))
    note(home.folder, name, f"created: epsilon {epsilon}, bound {bound} {unit}, slots of {slot_seconds} s")
    print(f"campaign {name} is created; its plan is {home.file(name)}")


def _predict(config: "Config", devices: int, population: str | None, data: Path | None) -> None:
    """Print what `undertone plan` prints for this campaign.

    If no synthetic readings fit the campaign, print a sentence instead. Raises Invalid for readings that were given and
    do not fit.
    """
    from undertone.commands.plan_pages import show
    from undertone.progress import Progress
    from undertone_simulator.planning.campaign_plan import in_slots, plan_campaign

    try:
        with Progress("campaigns") as progress:
            planned = plan_campaign(config, devices, population=population, data=data, progress=progress.show)
    except Invalid as wrong:
        if population is not None or data is not None:
            raise
        print(f"no prediction of errors: {wrong}")
        return
    if sentence := in_slots(config, planned):
        print(sentence)
    show(planned)


def _settings(options: list[str] | None, taken: Container[str]) -> dict[str, Any]:
    """Return the values of --set NAME=VALUE by name. Raises Invalid, also for a name that has a value already."""
    from undertone_aggregator.settings.toml import value_of

    values: dict[str, Any] = {}
    for text in options or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not _KEY.fullmatch(key):
            raise Invalid(f"--set is {text!r}, expected NAME=VALUE with a NAME of a to z and _")
        if key in taken or key in values:
            raise Invalid(f"--set is {text!r}, but {key} has a value already")
        values[key] = value_of(value)
    return values


def _numbers(option: str, text: str) -> list[int]:
    """Return the whole numbers in a list such as 48,48,48. Raises Invalid."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise Invalid(f"{option} is {text!r}, expected whole numbers such as 48,48,48")
    return [int(part) for part in parts]


@app.command()
def succeed(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="OLD", help="The campaign that ends.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The next campaign's name.")],
    options: Annotated[
        list[str] | None, typer.Option("--set", help="An option of [campaign] that changes, such as --set epsilon=0.5.")
    ] = None,
    about: Annotated[
        str | None,
        typer.Option(help="What the next campaign is for, if that changes: each household is then asked again."),
    ] = None,
    although_refused: Annotated[
        bool, typer.Option("--although-refused", help="Start the campaign even if policies of devices refuse it.")
    ] = False,
    only_show: Annotated[bool, typer.Option("--preview", help="Show the campaign, and write nothing.")] = False,
) -> None:
    """Start the next campaign for the same devices when the old one ends, without touching a device.

    The next campaign has the plan of the old one. A device moves by itself, by a signed hand-over, if the new campaign
    is inside what its household has agreed to; every other household is asked again. A device's lifetime budget covers
    both campaigns.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_operate.changes.succession import succeed

    chosen = _settings(options, ("name", "version", "succeeds"))
    home = Home(folder)
    write = not only_show
    sentences = succeed(home, name, new, chosen, about=about, although_refused=although_refused, write=write)
    print("\n".join(sentences))


@app.command("list")
def show_all(folder: Folder, as_json: AsJson = False) -> None:
    """List all campaigns with their states and the reasons for them."""
    from undertone_aggregator.campaign.binding import PAUSED
    from undertone_aggregator.server.folder import Home

    home = Home(folder)
    rows = [_glance(home, name) for name in home.names()]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        if "error" in row:
            print(f"{row['campaign']}: {row['error']}")
            continue
        theta = "" if row["theta"] is None else f", theta = {row['theta']}"
        state = f"{row['state']} ({row['reason']})" if row["reason"] else row["state"]
        if row["starts"] is not None:
            starts = f"starts {_date(row['starts'])}"
            state = f"{state}, {starts}" if row["state"] == PAUSED else starts
        epochs, deliveries = many(row["epochs"], "epoch"), many(row["received"], "delivery", "deliveries")
        print(f"{row['campaign']}: {state}, {epochs}{theta}, {deliveries}")


@app.command()
def show(folder: Folder, name: Name, as_json: AsJson = False) -> None:
    """Show one campaign: its plan, its state, its θ and its reports."""
    from undertone_aggregator.server.folder import Home

    home = Home(folder)
    facts = _facts(home, name)
    if as_json:
        print(json.dumps(facts))
        return
    print(home.file(name).read_text(encoding="utf-8").rstrip())
    newest = facts["newest_report"]
    facts["newest_report"] = "none yet" if newest is None else f"its slot ended at {_date(newest)}"
    # The reason, which is printed as well, says when the campaign starts.
    del facts["starts"]
    for key, value in facts.items():
        if value not in ("", None):
            print(f"# {key.replace('_', ' ')}: {value}")


def _date(second: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(second))


@app.command()
def diff(folder: Folder, name: Name, plan: Plan, as_json: AsJson = False) -> None:
    """Show what a changed plan would change and which devices would refuse it.

    The exit code is 1 if anything differs.
    """
    from undertone_aggregator.base.files import read_utf8
    from undertone_aggregator.server.folder import Home
    from undertone_operate.changes.changing import examine

    proposal = examine(Home(folder), name, read_utf8(plan))
    if as_json:
        changes = [str(change) for change in proposal.changes]
        print(json.dumps({"changes": changes, "refusals": str(proposal.refusals), "warnings": proposal.notes}))
    else:
        print("\n".join(proposal.sentences) if proposal.changes else "nothing would change")
    if proposal.changes:
        raise typer.Exit(1)


@app.command()
def apply(
    folder: Folder,
    name: Name,
    plan: Plan,
    although_refused: Annotated[
        bool, typer.Option("--although-refused", help="Apply even if policies of devices refuse the changed campaign.")
    ] = False,
) -> None:
    """Make the changes that undertone campaign diff shows; a running server uses them from the next epoch on.

    The plan must state the version that is in force. The command refuses a plan that a device's policy refuses.
    """
    from undertone_aggregator.base.files import read_utf8
    from undertone_aggregator.server.folder import Home
    from undertone_operate.changes.changing import apply

    done = apply(Home(folder), name, read_utf8(plan), although_refused=although_refused)
    print("\n".join(done) or "nothing would change")


@app.command()
def extend(
    folder: Folder,
    name: Name,
    by: Annotated[str | None, typer.Option(help="By how long, such as 60d or 8w.")] = None,
    until: Annotated[
        str | None, typer.Option(help="The new end, a date and time in UTC such as 2028-03-01 or 2028-03-01T18:00.")
    ] = None,
    although_refused: Annotated[
        bool, typer.Option("--although-refused", help="Extend the campaign even if policies of devices refuse it.")
    ] = False,
    only_show: Annotated[bool, typer.Option("--preview", help="Show the new end, and write nothing.")] = False,
) -> None:
    """Extend a campaign as far as the policies of its devices allow.

    The running server issues the newest epoch again with the new end, and devices take it up at their next contact. The
    command refuses an end that is later than a device's policy or its lifetime budget allows.
    """
    from undertone_aggregator.base.durations import moment_of, seconds_of
    from undertone_aggregator.server.folder import Home
    from undertone_operate.changes.extension import extend

    if (by is None) == (until is None):
        given = "missing" if by is None else "given by both --by and --until"
        raise Invalid(f"the new end is {given}, expected --by or --until")
    seconds = None if by is None else seconds_of("--by", by)
    end = None if until is None else int(moment_of("--until", until, UTC).timestamp())
    home = Home(folder)
    done = extend(home, name, by=seconds, until=end, although_refused=although_refused, write=not only_show)
    print("\n".join(done))


@app.command()
def delete(folder: Folder, name: Name) -> None:
    """Delete a campaign to which nothing was sent yet, with its plan and its store's file. Retire others instead."""
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.server.lifecycle import delete

    print(delete(Home(folder), name))


@app.command()
def log(folder: Folder, name: Name, as_json: AsJson = False) -> None:
    """Show who changed what in a campaign and when, oldest first; it also works after the campaign was deleted."""
    import time

    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.server.history import history

    home = Home(folder)
    plan = home.file(name)
    entries = history(home.folder, name)
    if not entries and not plan.is_file():
        home.only(name)
    if as_json:
        print(json.dumps([entry.row() for entry in entries]))
        return
    for entry in entries:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(entry.time))}  {entry.user}  {entry.what}")
    if not entries:
        print("nothing was changed yet")


def _state_command(verb: str, explain: str) -> None:
    def change(folder: Folder, name: Name) -> None:
        from undertone_aggregator.server.folder import Home
        from undertone_aggregator.server.lifecycle import VERBS, change_state

        print(change_state(Home(folder), name, VERBS[verb]))

    change.__doc__ = explain
    app.command(verb)(change)


_state_command("pause", "Issue no new epoch and publish no means; reports for the newest epoch still count.")
_state_command("resume", "End the pause of a campaign.")


@app.command()
def retire(
    folder: Folder,
    name: Name,
    although_waiting: Annotated[
        bool,
        typer.Option(
            "--although-waiting",
            help="Retire the campaign even if its successor has not begun; devices that have not received the"
            " hand-over stay behind.",
        ),
    ] = False,
) -> None:
    """End a campaign for good; reports that are under way still count."""
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.server.lifecycle import VERBS, change_state

    print(change_state(Home(folder), name, VERBS["retire"], although_waiting=although_waiting))


def _glance(home: "Home", name: str) -> dict[str, Any]:
    """Return a campaign's row; if the campaign cannot be read, a row with the error, so that the others still show."""
    try:
        return _facts(home, name)
    except (Invalid, OSError) as wrong:
        return {"campaign": name, "error": str(wrong)}


def _facts(home: "Home", name: str) -> dict[str, Any]:
    import time

    from undertone_aggregator.campaign.binding import STATE
    from undertone_aggregator.campaign.state import FAILED, read_state, state_of
    from undertone_aggregator.store.store import RECEIVED, NoStore, open_store

    served, now, life = read_state(home.state), time.time(), None
    facts: dict[str, Any] = {"campaign": name, "state": "", "reason": "", "newest_report": None}
    facts |= {"epochs": 0, "theta": None, "received": 0, "lost": 0}
    try:
        config: Config = home.config(name)
        with open_store(config.store_url, campaign=name, read_only=True) as store:
            epochs, life = store.epochs(), store.meta().get(STATE)
            facts |= {"epochs": len(epochs)}
            facts |= {"received": store.outcomes()[RECEIVED], "lost": sum(store.losses().values())}
            if epochs:
                facts["theta"] = epochs[-1].campaign.theta
    except NoStore:
        pass
    except (Invalid, OSError):
        # If a running server has said why the campaign fails, that reason is shown below.
        if state_of(served, name, life, now).state != FAILED:
            raise
    state = state_of(served, name, life, now)
    reason = state.reason or state.note(now)
    starts = None if state.reason else state.starts(now)
    return facts | {"state": state.state, "reason": reason, "starts": starts, "newest_report": state.newest}
