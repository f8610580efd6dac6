"""The status of a device in the household's Home Assistant: budget spent, last report, pause, refusals. No readings.

The status is published to the household's own broker, never to the operator's. The file ``home_assistant.json`` beside
device.json names this broker by ``host`` and, if needed, ``tcp_port``, ``user``, ``password_file``, ``ca`` and
``prefix``. CPython only.
"""

import json
import os
import time
from typing import TYPE_CHECKING, Any

from undertone_device.core.units import UNIT
from undertone_device.host.household import epsilon_a_day, epsilon_spent, share_spent
from undertone_device.host.sources import fields as check
from undertone_device.host.sources.network import BROKER, BROKER_MAY, open_transport
from undertone_device.mqtt.packets import CONNECTED, LOST
from undertone_device.setup.config import DeviceConfig
from undertone_device.setup.storage import read_bounded
from undertone_shared.errors import Invalid
from undertone_shared.off_board import discovery

if TYPE_CHECKING:
    from undertone_device.host.paho_transport import PahoTransport

FILE = "home_assistant.json"
_LARGEST = 8192
_RETRY_SECONDS = 30
# Seconds after which an unchanged status is published again.
_ALIVE_SECONDS = 60
# Seconds after which Home Assistant shows a state as unknown unless it was published again.
_STALE_SECONDS = 300
_MONTH = 31 * 86400
_VERSION = "2"


class HomeAssistantCard:
    """Publishes one device's status; an unreachable broker is retried and delays nothing."""

    def __init__(self, name: str, transport: "PahoTransport", prefix: str):
        self._identifier = "undertone_device_%s" % name
        self._name = name
        self._transport = transport
        self._prefix = prefix
        self._topic = "undertone/home/%s" % name
        self._connected = False
        self._asked = False
        self._next: float = 0
        self._shown = b""
        self._shown_at: float = 0
        self.trouble = ""

    def show(self, status: dict[str, Any]) -> None:
        """Publish the status if it has changed or was last published a minute ago, without waiting."""
        now = time.monotonic()
        try:
            if not self._asked and now >= self._next:
                self._next = now + _RETRY_SECONDS
                self._transport.connect()
                self._asked = True
            for event in self._transport.poll(0):
                details: tuple[Any, ...] = event
                if event[0] == CONNECTED:
                    self._connected = True
                    self._shown = b""
                    self.trouble = ""
                    self._publish(discovery.config_topic(self._prefix, self._identifier), self._config())
                    self._publish(self._availability, b"online")
                elif event[0] == LOST:
                    self._lose(details[1])
        except OSError as error:
            self._lose(str(error))
        text = json.dumps(seen_of(status)).encode()
        if self._connected and (text != self._shown or now > self._shown_at + _ALIVE_SECONDS):
            self._publish(self._topic, text)
            self._shown, self._shown_at = text, now

    def close(self) -> None:
        """Publish that the device is offline, and disconnect."""
        if self._connected:
            self._publish(self._availability, b"offline")
            self._transport.poll(100)
        self._transport.close()

    @property
    def _availability(self) -> str:
        return self._topic + "/availability"

    def _publish(self, topic: str, payload: bytes) -> None:
        self._transport.publish(topic, payload, retain=True)

    def _lose(self, why: str) -> None:
        self._connected = self._asked = False
        self.trouble = f"Home Assistant's broker: {why}"

    def _config(self) -> bytes:
        topic = self._topic
        sensors = [
            discovery.Sensor(
                "day", "epsilon limit for any 24 hours", topic, "day", "ε", precision=2, state_class="measurement"
            ),
            discovery.Sensor(
                "month", "epsilon spent in thirty days", topic, "month", "ε", precision=2, state_class="measurement"
            ),
            discovery.Sensor(
                "ever", "epsilon spent in all", topic, "ever", "ε", precision=2, state_class="measurement"
            ),
            discovery.Sensor(
                "life", "share used of the limit for life", topic, "life", "%", precision=1, state_class="measurement"
            ),
            discovery.Sensor("last_report", "last report", topic, "last_report"),
            discovery.Sensor("paused", "paused", topic, "paused", binary=True),
            discovery.Sensor("why", "why nothing was reported", topic, "why", diagnostic=True),
            discovery.Sensor("refused", "campaigns refused", topic, "refused", diagnostic=True),
            discovery.Sensor("campaign", "campaign", topic, "campaign", diagnostic=True),
        ]
        name = f"Undertone {self._name}"
        return discovery.message(
            self._identifier, name, "device", _VERSION, sensors, self._availability, expire_seconds=_STALE_SECONDS
        )


def seen_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return the part that a household sees of the ``status`` from `undertone_device.host.status.describe`."""
    campaign = status["campaign"]
    streams = status["ever_rho"] / UNIT
    ends = status["spent_until"]
    lost, began = status["losses"], status["began"]
    day, share = epsilon_a_day(status), share_spent(status)
    return {
        "day": None if day is None else round(day, 3),
        # Streams are not counted by day, and the days' sums of a lost ledger are lost. The month's sum is then unknown.
        "month": None if streams or (lost and status["time"] - began < _MONTH) else round(status["month"] / UNIT, 3),
        # A lost ledger counts as the whole lifetime; without a lifetime the sum is unknown.
        "ever": None if lost and not status["lifetime"] else round(epsilon_spent(status), 3),
        "life": None if share is None else round(100 * share, 1),
        "last_report": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends)) if status["sequence"] else "never",
        "paused": status["paused"] == "pause",
        "why": status["paused"] or "",
        "refused": sum(status["refusals"].values()),
        "campaign": campaign["name"] if campaign else "none",
    }


def open_card(config: DeviceConfig) -> HomeAssistantCard | None:
    """Open the household's Home Assistant if ``home_assistant.json`` exists. Raises Invalid, naming the field."""
    path = os.path.join(config.folder, FILE)
    if not os.path.exists(path):
        return None
    data = read_bounded(path, _LARGEST)
    try:
        fields = json.loads(data)
    except ValueError:
        raise Invalid(f"{path} is not JSON") from None
    checked = check.parse_object(FILE, fields, config.folder, BROKER, BROKER_MAY | {"prefix": check.text()})
    return HomeAssistantCard(config.name, open_transport(checked), checked.get("prefix", discovery.DEFAULT_PREFIX))
