"""The campaign as a device of Home Assistant: each group's mean with its interval, and θ."""

from collections.abc import Iterable
from importlib import metadata

from undertone_aggregator.estimate.estimates import Series
from undertone_shared.campaign import Campaign
from undertone_shared.discovery import Sensor, config_topic, message
from undertone_shared.issue import aggregate_topic

VERSION = metadata.version("undertone-ldp")
# Slots without news after which a number is unknown.
_STALE_SLOTS = 6
_LEAST_STALE_SECONDS = 300


def identifier_of(campaign: str) -> str:
    """The device's identifier."""
    return f"undertone_{campaign}"


def discovery(
    home: str, prefix: str, campaign: Campaign, series: Iterable[Series], guarantee: str
) -> tuple[str, bytes]:
    """(topic, message) that shows these series; ``home`` is Home Assistant's prefix. The guarantee is in the model."""
    status = aggregate_topic(prefix, campaign.name, "status")
    sensors = [
        Sensor("theta", "theta", status, "theta", campaign.unit, diagnostic=True),
        Sensor("lost", "reports lost", status, "", template="value_json.lost.all.reports", diagnostic=True),
    ]
    for each in sorted(series):
        topic = aggregate_topic(prefix, campaign.name, each.topic)
        key = each.topic.replace("/", "_").replace("-", "_")
        for field, words in (("estimate", "mean"), ("low", "95 % from"), ("high", "95 % to")):
            sensors.append(Sensor(f"{key}_{field}", f"{each} {words}", topic, field, campaign.unit))
    stale = max(_STALE_SLOTS * campaign.slot_seconds, _LEAST_STALE_SECONDS)
    identifier = identifier_of(campaign.name)
    model = f"{campaign.measure} of {campaign.sensor}; {guarantee}"
    name = f"Undertone {campaign.name}"
    return config_topic(home, identifier), message(identifier, name, model, VERSION, sensors, expire_seconds=stale)


def removal(home: str, campaign: str) -> tuple[str, bytes]:
    """(topic, message) that removes the device."""
    return config_topic(home, identifier_of(campaign)), b""
