"""The HTTPS server at which people join, by uvicorn: TLS from the server's certificate, limits on connections."""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.open_files import FILES, heed
from undertone_aggregator.mqtt.endpoint.shares import network_of
from undertone_aggregator.server.folder import SERVER, Home
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.options import family_of, split_address
from undertone_operate.join.app import make_app
from undertone_operate.join.joining import Joining, websocket_address
from undertone_operate.join.pages import PLAIN, JoinPages, phone_pages
from undertone_operate.join.tls import JoinTls
from undertone_shared.errors import Invalid

# Connections beyond this number are refused. One network may have a quarter of them.
_MOST_CONNECTIONS = 4096
_MOST_OF_NETWORK = _MOST_CONNECTIONS // 4
# Seconds for the first request's header, and for a whole connection. So slow clients hold no connection for long.
_HEADER_SECONDS = 15.0
_CONNECTION_SECONDS = 300.0
_KEEP_ALIVE_SECONDS = 15
_WATCH_SECONDS = 1.0


def serve_join(home: Home, journal: Journal, ready: Callable[[str], None] = lambda address: None) -> None:
    """Serve the listener of [join] until SIGTERM or Ctrl-C. ``ready`` gets its address once the socket is bound.

    Raises Invalid without [join] listen, without a usable certificate, and for an address that cannot be used.
    """
    options, broker = home.join, home.broker_options
    if options.listen is None:
        raise Invalid(
            f"listen is missing in [join] of {home.folder / SERVER}, expected the ADDRESS:PORT at which people join"
        )
    host, port = split_address("join.listen", options.listen)
    tls = None if options.insecure else JoinTls(home.folder, options, broker)
    app = make_app(
        Joining(home),
        join_pages(broker, journal),
        authority=lambda: None if tls is None else tls.authority,
        say=lambda sentence: journal.say_once("join", sentence),
    )
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
        server_header=False,
        h11_max_incomplete_event_size=8192,
    )
    config.load()
    if tls is not None:
        config.ssl = tls.context
    with _bound(host, port) as listening:
        scheme = "http" if tls is None else "https"
        ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}")

        async def serve() -> None:
            heed(asyncio.get_running_loop(), lambda sentence: journal.say_once(FILES, sentence))
            watch = asyncio.create_task(_renew(tls, journal))
            await uvicorn.Server(config).serve(sockets=[listening])
            watch.cancel()

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve())


def join_pages(broker: BrokerOptions, journal: Journal) -> JoinPages:
    """Return the phone's app, or a page that explains what a code is.

    The result is the page if this server has no address for phones, or no way in which phones can log in: a phone with
    the app would use up the code of its link, and could not report. It is the page as well if this installation lacks
    the app.
    """
    try:
        if not broker.source.broker and broker.ca_file is not None:
            raise Invalid("devices log in with certificates ([broker] ca_file), which a browser cannot do")
        websocket = websocket_address(broker)
        if websocket is None:
            option = "websocket_url" if broker.source.broker else "websocket"
            raise Invalid(f"[broker] has no {option}, which is the address of MQTT over WebSocket")
        return phone_pages(websocket)
    except Invalid as wrong:
        journal.say("join", f"phones cannot join: {wrong}")
        return PLAIN


class Listening(socket.socket):
    """A listening socket that closes connections beyond its limits at once, before TLS costs anything.

    ``most``: largest number of connections in all, and of one network.
    """

    most = (_MOST_CONNECTIONS, _MOST_OF_NETWORK)

    def __init__(self, plain: socket.socket) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._of_network: Counter[str] = Counter()

    @property
    def counted(self) -> int:
        """Number of connections that are open."""
        return self._of_network.total()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If there are too many, raises ConnectionAbortedError, which the event loop ignores."""
        plain, address = super().accept()
        network = network_of(address[0])
        in_all, of_one = self.most
        if self._of_network.total() >= in_all or self._of_network[network] >= of_one:
            plain.close()
            raise ConnectionAbortedError(f"too many connections: that of {address[0]} is closed")
        self._of_network[network] += 1
        return _Counted(plain, lambda: self._ended(network)), address

    def _ended(self, network: str) -> None:
        self._of_network[network] -= 1
        if not self._of_network[network]:
            del self._of_network[network]


class _Counted(socket.socket):
    """A connection that calls ``ended`` once, when it is closed."""

    def __init__(self, plain: socket.socket, ended: Callable[[], None]) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._on_close: Callable[[], None] | None = ended

    def close(self) -> None:
        super().close()
        ended, self._on_close = self._on_close, None
        if ended is not None:
            ended()


class _Protocol(H11Protocol):
    """HTTP on one connection, which ends if it lasts too long."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._ends = [
            self.loop.call_later(_HEADER_SECONDS, self._end_without_request),
            self.loop.call_later(_CONNECTION_SECONDS, transport.abort),
        ]

    def connection_lost(self, exc: Exception | None) -> None:
        for end in self._ends:
            end.cancel()
        super().connection_lost(exc)

    def _end_without_request(self) -> None:
        cycle: Any = self.cycle
        if cycle is None:
            self.transport.abort()


async def _renew(tls: JoinTls | None, journal: Journal) -> None:
    """Check each second whether the certificate was renewed, and use the new one."""
    while tls is not None:
        await asyncio.sleep(_WATCH_SECONDS)
        try:
            if tls.renew():
                journal.say("join", "the listener at which people join has read its renewed certificate")
        except Invalid as wrong:
            journal.say("join", f"the listener at which people join keeps its old certificate: {wrong}")


def _bound(host: str, port: int) -> socket.socket:
    try:
        plain = socket.create_server((host, port), family=family_of((host, port)), backlog=_MOST_CONNECTIONS)
        return Listening(plain)
    except OSError as wrong:
        why = os.strerror(wrong.errno) if wrong.errno and wrong.errno > 0 else str(wrong)
        raise Invalid(f"join.listen is {host}:{port}, which cannot be used: {why}") from None
