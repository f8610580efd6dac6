"""The page on a socket, by uvicorn."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable

from undertone_aggregator.base.packages import PAGE, check_packages
from undertone_aggregator.settings.broker_options import is_loopback
from undertone_aggregator.settings.options import family_of
from undertone_aggregator.web.login import Logins
from undertone_aggregator.web.site import Site
from undertone_shared.errors import Invalid

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
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C. ``ready`` gets the page's address once it is bound.

    Every address on the page is relative: a reverse proxy may put any path before it, which it then takes off.
    ``names``: host names that the page answers to beside addresses and this machine's own.

    Raises Invalid without the extra ``web``, for an address that cannot be used, and for actions on an address that
    other machines reach, unless ``remote_actions`` says that this is meant.
    """
    if logins is not None and not (remote_actions or is_loopback(host)):
        raise Invalid(f"actions are on and the page listens on {host}, expected a loopback address")
    check_packages(PAGE)
    import uvicorn

    from undertone_aggregator.web.app import make_app

    options = uvicorn.Config(
        make_app(site, logins, [host, *names]),
        log_level="warning",
        limit_concurrency=_LARGEST_CONCURRENCY,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    with _bound(host, port) as listening:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(options).run(sockets=[listening])


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family_of((host, port)))
    except OSError as wrong:
        # Python adds the address to its sentence.
        why = os.strerror(wrong.errno) if wrong.errno and wrong.errno > 0 else str(wrong)
        raise Invalid(f"--listen is {host}:{port}, which cannot be used: {why}") from None
