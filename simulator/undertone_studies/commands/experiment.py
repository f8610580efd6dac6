"""``undertone experiment``: reproduce the papers' tables and figures, and make our own, from the shipped code."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid
from undertone_studies.registry import EXPERIMENTS, StudyOptions
from undertone_studies.results import page_of, write, write_page, write_results

ALL = "all"
DATA = Path("../shared/data")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("experiment")(experiment)


def experiment(
    name: Annotated[str, typer.Argument(help=f"{ALL}, or one of {', '.join(EXPERIMENTS.names())}")],
    data: Annotated[
        Path | None, typer.Option(help=f"folder of the real data sets; UNDERTONE_DATA if absent, else {DATA}")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="only this stream, such as POS; may be repeated")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="repeats; few if absent, the papers take 100")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="as little as shows that it runs; one repeat")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of all noise and synthetic data")] = 1,
    out: Annotated[
        Path | None, typer.Option(help=f"folder for NAME.png, NAME.csv, NAME.json; with {ALL} also the page FOLDER.md")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="write the figure")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; results do not depend on it")] = None,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help=f"with {ALL}: a Dask scheduler")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Run an experiment and print its table as markdown. Every comparison has Base, which needs no data."""
    repeats = 1 if quick and repeats is None else repeats
    options = StudyOptions(data or _data(), repeats, seed, tuple(only or ()), quick, workers)
    if name == ALL:
        _all(options, out, png, dask, as_json)
        return
    outcome = EXPERIMENTS.run(name, options)
    if out is not None:
        write(name, outcome, options, out)
        if page_of(out).exists():
            write_page(out)
    if png is not None:
        outcome.draw(png)
    typer.echo(
        json.dumps(outcome.document(), ensure_ascii=False, indent=2) if as_json else outcome.markdown(), nl=False
    )


def _data() -> Path | None:
    folder = Path(os.environ.get("UNDERTONE_DATA") or DATA)
    if folder.is_dir():
        return folder
    print(f"no data sets at {folder}: set UNDERTONE_DATA to their folder; only stand-ins are used", file=sys.stderr)
    return None


def _all(options: StudyOptions, out: Path | None, png: Path | None, dask: str | None, as_json: bool) -> None:
    if out is None or png is not None:
        raise Invalid(f"experiment {ALL} writes many figures: give --out a folder, and no --png")
    page, skipped = write_results(
        options, out, lambda sentence: print(sentence, file=sys.stderr, flush=True), dask=dask
    )
    if as_json:
        print(json.dumps({"page": str(page), "skipped": skipped}, ensure_ascii=False))
    else:
        print(f"{page}: {len(EXPERIMENTS.names()) - len(skipped)} experiments, {len(skipped)} without their data")
