"""``undertone web``: the page and the HTTP API over stores."""

from typing import Annotated

import typer

from undertone_shared.errors import Invalid


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("web")(web)


def web(
    stores: Annotated[list[str], typer.Argument(help="Stores: files, or postgresql://user@host/database.")],
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT to listen on.")] = "127.0.0.1:8080",
) -> None:
    """Show aggregate series on a page, live, and serve them by HTTP. Reading never disturbs a running aggregator."""
    from undertone_aggregator.web.serve import serve_page
    from undertone_aggregator.web.site import StoreSite, named

    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Invalid(f"--listen is {listen!r}, expected ADDRESS:PORT such as 127.0.0.1:8080")
    site = StoreSite(named(stores))
    try:
        serve_page(site, host.strip("[]"), int(port))
    finally:
        site.close()
