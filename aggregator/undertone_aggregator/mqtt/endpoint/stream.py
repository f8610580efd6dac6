"""One accepted socket that never blocks, plain or TLS: what comes goes to its reader, what is written goes out."""

import contextlib
import selectors
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

# Of one call; a TLS record holds no more, so nothing stays behind where the selector cannot see it.
_RECEIVE_BYTES = 1 << 14
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Reader(Protocol):
    """Who hears of a stream."""

    def received(self, data: bytes) -> None:
        """Bytes have come."""

    def ended(self, reason: str) -> None:
        """It is closed; ``reason`` is to be counted, "" is not. Called once."""


class Stream:
    """Belongs to one thread at a time. ``ready`` is what the selector's event calls.

    ``unread``: as many bytes that the other side leaves unread end it with the reason ``unread``.
    """

    __slots__ = ("_closing", "_events", "_out", "_recv", "_selector", "_send", "_socket", "_unread", "closed", "reader")

    def __init__(
        self, accepted: socket.socket, context: ssl.SSLContext | None, selector: selectors.BaseSelector, unread: int
    ) -> None:
        """Raises OSError for a connection that has ended already."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = accepted
        self._recv: Callable[[int], bytes] = accepted.recv
        if context is not None:
            self._socket = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            self._recv = self._shake_hands
        self._send = self._socket.send
        self._selector = selector
        self._unread = unread
        self._out = b""
        self._closing = False
        self._events = 0
        self.closed = False
        self.reader: Reader
        self._watch(_READ)

    @property
    def certificate(self) -> tuple[str, bytes] | None:
        """(common name, DER) of the verified certificate that the other side has shown, None without one."""
        tls = self._socket
        verified: Any = tls.getpeercert() if isinstance(tls, ssl.SSLSocket) else None
        if not verified:
            return None
        assert isinstance(tls, ssl.SSLSocket)
        names = {field: text for part in verified["subject"] for field, text in part}
        return names.get("commonName", ""), tls.getpeercert(binary_form=True) or b""

    def ready(self) -> None:
        """It can be read or written, or somebody thought so."""
        if self._out:
            self._flush()
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
        """Send, unless it is over."""
        if self._out:
            self._out += data
        elif not self._closing:
            self._out = data
            self._flush()
        if len(self._out) > self._unread:
            self.end("unread")

    def pause(self) -> None:
        """Read no more."""
        self._watch(self._events & ~_READ)

    def resume(self) -> None:
        """Read on."""
        self._watch(self._events | _READ)

    def close(self) -> None:
        """End it when everything is sent; nothing more is read."""
        self._closing = True
        if self._out:
            self.pause()
        else:
            self.end()

    def end(self, reason: str = "") -> None:
        """End it at once."""
        if not self.closed:
            reason = "" if self._closing else reason
            self.closed = self._closing = True
            self._out = b""
            self._watch(0)
            # Counted before the other side can know.
            self.reader.ended(reason)
            if isinstance(self._socket, ssl.SSLSocket):
                # Says goodbye, and waits for no answer.
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
        """In the place of ``recv`` until TLS stands. Raises OSError: what it is, or that more must come first."""
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
