"""An accepted socket that never blocks, plain or TLS: passes received bytes to its reader and buffers sent ones."""

import contextlib
import selectors
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

# Bytes of one receive call. A TLS record is never larger, so no decrypted bytes stay where the selector cannot see
# them.
_RECEIVE_BYTES = 1 << 14
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class StreamReader(Protocol):
    """The receiver of a stream's events."""

    def received(self, data: bytes) -> None:
        """Handle received bytes."""

    def ended(self, reason: str) -> None:
        """Handle the end of the stream. ``reason`` is counted unless it is "". Called once."""

    def drained(self) -> None:
        """Note that the other side has taken all sent bytes that had to wait."""


class Stream:
    """A non-blocking socket that one thread at a time uses. Call ``ready`` when the selector reports an event.

    ``unread``: largest number of sent bytes that may wait for the other side to read them. If there are more, the
    stream ends with the reason ``unread``.
    """

    __slots__ = (
        "_closing",
        "_events",
        "_out",
        "_reason",
        "_recv",
        "_selector",
        "_send",
        "_socket",
        "closed",
        "reader",
        "unread",
    )

    websocket = False

    def __init__(
        self, accepted: socket.socket, context: ssl.SSLContext | None, selector: selectors.BaseSelector, unread: int
    ) -> None:
        """Register the socket with the selector. Raises OSError if the connection has already ended."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = accepted
        self._recv: Callable[[int], bytes] = accepted.recv
        if context is not None:
            self._socket = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            self._recv = self._shake_hands
        self._send = self._socket.send
        self._selector = selector
        self.unread: float = unread
        self._out = b""
        self._closing = False
        # The reason of a close that waits until all bytes have been sent.
        self._reason = ""
        self._events = 0
        self.closed = False
        self.reader: StreamReader
        self._watch(_READ)

    @property
    def pending(self) -> bool:
        """True if sent bytes wait for the other side to take them."""
        return bool(self._out)

    @property
    def certificate(self) -> tuple[str, bytes] | None:
        """Return (common name, DER) of the verified certificate of the other side, None if it has shown none."""
        tls = self._socket
        verified: Any = tls.getpeercert() if isinstance(tls, ssl.SSLSocket) else None
        if not verified:
            return None
        assert isinstance(tls, ssl.SSLSocket)
        names = {field: text for part in verified["subject"] for field, text in part}
        return names.get("commonName", ""), tls.getpeercert(binary_form=True) or b""

    def ready(self) -> None:
        """Write what waits, and read once, as far as the socket allows. Calling this without an event does no harm."""
        if self._out:
            self._flush()
            if not self._out and not self._closing:
                self.reader.drained()
        if not self._events & _READ:
            return
        try:
            data = self._recv(_RECEIVE_BYTES)
        except _LATER:
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        try:
            self.reader.received(data)
        except Exception:
            self.end("system")
            raise

    def write(self, data: bytes) -> None:
        """Send bytes, unless the stream is closed."""
        if self._out:
            self._out += data
        elif not self._closing:
            self._out = data
            self._flush()
        if len(self._out) > self.unread:
            self.end("unread")

    def pause(self) -> None:
        """Stop reading."""
        self._watch(self._events & ~_READ)

    def resume(self) -> None:
        """Continue reading."""
        self._watch(self._events | _READ)

    def close(self, reason: str = "") -> None:
        """Close the stream when all pending bytes are sent; nothing more is read."""
        if not self._closing:
            self._closing, self._reason = True, reason
        if self._out:
            self.pause()
        else:
            self.end()

    def end(self, reason: str = "") -> None:
        """Close the stream at once."""
        if not self.closed:
            reason = self._reason if self._closing else reason
            self.closed = self._closing = True
            self._out = b""
            self._watch(0)
            # Report the end before the socket closes, so that it is counted before the other side can notice it.
            self.reader.ended(reason)
            if isinstance(self._socket, ssl.SSLSocket):
                # Sends TLS's close_notify without waiting for an answer.
                with contextlib.suppress(OSError, ValueError):
                    self._socket.unwrap()
            self._socket.close()

    def _flush(self) -> None:
        try:
            self._out = self._out[self._send(self._out) :]
        except _LATER:
            pass
        except OSError:
            self.end()
            return
        if not self._out and self._closing:
            self.end()
        elif self._out or self._events & _WRITE:
            self._watch(self._events & _READ | (_WRITE if self._out else 0))

    def _watch(self, events: int) -> None:
        if events == self._events:
            return
        if not self._events:
            self._selector.register(self._socket, events, self.ready)
        elif events:
            self._selector.modify(self._socket, events, self.ready)
        else:
            self._selector.unregister(self._socket)
        self._events = events

    def _shake_hands(self, size: int) -> bytes:
        """Do a step of the TLS handshake. Until the handshake is complete, this is called instead of ``recv``.

        Raises OSError if the handshake fails or must wait.
        """
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except _LATER:
            raise
        except OSError:
            self.end("handshake")
            raise
        self._recv = self._socket.recv
        return self._recv(size)
