"""``undertone recount``: compare landed files with a store."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undertone.stores import STORE_HELP, WhichCampaign
from undertone_aggregator.base.plural import many

_MOST_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("recount")(recount)


def recount(
    folder: Annotated[
        Path, typer.Argument(help="The folder that [landing] names; with several machines, their shared folder.")
    ],
    store: Annotated[str, typer.Option(help=STORE_HELP)],
    campaign: WhichCampaign = None,
    first: Annotated[int, typer.Option(min=0, help="Number of the first slot.")] = 0,
    last: Annotated[int, typer.Option(min=0, help="Number of the last slot.")] = 0xFFFFFFFF,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count landed files again on this machine and compare with a store; exit code 1 if a histogram differs.

    Choose settled slots whose files still exist.
    """
    from undertone_aggregator.store.store import open_store
    from undertone_operate.examine.recount import compare, merged
    from undertone_operate.examine.recount import recount as count_again

    with open_store(store, campaign=campaign, read_only=True) as opened:
        again = count_again(folder, opened.epochs(), first, last)
        differing = compare(again, opened, first, last)
        landed, stored = merged(again.outcomes), merged(opened.outcomes())
    reports, histograms = again.partial.reports, len(again.partial)
    if as_json:
        print(json.dumps({"reports": reports, "histograms": histograms, "differing": [str(d) for d in differing],
                          "landed": landed, "stored": stored}, indent=2))  # fmt: skip
    else:
        print(
            f"the files hold {many(reports, 'report')} in {many(histograms, 'histogram')};"
            f" {many(len(differing), 'histogram differs', 'histograms differ')} from the store"
        )
        for difference in differing[:_MOST_SHOWN]:
            print(f"  {difference}")
        print("deliveries of all slots:")
        for outcome in sorted({*landed, *stored}):
            print(f"  {outcome}: {landed.get(outcome, 0)} in the files, {stored.get(outcome, 0)} in the store")
    if differing:
        raise typer.Exit(1)
