"""Samples from other systems: an MQTT topic (Zigbee2MQTT, Tasmota, Shelly, statestream), a Home Assistant entity."""

import contextlib
import http.client
import io
import json
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

from undertone_device.host.sources import fields as check
from undertone_device.host.sources.fields import Checks, Fields
from undertone_device.host.sources.source import Kind, SensorSource
from undertone_device.mqtt.packets import CONNECTED, DENIED, LOST, MESSAGE
from undertone_device.sensors.decimals import units
from undertone_device.setup.storage import LARGEST_SECRET, read_bounded
from undertone_device.setup.tls_context import verified_context
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_device.host.paho_transport import PahoTransport

_RETRY_SECONDS = 5
_ANSWER_SECONDS = 5
_LARGEST = 65536
_LARGEST_CA = 65536


def number_in(text: bytes, field: str | None, scale: tuple[int, int]) -> int:
    """Return the number in a text, or in ``field`` (names joined by dots) of a JSON object, times ``scale``.

    Raises ValueError.
    """
    if field is None:
        return units(text.decode().strip(), scale)
    # Digits stay text, so that no floating-point number is involved.
    try:
        value: Any = json.loads(text, parse_float=str, parse_int=str)
    except RecursionError:
        raise ValueError("the object is nested too deeply") from None
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"no field {field!r}")
        value = value[name]
    if not isinstance(value, str):
        raise ValueError(f"the field {field!r} is no number")
    return units(value, scale)


class Topic(SensorSource):
    """Numbers that arrive on an MQTT topic, as text or in a JSON object. Retained messages are old and are ignored."""

    polled = False

    def __init__(self, fields: Fields):
        self._transport = open_transport(fields)
        self._topic = fields["topic"]
        self._field = fields.get("field")
        self._scale = fields.get("scale", (1, 1))
        self._next: float = 0
        self._connected = False

    def arrived(self) -> list[int]:
        """Return the numbers since the last call."""
        readings = []
        try:
            if not self._connected and time.monotonic() >= self._next:
                self._next = time.monotonic() + _RETRY_SECONDS
                self._transport.connect()
                self._connected = True
            for event in self._transport.poll(0):
                readings += self._heard(event)
        except OSError as error:
            self._lost(str(error))
        return readings

    def _heard(self, event: Any) -> list[int]:
        if event[0] == CONNECTED:
            self._transport.subscribe(self._topic)
        elif event[0] == LOST:
            self._lost(event[1])
        elif event[0] == DENIED:
            self.trouble = f"no sample: the broker refuses the subscription to {event[1]}"
        elif event[0] == MESSAGE and not event[3]:
            try:
                reading = number_in(event[2], self._field, self._scale)
            except UnicodeError:
                self.trouble = f"no sample: {event[1]}: the message is no text"
                return []
            except ValueError as error:
                self.trouble = f"no sample: {event[1]}: {error}"
                return []
            self.trouble = ""
            return [reading]
        return []

    def _lost(self, why: str) -> None:
        self._connected = False
        self.trouble = f"no sample: {why}"

    def close(self) -> None:
        """Disconnect from the broker."""
        self._transport.close()


class _Answer(io.RawIOBase):
    """Data that a socket receives, with one deadline for the whole answer. A slow server is thus abandoned."""

    def __init__(self, connection: socket.socket, end: float):
        self._connection = connection
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {_ANSWER_SECONDS} s")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file object from which `http.client` reads an answer."""
        return io.BufferedReader(self)


class Entity(SensorSource):
    """The state of a Home Assistant entity, by its REST API with a long-lived token."""

    slow = True

    def __init__(self, fields: Fields):
        url = fields["url"].rstrip("/")
        if "@" in url:
            # The address is not in the sentence, because it may contain a password.
            raise Invalid("source.url has an @, expected http:// or https:// and a host, without a user")
        try:
            parts = urllib.parse.urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise Invalid(f"source.url is {url!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Invalid(f"source.url is {fields['url']!r}, expected http:// or https:// and a host")
        self._kind = http.client.HTTPConnection if parts.scheme == "http" else http.client.HTTPSConnection
        self._address = (parts.hostname, port)
        self._path = f"{parts.path}/api/states/{fields['entity']}"
        self._url = f"{url}/api/states/{fields['entity']}"
        self._token = _secret(fields, "token_file")
        self._scale = fields.get("scale", (1, 1))

    def sample(self, now: int) -> int:
        """Return the current state. Raises ValueError for a state that is no number, such as ``unavailable``; OSError.

        A redirection is an error, because the token must not be sent to another address.
        """
        host, port = self._address
        end = time.monotonic() + _ANSWER_SECONDS
        connection = self._kind(host, port, timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {self._token}", "Connection": "close"}
            connection.request("GET", self._path, headers=headers)
            answer = http.client.HTTPResponse(_Answer(connection.sock, end), method="GET")  # type: ignore[arg-type]
            with answer:
                answer.begin()
                if not 200 <= answer.status < 300:
                    # The message appears in status and log, so it does not name the target of a redirection: that
                    # address may contain a secret.
                    elsewhere = " and redirects: give source.url the new address"
                    points = elsewhere if answer.getheader("Location") else ""
                    raise OSError(f"{self._url} answers with HTTP status {answer.status}{points}")
                text = answer.read(_LARGEST)
        return number_in(text, "state", self._scale)


def open_transport(fields: Fields) -> "PahoTransport":
    """Make a connection to the household's own broker, with TLS if ``ca`` is given. Raises Invalid."""
    # The import is here, because a program that brings its own transport may lack paho-mqtt.
    from undertone_device.host.paho_transport import PahoTransport

    ca = fields.get("ca")
    context = None if ca is None else verified_context(read_bounded(ca, _LARGEST_CA), ca)
    port = fields.get("tcp_port", 1883 if ca is None else 8883)
    password = _secret(fields, "password_file")
    # Without a client id the broker assigns one, so that two connections of this household cannot have the same id.
    return PahoTransport(fields["host"], port, "", fields.get("user"), password, context=context)


def _secret(fields: Fields, name: str) -> str | None:
    if name not in fields:
        return None
    data = read_bounded(fields[name], LARGEST_SECRET)
    # The secret is used in headers, whose errors quote it, so it must be a plain line.
    text = data.decode(errors="replace").strip("\r\n")
    if not text.isprintable() or not 1 <= len(data) <= LARGEST_SECRET or "\ufffd" in text:
        raise Invalid(
            f"{fields[name]} holds no secret: expected one line of 1 to {LARGEST_SECRET} bytes of printable text"
        )
    return text


# Fields for the household's own broker, see `open_transport`.
BROKER: Checks = {"host": check.text()}
BROKER_MAY: Checks = {"tcp_port": check.port, "user": check.text(), "password_file": check.path, "ca": check.path}

KINDS = {
    "mqtt": Kind(Topic, BROKER | {"topic": check.text()}, BROKER_MAY | {"field": check.text(), "scale": check.scale}),
    "home-assistant": Kind(
        Entity,
        {"url": check.text(), "entity": check.text(), "token_file": check.path},
        {"scale": check.scale, "twice": check.flag},
    ),
}
