"""The series in Home Assistant: what the discovery message says; `test_home_assistant_program.py` runs the program."""

import json
from typing import Any

import jinja2
import pytest

from support.server import two_epochs
from undertone_aggregator.campaign.home_assistant import device_class_of, discovery, removal
from undertone_aggregator.estimate.estimates import Series
from undertone_aggregator.settings.server_options import ServerOptions
from undertone_shared.errors import Invalid

SERIES = [Series(), Series(filtered=True), Series("north-west", 2)]


def announced() -> tuple[str, dict[str, object]]:
    topic, text = discovery("homeassistant", "undertone/v2", two_epochs()[1].campaign, SERIES, "epsilon = 1")
    return topic, json.loads(text)


def state_of(component: dict[str, Any], value: dict[str, object]) -> str:
    """The state that Home Assistant shows for a message, computed with Jinja, its template language."""
    return jinja2.Template(component["value_template"]).render(value_json=value)


@pytest.mark.parametrize(
    ("unit", "measure", "expected"),
    [
        ("W", "mean", "power"),
        ("W", "sum", ""),
        ("Wh", "sum", ""),
        ("°C", "last", "temperature"),
        ("%", "mean", ""),
        ("A", "max", "current"),
        ("", "mean", ""),
    ],
)
def test_a_class_is_named_only_where_it_is_true(unit: str, measure: str, expected: str) -> None:
    assert device_class_of(unit, measure) == expected


def test_every_series_has_its_mean_and_interval() -> None:
    topic, value = announced()
    assert topic == "homeassistant/device/undertone_meters/config"
    components = value["components"]
    assert isinstance(components, dict)
    # Three entities for each series, one each for θ, lost reports and the phase, and three that compare today with the
    # same day of last week.
    assert len(components) == 3 + 3 * len(SERIES) + 3
    assert components["today_estimate"]["state_topic"] == "undertone/v2/meters/aggregate/all/today"
    assert state_of(components["today_low"], {"low": -1.26}) == "-1.3"
    assert components["all_raw_estimate"]["state_topic"] == "undertone/v2/meters/aggregate/all/raw"
    low = components["north_west_raw_2_low"]
    assert state_of(low, {"kind": "report", "low": 12.345678901234567}) == str(round(12.345678901234567, 1))
    assert state_of(low, {"kind": "model", "low": 12.3}) == "None", "a threshold round estimates nothing"
    assert state_of(low, {"kind": "report", "low": None}) == "None"
    assert low["suggested_display_precision"] == 1
    assert low["state_class"] == "measurement"
    assert "device_class" not in low, "the class energy is for a meter's total"
    assert "state_class" not in components["theta"]
    assert components["lost"]["state_class"] == "total_increasing"
    assert len({component["unique_id"] for component in components.values()}) == len(components)
    device = value["device"]
    assert isinstance(device, dict)
    assert "epsilon = 1" in device["model"]
    assert removal("homeassistant", "meters") == (topic, b"")


def test_a_household_sees_its_device_and_no_reading() -> None:
    from undertone_device.host.home_assistant import seen_of

    status = {
        "campaign": {"name": "load", "certificates": {"cohort": [5, 2], "report": [2721, 1001]}, "stream": None},
        "cap": [2721, 1001],
        "most_a_day": 48,
        "month": 3 << 20,
        "ever": 5 << 20,
        "ever_rho": 0,
        "lifetime": 20 << 20,
        "losses": 0,
        "time": 1_800_000_000,
        "began": 1_790_000_000,
        "streams": None,
        "spent_until": 1_800_000_000,
        "sequence": 9,
        "paused": "pause",
        "refusals": {"epsilon": 2, "rest": 1},
    }
    seen = seen_of(status)
    assert (seen["day"], seen["month"], seen["ever"], seen["refused"]) == (20.0, 3.0, 5.0, 3)
    assert seen["paused"] is True
    assert set(seen) == {"day", "month", "ever", "life", "last_report", "paused", "why", "refused", "campaign"}
    assert seen["life"] == 25.0


def test_a_discovery_prefix_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid):
        ServerOptions(home_assistant="a/#")
