"""The connection to the broker: its address, and the outlet that publishes campaigns and estimates by paho-mqtt."""

import base64
import contextlib
import hashlib
import hmac
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from undertone_aggregator.base.files import naming

# Topic on which mosquitto publishes how many messages it has dropped, such as when a queue was full.
DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
# Longest pause in seconds between two attempts to connect to the broker.
LONGEST_PAUSE = 30.0
# Topic on which mosquitto publishes how many messages it holds, queued or retained.
STORED_TOPIC = "$SYS/broker/store/messages/count"
# An alarm is raised if the connection is lost this number of times within this number of seconds.
_LOSSES = 3
_LOSSES_SECONDS = 60.0
_RETAINED_SECONDS = 0.2


def worker_user(user: str, slot: int) -> str:
    """Return the name of an ingest worker's user at the broker. ``slot``: the user's number, not a time slot.

    Each worker has a user of its own, so that no other user can take over its session.
    """
    return f"{user}-{slot}"


def worker_password(password: str, user: str) -> str:
    """Derive the password of a worker's user from the aggregator's password (192 random bits)."""
    digest = hmac.new(password.encode(), user.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:24]).decode()


@dataclass(frozen=True)
class Address:
    """Address of a broker; its repr never shows the password.

    ``ca_file``: use TLS, and verify the broker against this file. ``tls``: use TLS even without ``ca_file``, and verify
    the broker against the system's authorities. ``worker_users``: True if each worker's session has its own broker
    user, see `worker_user`. ``password_file``: file from which the password came; the error names it if the broker
    refuses the password.
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
        """Return the address for the worker whose user has the number ``slot``."""
        if not self.worker_users:
            return self
        user = worker_user(self.user, slot)
        return replace(self, user=user, password=worker_password(self.password, user))

    def refusal(self, reason: object) -> str:
        """Return the error text for a broker that refuses this user."""
        where = "" if self.password_file is None else f" with the password of {self.password_file}"
        return f"the broker at {self.host}:{self.port} refused the user {self.user}{where}: {reason}"

    def unanswered(self, reason: object) -> str:
        """Return the error text for a port that ends a connection or answers in a way in which no broker does."""
        doubt = "TLS" if self.ca_file is None and not self.tls else "no TLS"
        return f"{self.host}:{self.port} does not answer as a broker does ({reason}): does this port expect {doubt}?"

    def unreachable(self, reason: object) -> str:
        """Return the error text for a broker that cannot be reached."""
        return f"the broker at {self.host}:{self.port} cannot be reached: {reason}"

    def client(self, client_id: str, **options: Any) -> mqtt.Client:
        """Return a paho client for this address, not yet connected."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv311, **options)
        client.username_pw_set(self.user, self.password)
        context = self.tls_context()
        if context is not None:
            client.tls_set_context(context)
        return client

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context that verifies the broker's certificate and name; None for plain TCP. Raises OSError."""
        if self.ca_file is None:
            return ssl.create_default_context() if self.tls else None
        with naming(self.ca_file):
            return ssl.create_default_context(cafile=str(self.ca_file))


class Disconnections:
    """Times at which the broker ended this server's connection.

    Many of them in a short time suggest that another client uses the same session.
    """

    def __init__(self) -> None:
        self._at: list[float] = []

    def sentence(self, address: Address, now: float) -> str:
        """Return the log text for a connection lost at ``now``, in seconds of any clock."""
        self._at = [at for at in self._at if at > now - _LOSSES_SECONDS] + [now]
        where = f"the connection to the broker at {address.host}:{address.port}"
        if len(self._at) < _LOSSES:
            return f"{where} was lost"
        return (
            f"alarm: {where} was lost {len(self._at)} times in {_LOSSES_SECONDS:g} s: does another server take the"
            f" session of the user {address.user}?"
        )


def forget_session(address: Address, client_id: str) -> None:
    """Make the broker delete a persistent session and its queue."""
    client = address.client(client_id, clean_session=True)
    client.connect(address.host, address.port, address.keepalive)
    client.loop_start()
    deadline = time.monotonic() + 5
    while not client.is_connected() and time.monotonic() < deadline:
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


def always() -> bool:
    """Return True: permits every repeated publication."""
    return True


