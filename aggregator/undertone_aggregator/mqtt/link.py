"""The broker: its address, and what goes out to it over paho-mqtt (3.1.1), campaigns and estimates."""

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

# Where mosquitto tells how many messages it threw away, as when a queue is full.
DROPPED_TOPIC = "$SYS/broker/publish/messages/dropped"
# Nobody waits longer than this, in seconds, before the next try to reach the broker.
LONGEST_PAUSE = 30.0
# And how many it holds: what waits for anybody, and what is retained.
STORED_TOPIC = "$SYS/broker/store/messages/count"
# So many lost connections in so long a time are an alarm.
_LOSSES = 3
_LOSSES_SECONDS = 60.0
_RETAINED_SECONDS = 0.2


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

    def unanswered(self, reason: object) -> str:
        """What to say when the broker ends a connection before it says yes or no."""
        doubt = "TLS" if self.ca_file is None and not self.tls else "no TLS"
        return f"the broker at {self.host}:{self.port} did not answer ({reason}): does its port expect {doubt}?"

    def unreachable(self, reason: object) -> str:
        """What to say when there is no connection."""
        return f"the broker at {self.host}:{self.port} cannot be reached: {reason}"

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


class Disconnections:
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


def always() -> bool:
    """What is published again whatever happens."""
    return True


class Outlet:
    """Publishes retained messages from a background thread; the newest of each topic again at every connect.

    ``dropped``: how many messages the broker says it threw away since it started, ``stored``: how many it holds; None
    until it does.
    ``heard``: the newest message of each topic in ``watch``, whoever published it.
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
        self._address = address
        self._say = say
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[bytes, Callable[[], bool]]] = {}
        self._client = address.client(client_id, clean_session=True)
        self._client.reconnect_delay_set(1, int(LONGEST_PAUSE))
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._answered.set()
        self._client.on_disconnect = self._on_disconnect
        self._client.on_connect_fail = lambda *_: say(address.unreachable("it is tried again"))
        self._greeted = False
        self._started = False
        self._connections = 0
        self._since = 0.0

    @property
    def connected(self) -> bool:
        """Whether the broker is reachable now."""
        return self._client.is_connected()

    @property
    def settled(self) -> bool:
        """Whether it has been connected for so long that the workers' connections, too, must be back."""
        return self.connected and (self._connections == 1 or time.monotonic() - self._since > LONGEST_PAUSE + 1)

    def start(self) -> None:
        """Connect in the background, again and again when the connection is lost."""
        self._client.connect_async(self._address.host, self._address.port, self._address.keepalive)
        self._client.loop_start()
        self._started = True

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish retained at QoS 1; ``again``: also at every later connect while ``permitted``, until replaced."""
        with self._lock:
            if again:
                self._kept[topic] = payload, permitted
        if self._client.is_connected():
            self._client.publish(topic, payload, qos=1, retain=True)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """What a watched topic held when we came; None without one, or when ``stop`` is set. Waits for the broker."""
        while not stop.is_set() and not self._answered.wait(0.1):
            pass
        if topic not in self.heard:
            # Brokers may answer before they send what they kept.
            stop.wait(_RETAINED_SECONDS)
        return self.heard.get(topic)

    def stop(self) -> None:
        """Disconnect."""
        client = self._client
        # That we go is no answer of the broker's.
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
        client.subscribe([(topic, 1) for topic in (DROPPED_TOPIC, STORED_TOPIC, *self._watch)])
        with self._lock:
            for topic, (payload, permitted) in self._kept.items():
                if permitted():
                    client.publish(topic, payload, qos=1, retain=True)

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
    """One `Outlet` for each of several brokers, all told the same; ``heard``: the newest message of each topic."""

    def __init__(self, outlets: Sequence[Outlet]) -> None:
        self._outlets = outlets
        self.heard: dict[str, bytes] = {}
        for outlet in outlets:
            outlet.heard = self.heard

    @property
    def dropped(self) -> int | None:
        """By all of them, as far as they tell."""
        known = [outlet.dropped for outlet in self._outlets if outlet.dropped is not None]
        return sum(known) if known else None

    @property
    def stored(self) -> int | None:
        """At all of them, as far as they tell."""
        known = [outlet.stored for outlet in self._outlets if outlet.stored is not None]
        return sum(known) if known else None

    @property
    def connected(self) -> bool:
        """All of them."""
        return all(outlet.connected for outlet in self._outlets)

    @property
    def settled(self) -> bool:
        """All of them."""
        return all(outlet.settled for outlet in self._outlets)

    def start(self) -> None:
        """Connect to all."""
        for outlet in self._outlets:
            outlet.start()

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = always
    ) -> None:
        """Publish at all; one that cannot be reached gets it when it is back."""
        for outlet in self._outlets:
            outlet.publish(topic, payload, again=again, permitted=permitted)

    def retained(self, topic: str, stop: threading.Event) -> bytes | None:
        """What a topic held at any of them. Waits for all."""
        return [outlet.retained(topic, stop) for outlet in self._outlets][-1]

    def stop(self) -> None:
        """Disconnect."""
        for outlet in self._outlets:
            outlet.stop()
