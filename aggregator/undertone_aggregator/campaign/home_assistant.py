"""The campaign as a device in Home Assistant: means with their intervals, facts such as θ, and the day against last
week.
"""

import math
from collections.abc import Iterable
from importlib import metadata

from undertone_aggregator.campaign.today import TOPIC
from undertone_aggregator.estimate.estimates import MODEL, Series
from undertone_shared.campaign import Campaign
from undertone_shared.off_board.discovery import Sensor, config_topic, message
from undertone_shared.off_board.issue import aggregate_topic

VERSION = metadata.version("undertone-ldp")
# Number of slots without a new value after which a value is unknown.
_STALE_SLOTS = 6
_LEAST_STALE_SECONDS = 300
# A displayed step is at most the largest reading divided by this number.
_STEP_SHARE = 1000
_MOST_DIGITS = 6
# Units that in Home Assistant belong to one quantity only, and to a class that a momentary value may have. Units of
# energy are left out: Home Assistant expects a meter's total there, and a mean over homes is no such total.
_DEVICE_CLASSES = {
    "power": ("mW", "W", "kW", "MW"),
    "temperature": ("°C", "°F"),
    "voltage": ("mV", "V"),
    "current": ("mA", "A"),
    "frequency": ("Hz", "kHz", "MHz"),
    "illuminance": ("lx",),
    "apparent_power": ("VA",),
    "reactive_power": ("var",),
    "pressure": ("Pa", "hPa", "kPa", "mbar", "bar"),
}


def identifier_of(campaign: str) -> str:
    """Return the identifier of the campaign's device in Home Assistant."""
    return f"undertone_{campaign}"


def device_class_of(unit: str, measure: str) -> str:
    """Return Home Assistant's class for readings in this unit, or "" if no class is certainly right.

    A ``sum`` adds samples, a ``counter`` is a difference, and a ``duration`` is a time: none is a momentary value in
    its unit.
    """
    if measure in ("sum", "counter", "duration"):
        return ""
    return next((name for name, units in _DEVICE_CLASSES.items() if unit in units), "")


def precision_of(campaign: Campaign) -> int:
    """Return how many digits after the point are shown: displayed steps are at most θ/1000.

    Before θ is known, the bound is used in place of θ.
    """
    largest = campaign.rule.theta or campaign.bound
    return min(max(0, math.ceil(math.log10(_STEP_SHARE / largest))), _MOST_DIGITS)


def discovery(
    home: str, prefix: str, campaign: Campaign, series: Iterable[Series], guarantee: str
) -> tuple[str, bytes]:
    """Return (topic, message) that shows these series; ``home`` is Home Assistant's prefix.

    Home Assistant shows the guarantee as the model of the device. In threshold rounds the numbers come from a fitted
    model, so the state of each series is unknown.
    """
    status = aggregate_topic(prefix, campaign.name, "status")
    lost = "value_json.lost.all.reports"
    sensors = [
        Sensor("theta", "theta", status, "theta", campaign.unit, diagnostic=True, precision=0),
        Sensor("lost", "reports lost", status, "", template=lost, diagnostic=True, state_class="total_increasing"),
        Sensor("phase", "phase", status, "phase", diagnostic=True),
    ]
    digits, kind = precision_of(campaign), device_class_of(campaign.unit, campaign.measure)
    for each in sorted(series):
        topic = aggregate_topic(prefix, campaign.name, each.topic)
        key = each.topic.replace("/", "_").replace("-", "_")
        # People should look at the filtered mean, so the filtered series has the plain name.
        name = str(each._replace(filtered=False)) + ("" if each.filtered else ", each slot by itself")
        for field, words in (("estimate", "mean"), ("low", "mean, at least"), ("high", "mean, at most")):
            # Home Assistant reads the text "None" as an unknown state.
            has_value = f"value_json.kind != '{MODEL}' and value_json.{field} is not none"
            sensors.append(
                Sensor(
                    f"{key}_{field}",
                    f"{name}: {words}",
                    topic,
                    field,
                    campaign.unit,
                    template=f"value_json.{field} | round({digits}) if {has_value} else none",
                    precision=digits,
                    device_class=kind,
                    state_class="measurement",
                )
            )
    today = aggregate_topic(prefix, campaign.name, TOPIC)
    for field, words in (("estimate", ""), ("low", ", at least"), ("high", ", at most")):
        sensors.append(
            Sensor(
                f"today_{field}",
                f"today so far, against the same day last week{words}",
                today,
                field,
                campaign.unit,
                template=f"value_json.{field} | round({digits})",
                precision=digits,
                device_class="" if kind == "temperature" else kind,
                state_class="measurement",
            )
        )
    stale = max(_STALE_SLOTS * campaign.slot_seconds, _LEAST_STALE_SECONDS)
    identifier = identifier_of(campaign.name)
    model = f"{campaign.measure} of {campaign.sensor}; {guarantee}"
    name = f"Undertone {campaign.name}"
    return config_topic(home, identifier), message(identifier, name, model, VERSION, sensors, expire_seconds=stale)


def removal(home: str, campaign: str) -> tuple[str, bytes]:
    """Return (topic, message) that removes the campaign's device from Home Assistant."""
    return config_topic(home, identifier_of(campaign)), b""
