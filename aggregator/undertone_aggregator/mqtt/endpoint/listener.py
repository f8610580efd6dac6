"""The address and the TLS settings of the socket to which devices connect."""

import errno
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from undertone_shared.errors import Invalid

# Length of the accept queue. If a whole fleet reconnects at once, its connections wait here, so that no device has to
# repeat its SYN.
_BACKLOG = 4096


@dataclass(frozen=True)
class Listener:
    """Address and TLS files of the endpoint.

    Without ``certificate`` and ``key`` there is no TLS, which is allowed only on loopback. ``websocket``: (host, port)
    of MQTT over WebSocket, None without it. ``authority``: the CA certificate; devices may authenticate by certificates
    that it signed.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    websocket: tuple[str, int] | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return the endpoint's context for TLS 1.2 or newer; None without a certificate.

        Raises Invalid for an unusable certificate, key or authority.
        """
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A device logs in rarely, and always with a full handshake, so it has no use for session tickets.
        context.num_tickets = 0
        try:
            context.load_cert_chain(str(self.certificate), None if self.key is None else str(self.key))
        except (OSError, ssl.SSLError) as wrong:
            key = "" if self.key is None else f" with the key {self.key}"
            raise Invalid(f"the certificate {self.certificate}{key} cannot be used: {wrong}") from None
        if self.authority is not None:
            try:
                context.load_verify_locations(str(self.authority))
            except (OSError, ssl.SSLError) as wrong:
                raise Invalid(f"the authority {self.authority} cannot be used: {wrong}") from None
            # Client certificates are optional, because a device with a password shows none.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def check(self) -> None:
        """Raise Invalid if an address cannot be used. No socket stays open."""
        for listening in [each for opened in self.open() for each in opened]:
            listening.close()

    def open(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """Return listening sockets for MQTT and for WebSocket, one for each address of their hosts.

        Raises Invalid if an address cannot be used.
        """
        opened = _listen(self.host, self.port)
        if self.websocket is None:
            return opened, []
        try:
            return opened, _listen(*self.websocket)
        except Invalid:
            for listening in opened:
                listening.close()
            raise


def _listen(host: str, port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for family, _, _, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            listening = socket.create_server(cast(tuple[str, int], where), family=family, backlog=_BACKLOG)
            opened.append(listening)
            listening.setblocking(False)
    except OSError as wrong:
        for listening in opened:
            listening.close()
        if wrong.errno == errno.EADDRINUSE:
            raise Invalid(
                f"port {port} of {host} is in use already: end what uses it, or choose another port in [broker]"
            ) from None
        raise Invalid(f"the endpoint cannot listen on {host}:{port}: {wrong.strerror or wrong}") from None
    return opened
