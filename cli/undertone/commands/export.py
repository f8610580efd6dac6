"""``undertone export``: everything of a campaign that may be published, in one folder."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from undertone.stores import StoreUrl, WhichCampaign
from undertone_aggregator.base.plural import many
from undertone_aggregator.estimate.formats import FORMATS, format_of
from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("export")(export)


def export(
    store: StoreUrl,
    folder: Annotated[Path, typer.Argument(help="A new folder for the files.")],
    campaign: WhichCampaign = None,
    form: Annotated[str, typer.Option("--format", help=f"Format of the series: {', '.join(FORMATS)}.")] = "csv",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write every group's settled series, raw and filtered, with the epochs, the history of θ and the guarantee.

    The rows are sorted by group, and within a group by slot.

    A slot that nobody reported, or whose number may not be published, becomes a row of kind absent without a number.
    The server may run meanwhile.
    """
    from undertone_aggregator.campaign.results import open_public
    from undertone_aggregator.estimate.estimates import Estimate, Estimates
    from undertone_aggregator.estimate.export import document

    writer = format_of("--format", form)
    if folder.exists():
        raise Invalid(f"{folder} exists already, and an export replaces nothing: name a new folder")
    with open_public(store, campaign) as results:
        facts = document(results, Estimates.of([]))
        folder.mkdir(parents=True)
        series, about = folder / f"series.{writer.suffix}", folder / "campaign.json"
        written = 0

        def groups() -> Iterator[Estimates]:
            nonlocal written
            for rows in results.each_group(groups=None, filtered=True, settled=True, absent=True):
                written += len(rows)
                yield rows

        try:
            with series.open("wb") as file:
                file.writelines(writer.pieces(results, groups(), Estimate))
        except BaseException:
            # An unfinished export must not be taken for a whole one.
            shutil.rmtree(folder)
            raise
    del facts["slots"]
    about.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    facts = {"series": str(series), "campaign": str(about), "rows": written}
    print(json.dumps(facts) if as_json else f"{series}: {many(written, 'row')}; {about}: epochs, θ, the guarantee")
