"""``undertone campaign``: the life of a server's campaigns; each change is shown before it is made."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.config import Config
    from undertone_aggregator.home import Home

app = typer.Typer(help="Make, show, change and end the campaigns of a server's folder.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The server's folder, as undertone init makes it.")]
Name = Annotated[str, typer.Argument(help="The campaign.")]
Plan = Annotated[Path, typer.Argument(help="The changed plan, TOML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(root: typer.Typer) -> None:
    """Add the commands."""
    root.add_typer(app, name="campaign")


@app.command()
def create(
    folder: Folder,
    name: Name,
    sensor: Annotated[str, typer.Option(help="The sensor whose readings it takes.")],
    unit: Annotated[str, typer.Option(help="The reading's unit, in whole units.")],
    bound: Annotated[int, typer.Option(help="Public upper bound of a reading.")],
    epsilon: Annotated[str, typer.Option(help="Privacy of one reading, or of a whole stream; 0.05 to 8.")],
    slot_seconds: Annotated[int, typer.Option(help="Length of a slot.")] = 1800,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Any other option, as in --set rounds=[48,96].")
    ] = None,
    collect: Annotated[str, typer.Option(help="reports, or stream: all of a device's under one budget.")] = "reports",
) -> None:
    """Write a campaign's plan; a server that runs begins it at once."""
    from undertone_aggregator.home import Home

    home = Home(folder)
    if home.file(name).exists():
        raise Invalid(
            f"there is a campaign {name} in {folder} already: undertone campaign diff shows what would change"
        )
    lines = [
        "[campaign]",
        *(f"{key} = {_toml(value)}" for key, value in (("name", name), ("sensor", sensor), ("unit", unit))),
        f"bound = {bound}",
        f"epsilon = {_toml(epsilon)}",
        f"slot_seconds = {slot_seconds}",
        f"collect = {_toml(collect)}",
    ]
    for text in options or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise Invalid(f"--set is {text!r}, expected NAME=VALUE")
        lines.append(f"{key.strip()} = {value.strip()}")
    plan = "\n".join([*lines, ""])
    home.config(name, plan)
    home.write_plan(name, plan)
    print(f"campaign {name}: {home.file(name)}")


@app.command("list")
def show_all(folder: Folder, as_json: AsJson = False) -> None:
    """All campaigns with their states."""
    from undertone_aggregator.home import Home

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
        print(f"{row['campaign']}: {row['state']}, {row['epochs']} epochs{theta}, {row['received']} deliveries")


@app.command()
def show(folder: Folder, name: Name, as_json: AsJson = False) -> None:
    """One campaign: its plan, its state, what it costs and what came."""
    from undertone_aggregator.home import Home

    home = Home(folder)
    facts = _facts(home, name)
    if as_json:
        print(json.dumps(facts))
        return
    print(home.file(name).read_text().rstrip())
    for key, value in facts.items():
        print(f"# {key}: {value}")


@app.command()
def diff(folder: Folder, name: Name, plan: Plan, as_json: AsJson = False) -> None:
    """What a changed plan would change, and who would refuse it; nothing is made. Exit code 1 if anything differs."""
    from undertone_aggregator.home import Home

    made, said = _changes(Home(folder), name, plan.read_text())
    if as_json:
        print(json.dumps({"changes": [str(change) for change in made], "refusals": said}))
    else:
        print("\n".join([*map(str, made), *([said] if said and made else [])]) if made else "nothing would change")
    if made:
        raise typer.Exit(1)


@app.command()
def apply(folder: Folder, name: Name, plan: Plan) -> None:
    """Make the changes that diff shows; a server that runs takes them up with the next epoch."""
    from undertone_aggregator.binding import open_campaign
    from undertone_aggregator.collect.store import open_store
    from undertone_aggregator.home import Home

    home, text = Home(folder), plan.read_text()
    made, said = _changes(home, name, text)
    if made:
        config = home.config(name, text)
        with open_store(config.store_url, campaign=name) as store:
            open_campaign(store, config.campaign, config.stream, apply=True)
    # Also where nothing changes: the store has the changes of a command that was cut short, the plan has not.
    home.write_plan(name, text)
    if not made:
        print("nothing would change")
        return
    print("\n".join(["changed:", *map(str, made), *([said] if said else [])]))


def _life(verb: str, explain: str) -> None:
    def change(folder: Folder, name: Name) -> None:
        from undertone_aggregator.home import Home
        from undertone_aggregator.life import VERBS, change_state

        print(change_state(Home(folder), name, VERBS[verb]))

    change.__doc__ = explain
    app.command(verb)(change)


_life("pause", "Issue no epoch and publish nothing; what devices send under the last campaign is still counted.")
_life("resume", "End a pause.")
_life("retire", "Take the campaign off the air for good; what is under way is still counted.")


def _toml(text: str) -> str:
    """JSON's escapes are TOML's, but for the pairs that stand for a character beyond 16 bits."""
    return json.dumps(text, ensure_ascii=False)


def _changes(home: "Home", name: str, text: str) -> "tuple[list[Any], str]":
    import time

    from undertone_aggregator.binding import changes, refusals_of
    from undertone_aggregator.collect.store import open_store

    config = home.config(name, text)
    with open_store(config.store_url, campaign=name, read_only=True) as store:
        meta = store.meta()
    if "facts" not in meta:
        raise Invalid(f"campaign {name} has not begun: nothing of it is applied, change campaigns/{name}.toml itself")
    made = changes(meta, config.campaign, config.stream)
    return made, refusals_of(config, int(time.time())) if made else ""


def _glance(home: "Home", name: str) -> dict[str, Any]:
    """Of one that cannot be read, why: it hides no other."""
    try:
        return _facts(home, name)
    except (Invalid, OSError) as wrong:
        return {"campaign": name, "error": str(wrong)}


def _facts(home: "Home", name: str) -> dict[str, Any]:
    from undertone_aggregator.binding import STATE

    config: Config = home.config(name)
    facts: dict[str, Any] = {"campaign": name, "state": "new", "epochs": 0, "theta": None, "received": 0, "lost": 0}
    from undertone_aggregator.collect.store import RECEIVED, NoStore, open_store

    try:
        with open_store(config.store_url, campaign=name, read_only=True) as store:
            epochs = store.epochs()
            facts |= {"state": store.meta().get(STATE, "new"), "epochs": len(epochs)}
            facts |= {"received": store.outcomes()[RECEIVED], "lost": sum(store.losses().values())}
            if epochs:
                facts["theta"] = epochs[-1].campaign.rule.theta
    except NoStore as wrong:
        facts["note"] = str(wrong)
    return facts
