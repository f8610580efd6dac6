"""The server's two MQTT connections over paho-mqtt (3.1.1): reports in, campaigns and estimates out."""

import base64
import contextlib
import hashlib
import hmac
import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from undertone_aggregator.collect.intake import Delivery

# Where mosquitto tells how many messages it threw away, as when a queue is full.
DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
# A batch closes when the broker has been silent this long: a small window of unacknowledged messages never stalls it.
QUIET_SECONDS = 0.005
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 30.0
_WRITE_SECONDS = 5.0
# So many lost connections in so long a time are an alarm.
_LOSSES = 3
_LOSSES_SECONDS = 60.0
_RETAINED_SECONDS = 0.2
# Packet type 4, remaining length 2 (MQTT 3.1.1, 3.4.1).
_PUBACK = b"\x40\x02"


def worker_user(user: str, slot: int) -> str:
    """The broker user of the ingest worker that holds ``slot``: nobody else can take its session by its name."""
    return f"{user}-{slot}"


def worker_password(password: str, user: str) -> str:
    """The password of a worker's user, from the aggregator's own of 192 random bits: one secret to keep."""
    digest = hmac.new(password.encode(), user.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:24]).decode()


@dataclass(frozen=True)
class Address:
    """How to reach the broker; the password never appears in a repr. ``ca_file`` turns on TLS verified against it.

    ``tls``: also without ``ca_file``, by the authorities of the system.
    ``worker_users``: each worker's session has a broker user of its own, see `worker_user`.
    ``password_file``: where the password came from, for what is said when the broker refuses it.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ca_file: Path | None = None
    keepalive: int = 30
    tls: bool = False
    worker_users: bool = False
    password_file: Path | None = None

    def of_worker(self, slot: int) -> "Address":
        """The address for the worker that holds ``slot``."""
        if not self.worker_users:
            return self
        user = worker_user(self.user, slot)
        return replace(self, user=user, password=worker_password(self.password, user))

    def refusal(self, reason: object) -> str:
        """What to say when the broker refuses this user."""
        where = "" if self.password_file is None else f" with the password of {self.password_file}"
        return f"the broker at {self.host}:{self.port} refused the user {self.user}{where}: {reason}"

    def client(self, client_id: str, **options: Any) -> mqtt.Client:
        """A paho client for this address, not yet connected."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv311, **options)
        client.username_pw_set(self.user, self.password)
        context = self.tls_context()
        if context is not None:
            client.tls_set_context(context)
        return client

    def tls_context(self) -> ssl.SSLContext | None:
        """What verifies the broker's certificate and name; None for plain TCP. Raises OSError for a bad file."""
        if self.ca_file is None:
            return ssl.create_default_context() if self.tls else None
        return ssl.create_default_context(cafile=str(self.ca_file))


class Losses:
    """Connections that the broker ended. Many in a short time mean that somebody else uses the same session."""

    def __init__(self) -> None:
        self._at: list[float] = []

    def sentence(self, address: Address, now: float) -> str:
        """What to say about a connection that was lost at ``now``, in seconds of any clock."""
        self._at = [at for at in self._at if at > now - _LOSSES_SECONDS] + [now]
        where = f"the connection to the broker at {address.host}:{address.port}"
        if len(self._at) < _LOSSES:
            return f"{where} was lost"
        return (
            f"alarm: {where} was lost {len(self._at)} times in {_LOSSES_SECONDS:g} s: does another server take the"
            f" session of the user {address.user}?"
        )


class Receipt(NamedTuple):
    """What acknowledges a delivery: only on the connection that it came by, and only at QoS 1."""

    connection: int
    packet: int
    qos: int
    repeated: bool


def receipt(delivery: Delivery) -> Receipt:
    """The receipt of a delivery that an `Inbox` gave."""
    return cast("Receipt", delivery.receipt)


