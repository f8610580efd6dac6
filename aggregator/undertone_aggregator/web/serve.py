"""The page's HTTP server, by uvicorn."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterable

from undertone_aggregator.base.open_files import heed
from undertone_aggregator.base.packages import PAGE, check_packages
from undertone_aggregator.settings.broker_options import is_loopback
from undertone_aggregator.settings.options import family_of
from undertone_aggregator.web.login import Logins
from undertone_aggregator.web.site import Site
from undertone_shared.errors import Invalid

# With this many connections, further requests are answered with status 503.
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
    say: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Serve the page until SIGTERM or Ctrl-C. ``ready`` gets the page's address once the socket is bound.

    Every link on the page is relative, so a reverse proxy may add any path prefix if it removes it again. ``names``:
    host names that the page accepts in addition to addresses and this machine's own names. ``say`` gets the sentence
    that no open file is left for a connection.

    Raises Invalid without the extra ``web``, for an address that cannot be used, and for actions on an address that
    other machines reach, unless ``remote_actions`` allows that.
    """
    if logins is not None and not (remote_actions or is_loopback(host)):
        raise Invalid(
            f"actions are on and the page listens on {host}, expected a loopback address, or undertone web "
            "with --remote-actions"
        )
    check_packages(PAGE)
    import uvicorn

    from undertone_aggregator.web.app import make_app

    options = uvicorn.Config(
        make_app(site, logins, [host, *names]),
        log_level="warning",
        # The page uses no WebSocket.
        ws="none",
        limit_concurrency=_LARGEST_CONCURRENCY,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    with _bound(host, port) as listening:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")

        async def serve() -> None:
            heed(asyncio.get_running_loop(), say)
            await uvicorn.Server(options).serve(sockets=[listening])

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve())


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family_of((host, port)))
    except OSError as wrong:
        # Python's own message contains the address, so only the reason is taken from it.
        why = os.strerror(wrong.errno) if wrong.errno and wrong.errno > 0 else str(wrong)
        shown = f"[{host}]" if ":" in host else host
        raise Invalid(f"the page cannot listen at {shown}:{port}: {why}") from None
