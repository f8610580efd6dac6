"""The sensors that a household sees: budget spent, last report, refusals, and the comparison with other homes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from homeassistant.components.sensor import SensorDeviceClass, SensorEntity, SensorStateClass
from homeassistant.const import PERCENTAGE, EntityCategory
from homeassistant.core import HomeAssistant
from homeassistant.helpers.entity_platform import AddEntitiesCallback

from undertone_device.core.units import UNIT
from undertone_device.host import household
from undertone_device.host.others import THOUSAND

from .entity import ParticipationEntity, UndertoneEntry
from .participation import Participation

# The device pushes its status, so Home Assistant never polls for it.
PARALLEL_UPDATES = 0

Status = dict[str, Any]
Value = float | int | str | datetime | None


@dataclass(frozen=True)
class Shown:
    """One sensor: its value from the device's status, and how Home Assistant shows it.

    ``counts``: True for a number that only grows.
    """

    key: str
    value: Callable[[Status], Value]
    attributes: Callable[[Status], dict[str, Any]] = lambda status: {}
    device_class: SensorDeviceClass | None = None
    precision: int | None = None
    unit: str | None = None
    counts: bool = False
    category: EntityCategory | None = EntityCategory.DIAGNOSTIC


def _why(status: Status) -> str:
    """Return why the status is what it is: a word of the device, which is translated, or a sentence; "" for none."""
    parts = ("source", "paused", "trouble") if status["online"] else ("trouble", "source", "paused")
    return next((status[part] for part in parts if status[part]), "")


def _recent(status: Status) -> float | None:
    # Streams are not counted by day.
    return None if status["ever_rho"] else status["recent"] / UNIT


def _lifetime(status: Status) -> dict[str, Any]:
    return {"bound": household.epsilon_for_life(status)}


def _used_percent(status: Status) -> float | None:
    share = household.share_spent(status)
    return None if share is None else 100 * share


def _next_report(status: Status) -> datetime | None:
    campaign = status["campaign"]
    if campaign is None or status["paused"] in ("ended", "lifetime", "pause", "no_campaign"):
        return None
    slot = campaign["slot_seconds"]
    return datetime.fromtimestamp((status["time"] // slot + 1) * slot, UTC)


def _last_report(status: Status) -> datetime | None:
    return _time(status["spent_until"]) if status["sequence"] else None


def _time(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _connection(status: Status) -> str:
    if not status["online"]:
        return "offline"
    if status["paused"] == "pause":
        return "paused"
    return "no_reading" if status["source"] else "online"


SENSORS = (
    Shown("status", _connection, lambda s: {"why": _why(s)}, category=None),
    Shown("budget_used", _used_percent, precision=1, unit=PERCENTAGE, category=None),
    Shown("spent_today", _recent, precision=2),
    Shown("any_24_hours", household.epsilon_a_day, precision=2),
    Shown("spent_for_life", household.epsilon_spent, _lifetime, precision=2),
    Shown("last_reading", lambda s: _time(s["last_reading"]), device_class=SensorDeviceClass.TIMESTAMP),
    Shown("last_report", _last_report, device_class=SensorDeviceClass.TIMESTAMP),
    Shown("next_report", _next_report, device_class=SensorDeviceClass.TIMESTAMP),
    Shown("reports", lambda s: s["counts"]["acked"], counts=True),
    Shown("refusals", lambda s: sum(s["refusals"].values()), lambda s: dict(s["refusals"]), counts=True),
)


async def async_setup_entry(
    hass: HomeAssistant, entry: UndertoneEntry, async_add_entities: AddEntitiesCallback
) -> None:
    """Add the sensors of one participation."""
    participation = entry.runtime_data
    async_add_entities(ParticipationSensor(entry, participation, shown) for shown in SENSORS)
    async_add_entities(ComparedSensor(entry, participation, side, span) for span in SPANS for side in SIDES)


# The spans of time in `undertone_device.host.others.Comparison.summary`.
SPANS = ("newest", "evening", "week")
# A side of the comparison -> the key of its number in a span.
SIDES = {"home": "own", "others": "mean"}


class ComparedSensor(ParticipationEntity, SensorEntity):
    """The home's own number, or the published mean of its group or of all homes, for one of `SPANS`."""

    _attr_state_class = SensorStateClass.MEASUREMENT

    def __init__(self, entry: UndertoneEntry, participation: Participation, side: str, span: str) -> None:
        super().__init__(entry, participation, f"{side}_{span}")
        self._side, self._span = side, span
        self._attr_native_unit_of_measurement = participation.unit or None

    @property
    def available(self) -> bool:
        """Return True while the device runs and the comparison is switched on."""
        return super().available and self.participation.compares

    @property
    def _row(self) -> dict[str, Any]:
        compared = self.participation.compared or {}
        row = compared.get(self._span)
        if row is None and (self._side, self._span) == ("others", "newest"):
            row = compared.get("others")
        return row or {}

    @property
    def native_value(self) -> float | None:
        """Return the number of this side."""
        value = self._row.get(SIDES[self._side])
        return None if value is None else round(value / THOUSAND, 1)

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        """Return the beginning and end of the time that the number covers.

        For a published mean, return its group and the two ends of its interval, too.
        """
        row = self._row
        if not row:
            return {}
        times = {"from": _time(row["start"]), "to": _time(row["end"])}
        if self._side == "home":
            return times
        limits = {"at_least": round(row["low"] / THOUSAND, 1), "at_most": round(row["high"] / THOUSAND, 1)}
        return {"group": self.participation.compared_group, **times, **limits}


class ParticipationSensor(ParticipationEntity, SensorEntity):
    """One number, word or time of the device's status."""

    def __init__(self, entry: UndertoneEntry, participation: Participation, shown: Shown) -> None:
        super().__init__(entry, participation, shown.key)
        self._shown = shown
        self._attr_device_class = shown.device_class
        self._attr_native_unit_of_measurement = shown.unit
        self._attr_suggested_display_precision = shown.precision
        self._attr_entity_category = shown.category
        if shown.key == "status":
            self._attr_device_class = SensorDeviceClass.ENUM
            self._attr_options = ["no_reading", "offline", "online", "paused"]
        if shown.counts:
            self._attr_state_class = SensorStateClass.TOTAL_INCREASING

    @property
    def native_value(self) -> Value:
        """Return the value of the newest status."""
        status = self.participation.state
        return None if status is None else self._shown.value(status)

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        """Return the further attributes that this sensor takes from the status."""
        status = self.participation.state
        return {} if status is None else self._shown.attributes(status)
