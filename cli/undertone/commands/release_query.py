"""``undertone release query``: range sums and quantiles of a release, with its guarantee."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from undertone_shared.errors import Invalid


def query(
    path: Annotated[Path, typer.Argument(metavar="RELEASE", help="The file that a release has written.")],
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range", help="FIRST:END: print the sum of values FIRST to END - 1; the first value has number 0."
        ),
    ] = None,
    quantiles: Annotated[
        list[float] | None,
        typer.Option(
            "--quantile", help="Print the value that this share of the values does not exceed: 0.5 for the median."
        ),
    ] = None,
    shares: Annotated[
        list[int] | None,
        typer.Option(
            "--share",
            help="Print the share of values up to this one; in a release for points, the share of values equal to it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Answer questions from a release: they cost no privacy."""
    from undertone_aggregator.estimate.estimates import Z
    from undertone_central.release import open_release

    release = open_release(path)
    if not ranges and not quantiles and not shares:
        raise Invalid("a query needs a question: --range, --quantile or --share")
    answers: list[dict[str, Any]] = []
    for text in ranges or []:
        first, _, end = text.partition(":")
        if not (first.isdecimal() and end.isdecimal() and len(text) < 40):
            raise Invalid(f"--range is {text!r}, expected FIRST:END, such as 0:48")
        answer = release.sum(int(first), int(end))
        answers.append({"range": text, "sum": answer.value, "standard_error": answer.standard_error})
    if quantiles:
        pairs = zip(quantiles, release.quantiles(quantiles), strict=True)
        answers += [{"quantile": share, **found._asdict()} for share, found in pairs]
    for value in shares or []:
        share, error = release.share(value)
        answers.append({"share of": value, "share": share, "standard_error": error})
    if as_json:
        print(json.dumps({"guarantee": release.guarantee, "answers": answers}, ensure_ascii=False))
        return
    for row in answers:
        if "range" in row:
            print(f"sum over {row['range']}: {row['sum']:.0f} ± {Z * row['standard_error']:.1f} (95 %)")
        elif "share" in row:
            which = "equal to" if release.parameters["concepts"] == "points" else "up to"
            half = f"{Z * row['standard_error']:.4f}"
            print(f"share of values {which} {row['share of']}: {row['share']:.4f} ± {half} (95 %)")
        else:
            print(f"quantile {row['quantile']:g}: {row['value']}, between {row['low']} and {row['high']} (95 %)")
    print(release.guarantee)
