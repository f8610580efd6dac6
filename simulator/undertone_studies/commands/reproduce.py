"""``undertone reproduce``: all experiments that repeat tables and figures of one of the five papers."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid
from undertone_studies.commands.experiment import data_folder
from undertone_studies.registry import EXPERIMENTS, StudyOptions
from undertone_studies.results import write_results

# Paper -> the beginnings of the names of its experiments. PAK is shown as a rival in figures of ToPS. FAST, a rival of
# CGM, is in the experiment `rivals`.
PAPERS: dict[str, tuple[str, ...]] = {
    "tops": ("tops-fig", "tops-table"),
    "pak": ("tops-fig2", "tops-fig3", "tops-fig6", "tops-fig7", "tops-fig10"),
    "cgm": ("cgm-", "rivals"),
    "chan": ("counting-blog", "counting-error"),
    "sanitizer": ("counting-sanitizer", "counting-space"),
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reproduce")(reproduce)


def experiments_of(paper: str) -> list[str]:
    """Return the names of the experiments that repeat the paper's tables and figures. Raises Invalid."""
    if paper not in PAPERS:
        raise Invalid(f"paper is {paper!r}, expected one of {', '.join(PAPERS)}")
    return [name for name in EXPERIMENTS.names() if name.startswith(PAPERS[paper])]


def reproduce(
    paper: Annotated[str, typer.Argument(help=f"The paper: one of {', '.join(PAPERS)}.")],
    output: Annotated[
        Path, typer.Option(help="Folder for the tables and pictures. The first page is FOLDER.md, beside the folder.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the real data sets; by default UNDERTONE_DATA, else ../shared/data.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Number of repeats; by default few, while the papers take 100.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only as much as shows that the experiments work.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all noise and synthetic data.")] = 1,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; results do not depend on it.")
    ] = None,
) -> None:
    """Run every experiment of one paper, and write its tables and pictures.

    The papers: tops (ToPS and ToPL, CCS 2021), pak (NDSS 2019), cgm (PVLDB 2021), chan (TISSEC 2011), sanitizer
    (arXiv:2111.13762).
    """
    names = experiments_of(paper)
    options = StudyOptions(data or data_folder(), 1 if quick and repeats is None else repeats, seed, (), quick, workers)
    page, skipped = write_results(
        options, output, lambda sentence: print(sentence, file=sys.stderr, flush=True), chosen=names
    )
    print(f"{page}: {many(len(names) - len(skipped), 'experiment')}; {len(skipped)} more could not run")
