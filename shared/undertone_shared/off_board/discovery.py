"""Home Assistant's MQTT discovery: one message per device that names its sensors. A board does not carry this module.

Topic ``<prefix>/device/<identifier>/config``, retained; an empty message removes the device again. The states of the
sensors are in JSON objects, which are published on other topics.
"""

import json

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DEFAULT_PREFIX = "homeassistant"
ORIGIN = "Undertone"


class Sensor:
    """One sensor: ``key`` names it within its device; ``field`` of the JSON object on ``topic`` is its state.

    ``template`` in place of a field is a Jinja expression over ``value_json``. ``binary``: on or off. ``precision``:
    digits that are shown after the point. ``device_class``, ``state_class``: Home Assistant's words for what is
    measured, and for the statistics that it can keep.
    """

    def __init__(
        self,
        key: str,
        name: str,
        topic: str,
        field: str,
        unit: str = "",
        template: str = "",
        binary: bool = False,
        diagnostic: bool = False,
        precision: "int | None" = None,
        device_class: str = "",
        state_class: str = "",
    ):
        self.key = key
        self.name = name
        self.topic = topic
        self.unit = unit
        self.template = template or "value_json.%s" % field
        self.binary = binary
        self.diagnostic = diagnostic
        self.precision = precision
        self.device_class = device_class
        self.state_class = state_class

    def component(self, identifier: str, expire_seconds: int) -> "dict[str, Any]":
        """Return the sensor's part of the message for Home Assistant."""
        component: dict[str, Any] = {
            "platform": "binary_sensor" if self.binary else "sensor",
            "unique_id": "%s_%s" % (identifier, self.key),
            "name": self.name,
            "state_topic": self.topic,
            "value_template": "{{ %s }}" % self.template,
        }
        if expire_seconds:
            component["expire_after"] = expire_seconds
        if self.binary:
            component["payload_on"] = "True"
            component["payload_off"] = "False"
        elif self.unit:
            component["unit_of_measurement"] = self.unit
        if self.state_class:
            component["state_class"] = self.state_class
        if self.device_class:
            component["device_class"] = self.device_class
        if self.precision is not None:
            component["suggested_display_precision"] = self.precision
        if self.diagnostic:
            component["entity_category"] = "diagnostic"
        return component


def config_topic(prefix: str, identifier: str) -> str:
    """Return the topic of a device's discovery message."""
    return "%s/device/%s/config" % (prefix, identifier)


def message(
    identifier: str,
    name: str,
    model: str,
    version: str,
    sensors: "Sequence[Sensor]",
    availability: str = "",
    expire_seconds: int = 0,
) -> bytes:
    """Return the retained message of a device with these sensors.

    ``availability``: a topic with the messages ``online`` or ``offline``. ``expire_seconds``: age after which a state
    is unknown; 0 for never. Raises Invalid for an identifier that is not valid in a topic.
    """
    for character in identifier:
        if character not in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-":
            raise Invalid("the identifier is %r, expected letters, digits, _ and -" % (identifier,))
    check_integer("expire_seconds", expire_seconds, 0, (1 << 30) - 1)
    fields: dict[str, Any] = {
        "device": {"identifiers": [identifier], "name": name, "manufacturer": ORIGIN, "model": model},
        "origin": {"name": ORIGIN, "sw_version": version},
        "components": {sensor.key: sensor.component(identifier, expire_seconds) for sensor in sensors},
    }
    if availability:
        fields["availability"] = [{"topic": availability}]
    return json.dumps(fields).encode()
