"""The `Intake` of a worker at a broker: a socket and a `Subscriber` with a persistent session."""

import contextlib
import math
import random
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.link import LONGEST_PAUSE, Address, Disconnections
from undertone_aggregator.mqtt.packets import ProtocolError
from undertone_aggregator.mqtt.subscriber import Subscriber, connection_of, is_repeated, packet_of

__all__ = ["Inbox", "is_repeated", "packet_of"]

# Seconds without a message after which a batch closes: a broker may wait for PUBACKs before it sends more.
QUIET_SECONDS = 0.005
_FIRST_PAUSE = 0.2
_CONNECT_SECONDS = 5.0
_WRITE_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_READ_BYTES = 1 << 18


class Inbox:
    """A persistent session that subscribes to ``filters`` at QoS 1 in every connection.

    ``unsubscribe``: unsubscribe from the filters instead, to empty an old session. A batch closes at ``limit``
    deliveries, after ``batch_seconds``, or when the broker is silent. Deliveries that were not taken when a connection
    ends come again in the next connection.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        filters: Sequence[str],
        limit: int,
        say: Callable[[str], None] = lambda _: None,
        *,
        batch_seconds: float = 0.0,
        unsubscribe: bool = False,
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._filters = list(filters)
        self._limit = limit
        self._say = say
        self._batch_seconds = batch_seconds
        self._unsubscribe = unsubscribe
        self._socket: socket.socket | None = None
        self._subscriber = self._new_subscriber(0)
        self._received: list[Delivery] = []
        self._pause = _FIRST_PAUSE
        self._retry_at = -math.inf
        self._connections = 0
        self._greeted = self._denied = False
        self._losses = Disconnections()

    @property
    def ready(self) -> bool:
        """True if the broker has confirmed the subscription, or its end with ``unsubscribe``, in an open connection."""
        return self._socket is not None and self._subscriber.subscribed

    def take(self, seconds: float) -> list[Delivery]:
        """Return the next batch, waiting up to ``seconds`` for its first delivery."""
        if self._received or self._pump(seconds):
            deadline = time.monotonic() + self._batch_seconds
            while len(self._received) < self._limit and time.monotonic() < deadline:
                if not self._pump(QUIET_SECONDS):
                    break
        taken, self._received = self._received[: self._limit], self._received[self._limit :]
        return taken

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs of these deliveries together; if that fails, the broker delivers them again."""
        # Deliveries of an earlier connection are skipped: the broker sends them again, perhaps with other packet
        # identifiers.
        numbers = [packet_of(delivery) for delivery in deliveries if connection_of(delivery) == self._connections]
        self._send(packets.pubacks([number for number in numbers if number]))

    def close(self) -> None:
        """Disconnect; the broker keeps the session and its queue."""
        self._send(packets.GOODBYE)
        if self._socket is not None:
            self._read_to_end(self._socket)
            self._socket.close()
            self._socket = None

    def _read_to_end(self, sock: socket.socket) -> None:
        """Wait until the broker closes the connection, for at most a second, and read what it still sends.

        A socket that is closed with unread data resets the connection. The broker may then discard acknowledgements
        that it has not read, and deliver their messages again.
        """
        deadline = time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
            while _poll(sock, select.POLLIN, deadline - time.monotonic()) and sock.recv(_READ_BYTES):
                pass

    def _pump(self, seconds: float) -> bool:
        """Read what has arrived, waiting up to ``seconds``; return True if a delivery was read."""
        now = time.monotonic()
        if self._socket is None:
            self._reconnect(now, seconds)
            return False
        try:
            self._send(self._subscriber.output(now))
            data = self._read(seconds)
            if data is None:
                return False
            if not data:
                raise ConnectionError("the broker closed the connection")
            received = self._subscriber.receive(data, now)
        except (ProtocolError, OSError) as wrong:
            self._lose(wrong, now)
            return False
        if self._subscriber.accepted:
            self._greet()
        self._received += received
        return bool(received)

    def _read(self, seconds: float) -> bytes | None:
        sock = self._socket
        assert sock is not None
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()) and not _poll(sock, select.POLLIN, seconds):
            return None
        try:
            return sock.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def _send(self, data: bytes) -> None:
        """Send all bytes. If that fails, the connection has ended, and the next read reports this."""
        sock = self._socket
        while data and sock is not None:
            try:
                data = data[sock.send(data) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not _poll(sock, select.POLLOUT, _WRITE_SECONDS):
                    # Part of a packet may have been sent, so the connection cannot be used any more.
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                    return
            except OSError:
                return

    def _greet(self) -> None:
        """Log that the connection was renewed or the subscription refused, each at most once for a connection."""
        if not self._greeted:
            self._greeted = True
            self._pause = _FIRST_PAUSE
            if self._connections > 1:
                self._say(f"connected again to the broker at {self._address.host}:{self._address.port}")
        if self._subscriber.denied and not self._denied:
            self._denied = True
            self._say("the broker refused the subscription: its access rules must let this user read reports")

    def _lose(self, wrong: Exception, now: float) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._received.clear()
        if isinstance(wrong, ProtocolError) and wrong.reason == "refused":
            self._say(self._address.refusal(wrong))
        elif not self._subscriber.accepted:
            self._say(self._address.unanswered(wrong))
        elif self._subscriber.subscribed:
            self._say(self._losses.sentence(self._address, now))

    def _reconnect(self, now: float, seconds: float) -> None:
        if now < self._retry_at:
            time.sleep(min(seconds, self._retry_at - now))
            return
        self._connections += 1
        self._greeted = self._denied = False
        address = self._address
        self._subscriber = self._new_subscriber(self._connections)
        self._subscriber.connect(self._client_id, address.user, address.password)
        try:
            connection = socket.create_connection((address.host, address.port), _CONNECT_SECONDS)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                context = address.tls_context()
                if context is not None:
                    connection = context.wrap_socket(connection, server_hostname=address.host)
                connection.setblocking(False)
            except BaseException:
                connection.close()
                raise
            self._socket = connection
        except (OSError, ValueError) as wrong:
            self._say(address.unreachable(wrong))
        self._retry_at = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _new_subscriber(self, number: int) -> Subscriber:
        return Subscriber(
            number, self._filters, self._address.keepalive, time.monotonic(), unsubscribe=self._unsubscribe
        )


def _poll(sock: socket.socket, event: int, seconds: float) -> bool:
    # poll() is used, because select() fails for descriptors above 1023.
    waiting = select.poll()
    waiting.register(sock.fileno(), event)
    return bool(waiting.poll(max(0, int(seconds * 1000))))
