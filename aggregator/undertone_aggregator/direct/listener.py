"""Where devices connect: address, TLS, event loop."""

import asyncio
import asyncio.sslproto
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from undertone_shared.errors import Invalid

_HANDSHAKE_SECONDS = 10.0
# A returning fleet waits here, and not for the repetition of its SYN.
_BACKLOG = 4096
# asyncio reads TLS into 256 KB for each connection; a record has no more than this.
_TLS_BYTES = 1 << 14


@dataclass(frozen=True)
class Listener:
    """Where devices connect. Without ``certificate`` and ``key`` there is no TLS: then only on loopback.

    ``authority``: devices may show certificates that it signed.
    """

    host: str = "127.0.0.1"
    port: int = 1883
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def context(self) -> ssl.SSLContext | None:
        """TLS 1.2 or newer. Raises Invalid for a certificate or key that cannot be used."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Read certificate, key and authority, for every handshake from now on. Raises Invalid."""
        try:
            context.load_cert_chain(str(self.certificate), None if self.key is None else str(self.key))
        except (OSError, ssl.SSLError) as wrong:
            raise Invalid(f"the certificate {self.certificate} cannot be used: {wrong}") from None
        if self.authority is not None:
            try:
                context.load_verify_locations(str(self.authority))
            except (OSError, ssl.SSLError) as wrong:
                raise Invalid(f"the authority {self.authority} cannot be used: {wrong}") from None
            # A device with a password shows none.
            context.verify_mode = ssl.CERT_OPTIONAL

    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> asyncio.AbstractServer:
        """Listen. Raises OSError."""
        options: dict[str, Any] = {}
        if context is not None:
            options = {"ssl": context, "ssl_handshake_timeout": _HANDSHAKE_SECONDS}
            asyncio.sslproto.SSLProtocol.max_size = _TLS_BYTES
        return await loop.create_server(factory, self.host, self.port, backlog=_BACKLOG, reuse_address=True, **options)


def shown_certificate(transport: asyncio.BaseTransport) -> tuple[str, bytes] | None:
    """(common name, DER) of the verified certificate that the other side has shown, None without one."""
    tls = transport.get_extra_info("ssl_object")
    subject = (tls.getpeercert() or {}).get("subject") if tls is not None else None
    if subject is None:
        return None
    names = {field: text for part in subject for field, text in part}
    return names.get("commonName", ""), tls.getpeercert(binary_form=True)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it is installed: it takes a quarter less of the processor."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    # Without uvloop there are no types of it.
    return cast(asyncio.AbstractEventLoop, uvloop.new_event_loop())
