"""The page on a socket, by uvicorn."""

from collections.abc import Iterable

from undertone_aggregator.broker_options import is_loopback
from undertone_aggregator.web.login import Logins
from undertone_aggregator.web.site import Site
from undertone_shared.errors import Invalid

MISSING = "the page needs Starlette and uvicorn: pip install 'undertone-ldp[web]'"
# Requests that wait for a connection beyond these are refused; a slow client holds one alone.
_LARGEST_CONCURRENCY = 4096
_KEEP_ALIVE_SECONDS = 30


def serve_page(
    site: Site,
    host: str,
    port: int,
    *,
    logins: Logins | None = None,
    remote_actions: bool = False,
    names: Iterable[str] = (),
) -> None:
    """Serve until SIGTERM or Ctrl-C. Every address on the page is relative: a reverse proxy may put any
    path before it, which it then takes off. ``names``: host names that the page answers to beside addresses and this
    machine's own.

    Raises Invalid without the extra ``web``, and for actions on an address that other machines reach, unless
    ``remote_actions`` says that this is meant.
    """
    if logins is not None and not (remote_actions or is_loopback(host)):
        raise Invalid(f"actions are on and the page listens on {host}, expected a loopback address")
    try:
        import uvicorn

        from undertone_aggregator.web.app import make_app
    except ModuleNotFoundError:
        raise Invalid(MISSING) from None
    uvicorn.run(
        make_app(site, logins, [host, *names]),
        host=host,
        port=port,
        log_level="warning",
        limit_concurrency=_LARGEST_CONCURRENCY,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
