"""A TCP or TLS connection that never blocks once it is open; the same code for boards and CPython.

After the TCP connection is made every wait is a bounded ``poll``; no call relies on a socket timeout, because
``setblocking(True)`` erases it on lwIP. The TLS handshake goes on in ``read`` and ``write``, which transfer no data
until it is done. So a board can feed its watchdog however slow the server is.
"""

import errno
import select
import socket

try:
    import ssl
except ImportError:
    ssl = None  # type: ignore[assignment]

from undertone_shared import garbage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONNECT_MILLISECONDS = 10000

if hasattr(ssl, "SSLWantReadError"):
    _AGAIN: "tuple[type[BaseException], ...]" = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
else:
    # MicroPython's sockets return None instead of raising an error when they would block.
    _AGAIN = ()


def opener(
    places: "list[tuple[str, int]]", context: "Any", milliseconds: int, alive: "Callable[[], None] | None" = None
) -> "Callable[[], SocketConnection]":
    """Return a function that makes a new connection to the first of ``places`` at each call; see `SocketConnection`.

    The last address that answered is tried first, because looking up the name may take longer than a watchdog allows.
    """
    answered: dict[tuple[str, int], list[Any]] = {}

    def connect() -> SocketConnection:
        place = places[0]
        return SocketConnection(place[0], place[1], context, milliseconds, alive, answered.setdefault(place, []))

    return connect


class SocketConnection:
    """A TCP connection to the first address of ``host`` that answers, with TLS if there is a context.

    Connecting takes at most ``milliseconds`` for each address; ``alive()``, which feeds a watchdog, is called before
    each and after the last. The TLS handshake begins with the first ``read`` or ``write``; its deadline is the
    caller's. ``answered``: the last address that has answered, which is tried first; [] for none. Raises OSError.
    """

    reached = True

    def __init__(
        self,
        host: str,
        port: int,
        context: "Any" = None,
        milliseconds: int = CONNECT_MILLISECONDS,
        alive: "Callable[[], None] | None" = None,
        answered: "list[Any] | None" = None,
    ):
        alive = alive or (lambda: None)
        raw = _connect(host, port, milliseconds, alive, [] if answered is None else answered)
        alive()
        raw.setblocking(False)
        self._socket: Any = raw
        # True until the TLS handshake is done.
        self._shaking = context is not None
        if context is not None:
            try:
                self._socket = context.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)
            except (OSError, ValueError) as error:
                raw.close()
                raise OSError("TLS: %s" % error)
            self._socket.setblocking(False)
        # MicroPython's TLS sockets have only readinto and write, CPython's sockets have recv_into and send.
        self._read_into = getattr(self._socket, "readinto", None) or self._socket.recv_into
        self._write = getattr(self._socket, "send", None) or self._socket.write
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._writing = False

    def read(self, buffer: bytearray) -> "int | None":
        """Read into ``buffer``: return the number of bytes, 0 at the end of the stream, None if there are none now.

        Raises OSError, also if the server's certificate is not valid.
        """
        return self._take(self._read_into, buffer)

    def write(self, data: memoryview) -> "int | None":
        """Return the number of bytes that were taken. None means no room now: then call again with the same data.

        Raises OSError, also if the server's certificate is not valid.
        """
        return self._take(self._write, data)

    def wait(self, milliseconds: int, writing: bool) -> None:
        """Wait at most ``milliseconds`` until there is something to read or, if ``writing``, room to write."""
        # During the handshake wait only for the server's next message: there is nearly always room to write.
        writing = writing and not self._shaking
        if writing != self._writing:
            self._writing = writing
            self._poll.modify(self._socket, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
        self._poll.poll(milliseconds)

    def close(self) -> None:
        """Release the descriptor."""
        try:
            self._socket.close()
        except OSError:
            pass

    def _take(self, call: "Callable[[Any], int | None]", data: "bytearray | memoryview") -> "int | None":
        if not self._shaking:
            return _unless_busy(call, data)
        before = garbage.set_threshold(-1)
        try:
            count = _unless_busy(call, data)
        except (OSError, ValueError) as error:
            raise OSError("TLS: %s" % error)
        finally:
            garbage.set_threshold(before)
        # The result is None until the handshake is done.
        self._shaking = count is None
        return count


def _unless_busy(call: "Callable[[Any], int | None]", data: "bytearray | memoryview") -> "int | None":
    """Return what a socket's method returns for ``data``; None if the socket cannot do it now. Raises OSError."""
    try:
        return call(data)
    except _AGAIN:
        return None
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return None


def _connect(host: str, port: int, milliseconds: int, alive: "Callable[[], None]", answered: "list[Any]") -> "Any":
    failure = OSError("no address for %s" % host)
    for look_up in (False, True):
        alive()
        for address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM) if look_up else answered[:]:
            alive()
            raw = socket.socket(address[0], socket.SOCK_STREAM)
            try:
                raw.settimeout(milliseconds / 1000)
                raw.connect(address[-1])
            except OSError as error:
                raw.close()
                failure = error
                continue
            if hasattr(socket, "TCP_NODELAY"):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answered[:] = [address]
            return raw
    raise failure
