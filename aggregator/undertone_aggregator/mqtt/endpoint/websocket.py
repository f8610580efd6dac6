"""MQTT over WebSocket (RFC 6455): MQTT's bytes in binary frames, for phones and for networks that let only HTTPS pass.

A `WebSocket` has the same methods as the `Stream` of a socket, so that a `Connection` treats both alike. As MQTT 3.1.1
(section 6) allows, a frame may hold a part of a packet or several packets. The library websockets parses HTTP and
frames.

Any website can open a WebSocket to any server; the browser names the website in ``Origin``. Without a certificate,
every origin is allowed, because a website can do nothing without a user's MQTT password. A client certificate is
different, because a browser shows it for every website. With a certificate, the origin must therefore be this server's
own address, or absent, as in programs other than browsers.
"""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from websockets.exceptions import PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from undertone_aggregator.mqtt.addresses import WEBSOCKET_PATH
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.stream import Stream, StreamReader

SUBPROTOCOL = Subprotocol("mqtt")
_END_OF_REQUEST = b"\r\n\r\n"
# The ports that Origin and Host leave out.
_USUAL_PORTS = {"https": 443, "http": 80}
# Close codes (RFC 6455, section 7.4.1).
_NORMAL, _NOT_BINARY, _POLICY = 1000, 1003, 1008
# Exceptions of the library's parser -> the reason under which the end of the connection is counted.
_REASONS = {type(None): "", PayloadTooBig: "oversized"}
# The library would log every connection.
_LOG = logging.getLogger("undertone.websocket")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


class PacketReader(StreamReader, Protocol):
    """The receiver of MQTT's bytes. ``user``: "" until it has authenticated."""

    user: str


