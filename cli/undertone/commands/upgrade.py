"""``undertone upgrade``: bring stores of earlier versions up to date, or say what that would change."""

from pathlib import Path
from typing import Annotated

import typer

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("upgrade")(upgrade)


def upgrade(
    place: Annotated[
        str, typer.Argument(help="A store, or a server's folder with all its stores; stop the server first.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: say what would change. Exit code 1 if anything would.")
    ] = False,
) -> None:
    """Bring stores of an earlier version up to date; a copy of each old file stays beside it.

    Of a PostgreSQL database there is no copy: make one with pg_dump first. A server does the same when it starts. A
    store of a later version is refused.
    """
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.store.store import NoStore, open_store
    from undertone_aggregator.store.store_address import store_address

    home = Home(Path(place)) if Path(place).is_dir() else None
    stores = {place: place} if home is None else home.stores()
    if not stores and home is not None and not check:
        raise Invalid(f"{place} holds no stores")
    for url in stores.values():
        file = store_address(url).file
        if file is not None and not file.is_file():
            raise NoStore(f"there is no store {file}")
        # SQLite takes an empty file for a new database, so a mistyped name would become a store.
        if file is not None and home is None and not file.stat().st_size:
            raise NoStore(f"{file} is empty, expected a store")
    if check:
        from undertone_operate.backup.upgrade import what_would_change

        sentences = what_would_change(home, stores)
        print("\n".join(sentences) or "nothing would change")
        if sentences:
            raise typer.Exit(1)
        return
    for name, url in stores.items():
        try:
            with open_store(url, campaign=name if home is not None else None) as store:
                print(f"{store.url}: up to date, {many(store.epoch_count(), 'epoch')}")
        except NoStore:
            print(f"{url}: the store holds no campaign{'' if home is None else f' {name}'}")
