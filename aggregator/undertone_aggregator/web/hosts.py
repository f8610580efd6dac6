"""Host names under which the page may be requested: protection against DNS rebinding.

A web site can have its own name resolve to 127.0.0.1, or to an address of the local network, and then read the answers
of a server there as if they were its own. Such a request still has the site's name in its Host header. A page therefore
accepts only addresses, the machine's own names, and names that its operator lists.
"""

import ipaddress
import socket
from collections.abc import Iterable
from http import HTTPStatus

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_LONGEST_SHOWN = 60


def name_in(host: str) -> str:
    """Return the name or address in a Host header, without port, brackets and final dot, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def own_names() -> frozenset[str]:
    """Return this machine's names, which no other site can have: ``localhost``, its host name, and that name in
    mDNS.
    """
    name = name_in(socket.gethostname())
    return frozenset({"localhost", name, f"{name.partition('.')[0]}.local"})


class KnownHosts:
    """Middleware that refuses HTTP requests for unknown host names with status 421 and a sentence.

    ``names``: additional names of this page, for example those that a reverse proxy passes on. An address is always
    accepted, because DNS rebinding needs a name. A request without a Host header is accepted, because no browser sends
    one.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = own_names() | {name_in(name) for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
            unknown = [host for host in hosts if not self.knows(host)]
            if unknown:
                sentence = (
                    f"the page was asked for as {unknown[0][:_LONGEST_SHOWN]!r}, which is none of its names:"
                    " list that name in page_names of [server], or in --name of undertone web, if it is yours"
                )
                await JSONResponse({"error": sentence}, status_code=HTTPStatus.MISDIRECTED_REQUEST)(
                    scope, receive, send
                )
                return
        await self._app(scope, receive, send)

    def knows(self, host: str) -> bool:
        """Return True if the page accepts this Host header."""
        name = name_in(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True