class Outlet:
    """Publisher of retained messages in a background thread; at later connects it repeats some, see ``publish``.

    ``dropped``: number of messages that the broker has dropped since it started. ``stored``: number that it holds. Both
    are None until the broker publishes them. ``heard``: the newest message of each topic in ``watch``, whoever
    published it.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        say: Callable[[str], None] = lambda _: None,
        watch: Sequence[str] = (),
    ) -> None:
        self.dropped: int | None = None
        self.stored: int | None = None
        self.heard: dict[str, bytes] = {}
        self._watch = list(watch)
        self._answered = threading.Event()
        self._last: int | None = None
        self._address = address
        self._say = say
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[bytes, Callable[[], bool]]] = {}
        self._client = address.client(client_id, clean_session=True)
        self._client.reconnect_delay_set(1, int(LONGEST_PAUSE))
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_connect_fail = lambda *_: say(address.unreachable("it is tried again"))
        self._greeted = False
        self._started = False
        self._connections = 0
        self._since = 0.0

    @property
    def connected(self) -> bool:
        """True if the broker is connected now."""
        return self._client.is_connected()

    @property
    def settled(self) -> bool:
        """True during the first connection, and once a later one has lasted longer than workers wait to reconnect."""
        return self.connected and (self._connections == 1 or time.monotonic() - self._since > LONGEST_PAUSE + 1)

    def start(self) -> None:
        """Connect in the background, and again whenever the connection is lost."""
        self._client.connect_async(self._address.host, self._address.port, self._address.keepalive)
        self._client.loop_start()
        self._started = True

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish a retained message at QoS 1, if the broker is connected.

        With ``again``, publish it also at each later connect at which ``permitted()`` is true, until another message
        with ``again`` replaces it.
        """
        with self._lock:
            if again:
                self._kept[topic] = payload, permitted
        if self._client.is_connected():
            self._client.publish(topic, payload, qos=1, retain=True)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """Wait until the broker has sent its retained messages, and return the newest message of a watched topic.

        Return None if no message has come. ``stop`` ends the wait.
        """
        while not stop.is_set() and not self._answered.wait(0.1):
            pass
        if topic not in self.heard:
            # A broker that does not handle packets in order may still send the retained message.
            stop.wait(_RETAINED_SECONDS)
        return self.heard.get(topic)

    def stop(self) -> None:
        """Disconnect."""
        client = self._client
        # This disconnection is intended, and must not be reported as one by the broker.
        client.on_disconnect = None
        if self._started:
            client.disconnect()
            client.loop_stop()
        client.on_connect = client.on_message = client.on_subscribe = None
        client.on_connect_fail = None

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._greeted = True
        if reason.is_failure:
            self._say(self._address.refusal(reason))
            return
        self._connections += 1
        self._since = time.monotonic()
        if self._connections > 1:
            self._say(f"connected again to the broker at {self._address.host}:{self._address.port}")
        if self._watch:
            client.subscribe([(topic, 1) for topic in self._watch])
        # This subscription comes last. A broker that handles packets in order sends the retained messages of the
        # watched topics before it acknowledges this subscription.
        self._last = client.subscribe([(DROPPED_TOPIC, 1), (STORED_TOPIC, 1)])[1]
        with self._lock:
            for topic, (payload, permitted) in self._kept.items():
                if permitted():
                    client.publish(topic, payload, qos=1, retain=True)

    def _on_subscribe(self, _client: mqtt.Client, _data: Any, packet: int, _reasons: Any, _properties: Any) -> None:
        if packet == self._last:
            self._answered.set()

    def _on_disconnect(self, _client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if not self._greeted:
            self._say(self._address.unanswered(reason))
        self._greeted = False

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return
        with contextlib.suppress(ValueError):
            if topic == DROPPED_TOPIC:
                self.dropped = int(message.payload)
            elif topic == STORED_TOPIC:
                self.stored = int(message.payload)
            else:
                self.heard[topic] = bytes(message.payload)


class Outlets:
    """An `Outlet` for each of several brokers, which all get the same messages.

    ``heard``: the newest message of each topic.
    """

    def __init__(self, outlets: Sequence[Outlet]) -> None:
        self._outlets = outlets
        self.heard: dict[str, bytes] = {}
        for outlet in outlets:
            outlet.heard = self.heard

    @property
    def dropped(self) -> int | None:
        """Sum of the messages that the brokers dropped, as far as they publish that number."""
        counts = [outlet.dropped for outlet in self._outlets if outlet.dropped is not None]
        return sum(counts) if counts else None

    @property
    def stored(self) -> int | None:
        """Sum of the messages that the brokers hold, as far as they publish that number."""
        counts = [outlet.stored for outlet in self._outlets if outlet.stored is not None]
        return sum(counts) if counts else None

    @property
    def connected(self) -> bool:
        """True if all brokers are connected."""
        return all(outlet.connected for outlet in self._outlets)

    @property
    def settled(self) -> bool:
        """True if all outlets are settled."""
        return all(outlet.settled for outlet in self._outlets)

    def start(self) -> None:
        """Connect to all brokers."""
        for outlet in self._outlets:
            outlet.start()

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish at all connected brokers. With ``again``, the others get the message when they are connected."""
        for outlet in self._outlets:
            outlet.publish(topic, payload, again=again, permitted=permitted)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """Wait for all brokers; return the newest message of a watched topic at any of them, or None."""
        return [outlet.retained(topic, stop) for outlet in self._outlets][-1]

    def stop(self) -> None:
        """Disconnect from all brokers."""
        for outlet in self._outlets:
            outlet.stop()
