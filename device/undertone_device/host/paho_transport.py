"""The transport of phones and gateways: the calls of `protocols.Transport`, implemented with paho-mqtt."""

import ssl
import struct
import threading
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from undertone_device.core.slot_value import TICKS_MASK
from undertone_device.mqtt.packets import ACKED, CONNECTED, DEFAULT_KEEPALIVE, DENIED, LARGEST_PACKET, LOST, MESSAGE
from undertone_device.mqtt.session_transport import ANSWER_MILLISECONDS
from undertone_device.setup import clock
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from typing import Any

    from undertone_device.mqtt.packets import Event

_PACKETS = 100
# A broker's host that begins with this is reached by MQTT over WebSocket, at paho's usual path /mqtt.
_WEBSOCKET = "wss://"
# A server's reasons to refuse a connection that concern the device's password.
_CREDENTIALS = ("bad user name or password", "not authorised")
# What ``trouble`` says after such a reason.
_PERHAPS = ": perhaps the device was revoked, or its password was changed"
# Errors of a connection that a server answered, but that ended before MQTT began.
ANSWERS = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)


class _Opening:
    """A connection that its own thread opens, because name look-up, TCP and TLS may each take long."""

    def __init__(self, client: paho.Client, host: str, port: int, keepalive: int):
        self.client = client
        self.error = ""
        # True if a server has answered. If the connection ends in its TLS handshake, only the error shows whether one
        # did.
        self.reached = True
        self.done = threading.Event()
        self.started = clock.ticks()
        threading.Thread(target=self._open, args=(host, port, keepalive), daemon=True).start()

    def _open(self, host: str, port: int, keepalive: int) -> None:
        try:
            self.client.connect(host, port, keepalive)
        except OSError as error:
            self.error = str(error)
            # A server that accepts TCP but does not answer the TLS handshake was reached, too. Its error is also a
            # TimeoutError, and only the text differs from that of an address where nobody answers.
            silent = isinstance(error, TimeoutError) and "handshake" in str(error)
            self.reached = isinstance(error, ANSWERS) or silent
        except Exception as error:  # For example, an invalid host name raises ValueError.
            self.error = f"{host}: {error}"
            self.reached = False
        self.done.set()

    def elapsed(self) -> int:
        """Return the milliseconds since the opening began."""
        return clock.ticks() - self.started & TICKS_MASK


