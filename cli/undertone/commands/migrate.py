"""``undertone migrate``: bring stores of earlier versions up to date."""

from pathlib import Path
from typing import Annotated

import typer

from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("migrate")(migrate)


def migrate(
    place: Annotated[
        str, typer.Argument(help="A store, or a server's folder with all its stores; stop the server first.")
    ],
) -> None:
    """Bring stores of an earlier version up to date, so that they can be read without starting a server."""
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.store.store import NoStore, open_store
    from undertone_aggregator.store.store_address import store_address

    stores = {place: place}
    if Path(place).is_dir():
        stores = Home(Path(place)).stores()
    for name, url in stores.items():
        file = store_address(url).file
        if file is not None and not file.is_file():
            raise NoStore(f"there is no store {file}")
        try:
            with open_store(url, campaign=name if url != place else None) as store:
                print(f"{store.url}: up to date, {store.epoch_count()} epochs")
        except NoStore:
            print(f"{url}: no campaign {name} in it")
    if not stores:
        raise Invalid(f"{place} holds no stores")
