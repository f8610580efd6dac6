"""``undertone experiment``: the papers' tables and figures again, from the shipped code."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from undertone_simulator.experiments.registry import Options, names, run


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("experiment")(experiment)


def experiment(
    name: Annotated[str, typer.Argument(help=f"one of {', '.join(names())}")],
    data: Annotated[
        Path | None, typer.Option(help="folder of the real data sets; UNDERTONE_DATA if absent; else stand-ins only")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="only this stream, such as POS; may be repeated")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="repeats; few if absent, the papers take 100")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of all noise and synthetic data")] = 1,
    png: Annotated[Path | None, typer.Option(help="write the figure")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Run an experiment and print its table as markdown. Every comparison has Base, which needs no data."""
    if data is None and os.environ.get("UNDERTONE_DATA"):
        data = Path(os.environ["UNDERTONE_DATA"])
    found = run(name, Options(data, repeats, seed, tuple(only or ())))
    if png is not None:
        found.draw(png)
    typer.echo(json.dumps(found.document(), ensure_ascii=False, indent=2) if as_json else found.markdown(), nl=False)