class PahoTransport:
    """The transport of phones and gateways over paho-mqtt; its events are those of `packets`. Only ``poll`` waits.

    Each connection is a new paho client with a clean session, because paho would otherwise resend messages by itself
    that the outbox resends. ``host``: "wss://" before the name means MQTT over WebSocket. Raises Invalid for a
    keepalive outside 1 to 65,535, and for a WebSocket without TLS.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        user: "str | None" = None,
        password: "str | None" = None,
        keepalive: int = DEFAULT_KEEPALIVE,
        context: "ssl.SSLContext | None" = None,
    ):
        if not 1 <= keepalive <= 0xFFFF:
            raise Invalid(f"keepalive is {keepalive}, expected an integer from 1 to 65535")
        if host.startswith(_WEBSOCKET) and context is None:
            raise Invalid(f"broker.host is {host!r} without TLS, expected broker.tls as well")
        self.configured = (host, port)
        self.places = [self.configured]
        self._keepalive = keepalive
        # True if the broker accepted the last connection, and also before the first attempt to connect.
        self._accepted = True
        self._client_id = client_id
        self._user = user
        self._password = password
        self._context = context
        self._opening: _Opening | None = None
        self._client: paho.Client | None = None
        self._events: list[Event] = []
        self._topics: dict[int, str] = {}
        self.oversized = 0
        self.reached = False

    def connect(self) -> None:
        """Begin a connection, without waiting; ("connected",) or ("lost", why) follows."""
        self._drop()
        if not self._accepted:
            self.places.append(self.places.pop(0))
        self._accepted = self.reached = False
        host, port = self.places[0]
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            self._client_id,
            clean_session=True,
            reconnect_on_failure=False,
            transport="websockets" if host.startswith(_WEBSOCKET) else "tcp",
        )
        client.connect_timeout = ANSWER_MILLISECONDS / 1000
        if self._user is not None:
            client.username_pw_set(self._user, self._password)
        if self._context is not None:
            client.tls_set_context(self._context)
        self._opening = _Opening(client, host.removeprefix(_WEBSOCKET), port, self._keepalive)

    def subscribe(self, topic: str) -> None:
        """Subscribe to a topic."""
        if self._client is not None:
            code, packet_id = self._client.subscribe(topic, 0)
            if code == MQTTErrorCode.MQTT_ERR_SUCCESS and packet_id is not None:
                self._topics[packet_id] = topic

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        """Send a message; its token comes back in ("acked", token)."""
        return 0 if self._client is None else self._client.publish(topic, payload, qos=1, retain=retain).mid

    def poll(self, milliseconds: int) -> "list[Event]":
        """Send, wait for at most ``milliseconds`` (twice if the connection opens meanwhile), receive; return the events
        since the last call.
        """
        if self._opening is not None and (lost := self._opened(milliseconds)):
            return [(LOST, lost)]
        if self._client is None:
            return []
        try:
            # paho reads one packet per call: without this loop, faster messages would be received later and later.
            for _ in range(_PACKETS):
                heard = len(self._events)
                code = self._client.loop(milliseconds / 1000)
                if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                    self._lost(paho.error_string(code))
                if len(self._events) == heard or self._events[-1][0] == LOST:
                    break
                milliseconds = 0
        except (ValueError, IndexError, struct.error) as error:  # Errors of paho for received bytes that are not MQTT.
            self._lost(f"the broker breaks the protocol: {error}")
        events = self._events
        self._events = []
        if events and events[-1][0] == LOST:
            self._drop()
        return events

    def _opened(self, milliseconds: int) -> str:
        """Wait at most ``milliseconds`` for the connection that is being opened; return the reason if it is lost."""
        opening = self._opening
        if opening is None:
            return ""
        if not opening.done.wait(milliseconds / 1000):
            if opening.elapsed() < ANSWER_MILLISECONDS:
                return ""
            # The thread that opens the connection ends by itself, and then closes the connection.
            self._opening = None
            return f"no connection within {ANSWER_MILLISECONDS // 1000} s"
        self._opening = None
        self.reached = opening.reached
        if not opening.error:
            client = self._client = opening.client
            client.on_connect = self._on_connect
            client.on_message = self._on_message
            client.on_publish = self._on_publish
            client.on_subscribe = self._on_subscribe
            client.on_disconnect = self._on_disconnect
        return opening.error

    def close(self) -> None:
        """Send DISCONNECT and release the descriptor."""
        if self._client is not None:
            self._client.on_disconnect = None
            self._client.disconnect()
        self._drop()

    def _drop(self) -> None:
        # Dropping the last reference closes the socket and paho's pair of sockets.
        self._opening = None
        self._client = None
        self._topics.clear()
        self._events = []

    def _lost(self, why: str) -> None:
        if not self._events or self._events[-1][0] != LOST:
            self._events.append((LOST, why))

    def _on_connect(self, client: "Any", data: "Any", flags: "Any", code: "Any", properties: "Any") -> None:
        if code.is_failure:
            words = str(code).lower().replace("authorized", "authorised")
            why = _PERHAPS if words in _CREDENTIALS else ""
            self._lost(f"the server refuses the connection: {words}{why}")
        else:
            self._accepted = True
            self._events.append((CONNECTED,))

    def _on_message(self, client: "Any", data: "Any", message: paho.MQTTMessage) -> None:
        if len(message.payload) > LARGEST_PACKET:
            self.oversized += 1
        else:
            self._events.append((MESSAGE, message.topic, bytes(message.payload), message.retain))

    def _on_publish(self, client: "Any", data: "Any", packet_id: int, code: "Any", properties: "Any") -> None:
        self._events.append((ACKED, packet_id))

    def _on_subscribe(self, client: "Any", data: "Any", packet_id: int, codes: "list[Any]", properties: "Any") -> None:
        topic = self._topics.pop(packet_id, "")
        if any(code.is_failure for code in codes):
            self._events.append((DENIED, topic))

    def _on_disconnect(self, client: "Any", data: "Any", flags: "Any", code: "Any", properties: "Any") -> None:
        # MQTT 3.1.1 has no packet in which a server says why it closes a connection.
        unsaid = str(code) == "Unspecified error"
        self._lost("the connection was lost" if unsaid else str(code))
