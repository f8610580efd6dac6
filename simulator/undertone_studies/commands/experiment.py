"""``undertone experiment``: reproduce the papers' tables and figures, and make our own, from the shipped code."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid
from undertone_studies.registry import EXPERIMENTS, StudyOptions
from undertone_studies.results import page_of, write, write_page, write_results

ALL = "all"
DATA = Path("../shared/data")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("experiment")(experiment)


def experiment(
    name: Annotated[
        str, typer.Argument(help=f"Experiments to run: {ALL}, or one of {', '.join(EXPERIMENTS.names())}.")
    ],
    data: Annotated[
        Path | None, typer.Option(help=f"Folder of the real data sets; by default UNDERTONE_DATA, else {DATA}.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Compute only this stream, such as POS; give the option several times for several streams."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Number of repeats; by default few, while the papers take 100.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only as much as shows that the experiment works.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all noise and synthetic data.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(help=f"Folder for NAME.png, NAME.csv and NAME.json; with {ALL} also for the page FOLDER.md."),
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Write the figure to this file.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; results do not depend on it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an experiment and print its table and notes as Markdown."""
    if name == ALL and png is not None:
        raise Invalid(f"--png cannot be given with {ALL}, which writes many figures: give --output a folder")
    repeats = 1 if quick and repeats is None else repeats
    options = StudyOptions(data or data_folder(), repeats, seed, tuple(only or ()), quick, workers)
    if name == ALL:
        _all(options, output, as_json)
        return
    outcome = EXPERIMENTS.run(name, options)
    if output is not None:
        write(name, outcome, options, output)
        if page_of(output).exists():
            write_page(output)
    if png is not None:
        outcome.draw(png)
    typer.echo(
        json.dumps(outcome.document(), ensure_ascii=False, indent=2) if as_json else outcome.markdown(), nl=False
    )


def data_folder() -> Path | None:
    """Return the folder of the real data sets; None, after a line on standard error, if there is none."""
    folder = Path(os.environ.get("UNDERTONE_DATA") or DATA)
    if folder.is_dir():
        return folder
    print(
        f"there is no folder {folder}, so a study of real data uses a synthetic stand-in or does not run: give --data"
        " the folder of the data sets",
        file=sys.stderr,
    )
    return None


def _all(options: StudyOptions, output: Path | None, as_json: bool) -> None:
    if output is None:
        raise Invalid(f"experiment {ALL} writes many figures: give --output a folder")
    page, skipped = write_results(options, output, lambda sentence: print(sentence, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps({"page": str(page), "skipped": skipped}, ensure_ascii=False))
    else:
        print(
            f"{page}: {many(len(EXPERIMENTS.names()) - len(skipped), 'experiment')}; {len(skipped)} more could not run"
        )
