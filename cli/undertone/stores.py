"""Options that name a store, and one of the campaigns in it."""

from typing import Annotated

import typer

STORE_HELP = "The store: a file, or postgresql://user@host/database."
StoreUrl = Annotated[str, typer.Argument(help=STORE_HELP)]
WhichCampaign = Annotated[str | None, typer.Option(help="The campaign; needed if the database holds several.")]
