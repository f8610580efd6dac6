"""``undertone bench``: run benchmarks of our code against a baseline and print the rows."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from undertone_shared.errors import Invalid
from undertone_studies.registry import BENCHMARKS, StudyOptions
from undertone_studies.row import Measured

ALL = "all"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bench")(bench)


def bench(
    name: Annotated[str, typer.Argument(help=f"Benchmarks to run: {ALL}, or one of {', '.join(BENCHMARKS.names())}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Take a fraction of the time, with less exact figures.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON rows.")] = False,
) -> None:
    """Run benchmarks. A ratio above 1 is better than the baseline. If the ratio is below the goal, the exit code is 0,
    too.
    """
    options = StudyOptions(quick=quick)
    rows = _all(options) if name == ALL else BENCHMARKS.run(name, options)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    for line in lines(rows):
        typer.echo(line)


def _all(options: StudyOptions) -> list[Measured]:
    """Return every benchmark's rows; name those that cannot run here on standard error."""
    rows = []
    for name in BENCHMARKS.names():
        try:
            rows += BENCHMARKS.run(name, options)
        except Invalid as wrong:
            typer.echo(f"{name}: left out, {wrong}", err=True)
    return rows


def lines(rows: list[Measured]) -> list[str]:
    """Return the rows as an aligned table."""
    table: list[tuple[str, ...]] = [("name", "value", "unit", "baseline", "baseline_value", "ratio", "goal")]
    table += [
        (
            row.name,
            f"{row.value:.4g}",
            row.unit,
            row.baseline or "",
            *("" if number is None else f"{number:.4g}" for number in (row.baseline_value, row.ratio, row.goal)),
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
