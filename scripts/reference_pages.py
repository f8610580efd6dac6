"""Pages of the site's reference that are made from the code: commands, settings, what the server says.

`site_hooks.py` adds them when the site is built.
``python scripts/reference_pages.py FOLDER`` writes them to a folder.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

REPO = Path(__file__).resolve().parent.parent


def commands() -> str:
    """Return the page of all commands with their arguments, options and defaults."""
    from typer.main import get_command

    from undertone.app import SECTIONS, app

    tree = get_command(app)
    parts = [
        "# Commands",
        "`undertone COMMAND --help` prints the same. Exit codes: 0 done, 1 a check that was asked for failed, 2 bad"
        " input or usage, 130 stopped by Ctrl-C. Errors are one sentence on stderr. Commands with `--json` print JSON"
        " on stdout.",
    ]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _command(tree.commands[name], f"undertone {name}")  # type: ignore[attr-defined]
    return "\n\n".join(parts) + "\n"


def _command(command: Any, name: str) -> Iterator[str]:
    yield f"### {name}"
    yield from (" ".join(paragraph.split()) for paragraph in (command.help or "").strip().split("\n\n"))
    rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if rows:
        yield _table(("argument or option", "default", "meaning"), rows)
    for inner, below in sorted(getattr(command, "commands", {}).items()):
        yield from _command(below, f"{name} {inner}")


def _parameter(parameter: Any) -> tuple[str, ...]:
    name = parameter.name.upper() if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    default = "required" if parameter.required else parameter.default
    if default is None or default is False or callable(default) or default == ():
        default = ""
    return f"`{name}`", str(default), getattr(parameter, "help", "") or ""


def settings() -> str:
    """Return the page of all settings of a configuration file, table by table."""
    from undertone_aggregator.settings.config import SECTIONS

    parts = [
        "# Settings",
        "A server's folder has `server.toml`, whose tables [broker], [store], [server], [join] and [outlet] hold for"
        " all campaigns, and one file for each campaign, with [campaign], [stream] and [landing]. An unknown table or"
        " option is refused.",
    ]
    for name, section in SECTIONS.items():
        rows = [(f"`{f.name}`", _default(f), f.metadata["help"]) for f in dataclasses.fields(cast(Any, section))]
        parts += [f"## [{name}]", _table(("option", "default", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def _default(field: Any) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default, default=str)}`"


def messages() -> str:
    """Return the page of what the server says: states, outcomes of deliveries, metrics and alerts."""
    import yaml

    from undertone_aggregator.campaign.state import STATES
    from undertone_aggregator.ingest.admission import DUPLICATES, REASONS
    from undertone_aggregator.server.metrics import FAMILIES

    alerts = yaml.safe_load((REPO / "aggregator/deploy/alerts.yml").read_text("utf-8"))["groups"]
    rules = [rule for group in alerts for rule in group["rules"] if "alert" in rule]
    return (
        "\n\n".join(
            [
                "# What the server says",
                "## States of a campaign",
                "A campaign is in one of these states: " + ", ".join(f"`{state}`" for state in STATES) + ".",
                "## What happens to a delivery",
                "Each delivery is `counted`, or has one of these outcomes:",
                _table(("outcome", "meaning"), [(f"`{name}`", text) for name, text in (REASONS | DUPLICATES).items()]),
                "## Metrics",
                "`/metrics` shows them in Prometheus's text format; counters have the suffix `_total`.",
                _table(
                    ("metric", "labels", "meaning"),
                    [(f"`{name}`", ", ".join(labels), text) for name, (_, text, labels) in FAMILIES.items()],
                ),
                "## Alerts",
                "`aggregator/deploy/alerts.yml` has them as rules for Prometheus.",
                _table(("alert", "rings when"), [(f"`{rule['alert']}`", _plain(rule)) for rule in rules]),
            ]
        )
        + "\n"
    )


def _plain(rule: Any) -> str:
    summary = (
        rule["annotations"]["summary"].replace("{{ $labels.campaign }}", "X").replace("{{ $labels.instance }}", "Y")
    )
    summary = re.sub(r"\{\{.*?\}\}", "", summary)
    summary = summary.replace("alarm about :", "alarm:")
    return f"{summary} (for {rule['for']})" if "for" in rule else str(summary)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


# Path in the site -> the function that makes the page.
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands,
    "settings.md": settings,
    "messages.md": messages,
}


def main(folder: str) -> None:
    """Write the pages to a folder."""
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