class Inbox:
    """An `Intake` from a persistent session at a broker.

    ``filters`` are subscribed inside every connect at QoS 1 (``unsubscribe``: given up, to empty an old session).
    A batch closes at ``limit`` deliveries, after ``batch_seconds``, or when the broker is silent.
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
        self._limit = limit
        self._batch_seconds = batch_seconds
        self._say = say
        self._filters = list(filters)
        self._unsubscribe = unsubscribe
        self._client = address.client(client_id, clean_session=False, manual_ack=True, reconnect_on_failure=False)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_subscribe
        self._client.on_message = self._on_message
        # Replies wait for `loop_write` instead of one system call each in the middle of our own work.
        self._client.on_socket_register_write = lambda *_: None
        self._pause = _FIRST_PAUSE
        self._retry_at = 0.0
        self._misc_at = 0.0
        self._taken: list[Delivery] = []
        self._subscribed = False
        self._connection = 0
        self._losses = Losses()

    @property
    def ready(self) -> bool:
        """Whether the broker keeps reports for this session."""
        return self._subscribed

    def take(self, seconds: float) -> list[Delivery]:
        """The next batch, waiting up to ``seconds`` for its first delivery."""
        if self._pump(seconds):
            deadline = time.monotonic() + self._batch_seconds
            while len(self._taken) < self._limit and time.monotonic() < deadline:
                if not self._pump(QUIET_SECONDS):
                    break
        taken, self._taken = self._taken, []
        return taken

    def _pump(self, seconds: float) -> bool:
        """Read what has arrived, waiting up to ``seconds`` for something; whether anything was read."""
        client = self._client
        now = time.monotonic()
        if now >= self._misc_at:
            client.loop_misc()
            self._misc_at = now + 1.0
        sock = client.socket()
        if sock is None:
            self._reconnect(now, seconds)
            return False
        if client.want_write():
            client.loop_write()
        before = len(self._taken)
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()) and not _readable(sock, seconds):
            return False
        # One packet a call. Stop at the first call that adds none: nothing was left, or it was not a message.
        while len(self._taken) < self._limit:
            held = len(self._taken)
            client.loop_read()
            if len(self._taken) == held:
                break
        return len(self._taken) > before

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs of these deliveries in one write; where that fails, the broker delivers them again.

        Through paho each would be a system call of its own, which costs more than our work on the report.
        """
        self.flush()
        # After a new connection the broker delivers again, perhaps under other packet numbers.
        data = b"".join(
            _PUBACK + packet.to_bytes(2, "big")
            for connection, packet, qos, _ in map(receipt, deliveries)
            if qos == 1 and connection == self._connection
        )
        sock: Any = self._client.socket()
        while data and sock is not None:
            try:
                data = data[sock.send(data) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                if not _writable(sock, _WRITE_SECONDS):
                    # Half a packet may be out: this connection is over, and the next read says so.
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                    return
            except OSError:
                return

    def flush(self) -> None:
        """Send what is queued."""
        while self._client.want_write() and (sock := self._client.socket()) is not None:
            if not _writable(sock, _WRITE_SECONDS):
                return
            self._client.loop_write()

    def close(self) -> None:
        """Disconnect; the broker keeps the session and queues for it."""
        self.flush()
        with contextlib.suppress(OSError, ValueError):
            self._client.disconnect()
            self.flush()
        # They hold this object, which holds the client: without them its sockets are closed when this object is gone,
        # and not only when the collector finds the cycle.
        self._client.on_connect = self._client.on_message = None
        self._client.on_subscribe = self._client.on_unsubscribe = None

    def _reconnect(self, now: float, seconds: float) -> None:
        if self._subscribed:
            self._subscribed = False
            self._say(self._losses.sentence(self._address, now))
        if now < self._retry_at:
            time.sleep(min(seconds, self._retry_at - now))
            return
        self._connection += 1
        try:
            self._client.connect(self._address.host, self._address.port, self._address.keepalive)
        except (OSError, ValueError) as wrong:
            self._say(f"the broker at {self._address.host}:{self._address.port} cannot be reached: {wrong}")
        self._retry_at = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._say(self._address.refusal(reason))
            return
        self._pause = _FIRST_PAUSE
        if self._connection > 1:
            self._say(f"connected again to the broker at {self._address.host}:{self._address.port}")
        if self._unsubscribe:
            client.unsubscribe(self._filters)
        else:
            client.subscribe([(topic, 1) for topic in self._filters])

    def _on_subscribe(self, _client: mqtt.Client, _data: Any, _mid: int, reasons: list[Any], _properties: Any) -> None:
        self._subscribed = not any(reason.is_failure for reason in reasons)
        if not self._subscribed:
            self._say("the broker refused the subscription: its access rules must let this user read reports")

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""
        came = Receipt(self._connection, message.mid, message.qos, message.dup)
        self._taken.append(Delivery(topic, bytes(message.payload), message.retain, came))


def forget_session(address: Address, client_id: str) -> None:
    """Make the broker drop a persistent session and what it queued."""
    client = address.client(client_id, clean_session=True)
    client.connect(address.host, address.port, address.keepalive)
    client.loop_start()
    deadline = time.monotonic() + 5
    while not client.is_connected() and time.monotonic() < deadline:
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


def read_retained(
    address: Address, client_id: str, topic: str, stop: threading.Event, say: Callable[[str], None]
) -> bytes | None:
    """The retained message of a topic; None when there is none, or ``stop`` was set first. Waits for the broker."""
    got: list[bytes] = []
    answers = threading.Semaphore(0)
    client = address.client(client_id, clean_session=True)

    def on_connect(client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            say(address.refusal(reason))
            return
        # The second answer comes after what the first subscription brings.
        client.subscribe(topic, 1)
        client.subscribe(topic, 1)

    client.on_connect = on_connect
    client.on_subscribe = lambda *_: answers.release()
    client.on_message = lambda _client, _data, message: got.append(bytes(message.payload))
    try:
        while not stop.is_set():
            try:
                client.connect(address.host, address.port, address.keepalive)
                break
            except (OSError, ValueError) as wrong:
                say(f"the broker at {address.host}:{address.port} cannot be reached: {wrong}")
                stop.wait(1.0)
        client.loop_start()
        heard = 0
        while heard < 2 and not stop.is_set():
            heard += answers.acquire(timeout=0.1)
        if not got:
            stop.wait(_RETAINED_SECONDS)
        return got[-1] if got and got[-1] else None
    finally:
        client.disconnect()
        client.loop_stop()
        client.on_connect = client.on_subscribe = client.on_message = None


class Outlet:
    """Publishes retained messages from a background thread; the newest of each topic again at every connect.

    ``dropped``: how many messages the broker says it threw away since it started; None until it does.
    """

    def __init__(self, address: Address, client_id: str, say: Callable[[str], None] = lambda _: None) -> None:
        self.dropped: int | None = None
        self._address = address
        self._say = say
        self._lock = threading.Lock()
        self._kept: dict[str, bytes] = {}
        self._client = address.client(client_id, clean_session=True)
        self._client.reconnect_delay_set(1, 30)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._started = False
        self._connections = 0

    @property
    def connected(self) -> bool:
        """Whether the broker is reachable now."""
        return self._client.is_connected()

    def start(self) -> None:
        """Connect in the background, again and again when the connection is lost."""
        self._client.connect_async(self._address.host, self._address.port, self._address.keepalive)
        self._client.loop_start()
        self._started = True

    def publish(self, topic: str, payload: bytes, *, again: bool = False) -> None:
        """Publish retained at QoS 1; ``again``: also at every later connect, until replaced."""
        with self._lock:
            if again:
                self._kept[topic] = payload
        if self._client.is_connected():
            self._client.publish(topic, payload, qos=1, retain=True)

    def stop(self) -> None:
        """Disconnect."""
        if self._started:
            self._client.disconnect()
            self._client.loop_stop()
        self._client.on_connect = self._client.on_message = None

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._say(self._address.refusal(reason))
            return
        self._connections += 1
        if self._connections > 1:
            self._say(f"connected again to the broker at {self._address.host}:{self._address.port}")
        client.subscribe(DROPPED_TOPIC)
        with self._lock:
            for topic, payload in self._kept.items():
                client.publish(topic, payload, qos=1, retain=True)

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        with contextlib.suppress(ValueError):
            self.dropped = int(message.payload)


def _readable(sock: Any, seconds: float) -> bool:
    return _poll(sock, select.POLLIN, seconds)


def _writable(sock: Any, seconds: float) -> bool:
    return _poll(sock, select.POLLOUT, seconds)


def _poll(sock: socket.socket, event: int, seconds: float) -> bool:
    # select() fails beyond descriptor 1023.
    descriptor = sock.fileno()
    if descriptor < 0:
        # Closed meanwhile, as when the broker gave us up during a long commit: the next read connects again.
        return False
    waiting = select.poll()
    waiting.register(descriptor, event)
    return bool(waiting.poll(max(0, int(seconds * 1000))))
