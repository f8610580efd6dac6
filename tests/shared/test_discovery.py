"""The form of Home Assistant's discovery messages.

test_home_assistant.py checks them by Home Assistant's own schema.
"""

import json

import pytest

from undertone_shared.errors import Invalid
from undertone_shared.off_board.discovery import Sensor, config_topic, message


def test_a_device_names_its_sensors() -> None:
    sensors = [
        Sensor("mean", "all mean", "t/a", "estimate", "Wh"),
        Sensor("on", "paused", "t/b", "paused", binary=True),
    ]
    value = json.loads(message("undertone_load", "Undertone load", "sum", "1", sensors, "t/c", 300))
    assert value["device"]["identifiers"] == ["undertone_load"]
    assert value["origin"] == {"name": "Undertone", "sw_version": "1"}
    assert value["availability"] == [{"topic": "t/c"}]
    mean = value["components"]["mean"]
    assert mean == {
        "platform": "sensor",
        "unique_id": "undertone_load_mean",
        "name": "all mean",
        "state_topic": "t/a",
        "value_template": "{{ value_json.estimate }}",
        "expire_after": 300,
        "unit_of_measurement": "Wh",
    }
    assert value["components"]["on"]["payload_on"] == "True"
    assert config_topic("homeassistant", "undertone_load") == "homeassistant/device/undertone_load/config"


@pytest.mark.parametrize("identifier", ["a/b", "a b", "a+", "é"])
def test_an_identifier_that_a_topic_cannot_carry_is_refused(identifier: str) -> None:
    with pytest.raises(Invalid, match="identifier"):
        message(identifier, "n", "m", "1", [])
