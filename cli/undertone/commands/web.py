"""``undertone web``: the page and the HTTP API."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.applies import refuse
from undertone.long_running import end_with_input
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.web.site import HomeSite


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("web")(web)


def web(
    context: typer.Context,
    stores: Annotated[
        list[str] | None, typer.Argument(help="Stores, each a file or postgresql://user@host/database.")
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="A server's folder with all its campaigns, instead of stores.")
    ] = None,
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT to listen on.")] = "127.0.0.1:8080",
    token: Annotated[
        Path | None,
        typer.Option(
            help="With --home: a file of mode 0600 with the token that permits pause, resume, retire and revoke."
        ),
    ] = None,
    remote_actions: Annotated[
        bool,
        typer.Option(
            "--remote-actions", help="Accept the actions of --token from other machines, too; use a proxy with TLS."
        ),
    ] = False,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="Another host name of the page; addresses and this machine's names always work."),
    ] = None,
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
) -> None:
    """Show estimates on a live page and serve them over HTTP. A running server is not disturbed."""
    from undertone_aggregator.base.log import Journal
    from undertone_aggregator.base.open_files import FILES, raise_limit
    from undertone_aggregator.base.packages import chart_warning
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.options import host_name, split_address
    from undertone_aggregator.web.login import Logins, read_token
    from undertone_aggregator.web.serve import serve_page
    from undertone_aggregator.web.site import StoreSite, named

    raise_limit()
    journal = Journal()
    host, port = split_address("--listen", listen)
    page_names = [host_name("--name", name) for name in names or ()]
    if stores and home is not None:
        raise Invalid("stores cannot be given with --home, which shows all campaigns of its folder")
    if not stores and home is None:
        raise Invalid("campaigns are missing, expected stores or --home DIR")
    if home is None:
        refuse(context, ["token"], "without --home, whose campaigns it lets people change")
    if token is None:
        refuse(context, ["remote_actions"], "without --token, which permits actions")
    logins = None if token is None else Logins(read_token(token))
    site = StoreSite(named(stores or ())) if home is None else _home_site(Home(home), acting=logins is not None)
    if warning := chart_warning():
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    if attached:
        end_with_input()

    def ready(address: str) -> None:
        # If `undertone serve` runs this page, it prints the address itself.
        if not attached:
            print(f"the page is at {address}", flush=True)

    def say(sentence: str) -> None:
        journal.say_once(FILES, sentence)

    try:
        serve_page(
            site, host, port, logins=logins, remote_actions=remote_actions, names=page_names, ready=ready, say=say
        )
    finally:
        site.close()


def _home_site(home: "Home", *, acting: bool) -> "HomeSite":
    from undertone_aggregator.server.lifecycle import actions
    from undertone_aggregator.web.site import HomeSite
    from undertone_operate.fleet.agreements import newest_words
    from undertone_operate.fleet.devices import revoke_at_home

    words = partial(newest_words, home)
    return HomeSite(home, {**actions(home), "revoke": partial(revoke_at_home, home)} if acting else None, words)