class WebSocket:
    """A WebSocket on a stream, from the client's HTTP request on. ``now``: seconds of a monotonic clock.

    The limits of a `Connection` hold for the bytes in frames. ``limits.request_bytes`` limits the HTTP request, and
    after it the frames before authentication. ``limits.idle_frames`` is the size of a token bucket of frames without
    MQTT's bytes, such as pings. One token returns each second.
    """

    __slots__ = ("_early", "_filled_at", "_idle", "_limits", "_now", "_protocol", "_request", "_stream", "reader")

    websocket = True

    def __init__(self, stream: Stream, limits: Limits, now: Callable[[], float]) -> None:
        self._stream = stream
        self._limits = limits
        self._now = now
        self._protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=limits.frame_bytes, logger=_LOG)
        # The first bytes of the HTTP request, until it is complete; later None.
        self._request: bytes | None = b""
        # Number of bytes after the request that came before the client authenticated.
        self._early = 0
        self._idle = float(limits.idle_frames)
        self._filled_at = now()
        self.reader: PacketReader
        stream.reader = self

    # --- Methods that the connection calls.

    @property
    def closed(self) -> bool:
        """True if nothing can be received or sent any more."""
        return self._stream.closed

    @property
    def pending(self) -> bool:
        """True if sent bytes wait for the other side to take them."""
        return self._stream.pending

    @property
    def unread(self) -> float:
        """The largest number of sent bytes that may wait for the other side to read them."""
        return self._stream.unread

    @unread.setter
    def unread(self, most: float) -> None:
        self._stream.unread = most

    @property
    def certificate(self) -> tuple[str, bytes] | None:
        """Return (common name, DER) of the verified certificate of the other side, None if it has shown none."""
        return self._stream.certificate

    def write(self, data: bytes) -> None:
        """Send bytes in one frame, unless the WebSocket is closed."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()

    def pause(self) -> None:
        """Stop reading."""
        self._stream.pause()

    def resume(self) -> None:
        """Continue reading."""
        self._stream.resume()

    def close(self) -> None:
        """Close the WebSocket when all pending bytes are sent; nothing more is read."""
        self._say_goodbye(_NORMAL)
        self._stream.close()

    def end(self, reason: str = "") -> None:
        """Close the WebSocket at once. The other side gets the reason if it has read everything else."""
        if not self._stream.pending:
            self._say_goodbye(_POLICY, reason)
        self._stream.end(reason)

    # --- Methods that the stream calls.

    def received(self, data: bytes) -> None:
        """Handle the received part of the HTTP request, and then of frames."""
        if self._request is not None:
            data = self._upgrade(self._request + data)
        if data and not self._stream.closed:
            self._read_frames(data)

    def ended(self, reason: str) -> None:
        """Tell the connection that the stream is closed."""
        self.reader.ended(reason)

    def drained(self) -> None:
        """Tell the connection that the other side has taken all bytes."""
        self.reader.drained()

    # --- Internal methods.

    def _upgrade(self, data: bytes) -> bytes:
        """Answer the HTTP request when it is complete; return the bytes after it."""
        end = data.find(_END_OF_REQUEST) + len(_END_OF_REQUEST)
        complete = end >= len(_END_OF_REQUEST)
        protocol = self._protocol
        if (end if complete else len(data)) > self._limits.request_bytes:
            too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            protocol.send_response(protocol.reject(too_large, "The request is too large.\n"))
        elif complete:
            protocol.receive_data(data[:end])
            for request in protocol.events_received():
                assert isinstance(request, Request)
                protocol.send_response(self._response(request))
        else:
            self._request = data
            return b""
        self._request = None
        self._flush()
        if protocol.state is not State.OPEN:
            # The request was refused, or it was not HTTP.
            self._stream.close("http")
        return data[end:]

    def _response(self, request: Request) -> Response:
        """Return the answer to an HTTP request: status 101, or a refusal."""
        if request.path.partition("?")[0] != WEBSOCKET_PATH:
            return self._protocol.reject(HTTPStatus.NOT_FOUND, f"MQTT over WebSocket is at {WEBSOCKET_PATH}.\n")
        response = self._protocol.accept(request)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS and self._stream.certificate is not None:
            try:
                origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
            except LookupError:
                # One of the two headers is in the request twice.
                origin = host = ""
            if origin is not None and not same_site(origin, host):
                sentence = f"A website at {origin} may not use a browser's certificate.\n"
                return self._protocol.reject(HTTPStatus.FORBIDDEN, sentence)
        return response

    def _read_frames(self, data: bytes) -> None:
        """Pass on the bytes of MQTT in frames, answer pings, and notice the end of the WebSocket."""
        protocol = self._protocol
        protocol.receive_data(data)
        parts, idle = [], 0
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode is Opcode.TEXT:
                protocol.fail(_NOT_BINARY, "expected binary frames")
                self._flush()
                self._stream.close("not_binary")
                return
            if frame.opcode in (Opcode.BINARY, Opcode.CONT) and frame.data:
                parts.append(frame.data)
            else:
                idle += 1
        self._flush()
        if parts:
            self.reader.received(b"".join(parts))
        if not self.reader.user:
            self._early += len(data)
        if self._early > self._limits.request_bytes:
            self.end("oversized")
        elif idle and not self._may_idle(idle):
            self.end("idle_frames")
        elif protocol.state is not State.OPEN:
            self._stream.close(_REASONS.get(type(protocol.parser_exc), "malformed"))

    def _may_idle(self, frames: int) -> bool:
        """Take tokens for frames without MQTT's bytes; return False if there are too few."""
        now = self._now()
        self._idle = min(self._limits.idle_frames, self._idle + now - self._filled_at) - frames
        self._filled_at = now
        return self._idle >= 0

    def _say_goodbye(self, code: int, reason: str = "") -> None:
        """Send a close frame, if the WebSocket is open."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
            self._flush()

    def _flush(self) -> None:
        if data := b"".join(self._protocol.data_to_send()):
            self._stream.write(data)


def same_site(origin: str, host: str) -> bool:
    """Return True if an ``Origin`` is the address that the client asked for in ``Host``."""
    try:
        site, asked = urlsplit(origin), urlsplit(f"//{host}")
        usual = _USUAL_PORTS.get(site.scheme)
        return bool(host) and (site.hostname, site.port or usual) == (asked.hostname, asked.port or usual)
    except ValueError:
        return False
