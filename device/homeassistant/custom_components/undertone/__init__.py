"""Undertone for Home Assistant: a home takes part in a campaign with one of its meters.

Each config entry is one participation: a device with its own ledger and policy, which runs in a thread of its own.
The released zip brings the device package in the folder ``packages``, because Home Assistant pins a version of
paho-mqtt that the package's own requirement excludes; the integration does not use paho-mqtt.
"""

# ruff: noqa: E402

import sys
from pathlib import Path

_PACKAGES = Path(__file__).parent / "packages"
if _PACKAGES.is_dir() and str(_PACKAGES) not in sys.path:
    sys.path.insert(0, str(_PACKAGES))

import shutil
from datetime import timedelta
from typing import Any

from homeassistant.config_entries import ConfigEntry
from homeassistant.const import EVENT_HOMEASSISTANT_STOP, Platform
from homeassistant.core import Event, HomeAssistant, State, callback
from homeassistant.exceptions import ConfigEntryError, ConfigEntryNotReady
from homeassistant.helpers import issue_registry
from homeassistant.helpers.dispatcher import async_dispatcher_send
from homeassistant.helpers.event import (
    async_call_later,
    async_track_state_change_event,
    async_track_time_interval,
)

from .const import DOMAIN, ENTITY, FOLDER, OFFER, SIGNAL
from .participation import Invalid, Participation
from .units import convertible

PLATFORMS = [Platform.BUTTON, Platform.SENSOR, Platform.SWITCH]
_AGAIN = timedelta(seconds=30)
# Home Assistant stores a new entry within seconds; the key that can repeat the redemption is deleted after this time.
_STORED = timedelta(minutes=2)
_RISING = ("total", "total_increasing")


def device_folder(hass: HomeAssistant, name: str) -> Path:
    """Return the folder of a participation's files. It is in the configuration folder, which survives updates."""
    return Path(hass.config.path(".storage", DOMAIN, name))


async def async_setup_entry(hass: HomeAssistant, entry: ConfigEntry) -> bool:
    """Start a participation."""
    offer: dict[str, Any] = entry.data[OFFER]
    unit: str = offer["measures"]["unit"]
    folder = device_folder(hass, entry.data[FOLDER])

    @callback
    def show() -> None:
        _update_issues(hass, entry, participation)
        async_dispatcher_send(hass, SIGNAL.format(entry.entry_id))

    def changed() -> None:
        hass.loop.call_soon_threadsafe(show)

    entity_id: str = entry.data[ENTITY]
    state = hass.states.get(entity_id)
    cumulative = offer["measures"]["measure"] == "counter" or (
        state is not None and state.attributes.get("state_class") in _RISING
    )
    participation = Participation(folder, unit, cumulative, changed)
    try:
        await hass.async_add_executor_job(participation.start)
    except Invalid as error:
        raise ConfigEntryError(str(error)) from error
    except OSError as error:
        raise ConfigEntryNotReady(str(error)) from error
    hass.data.setdefault(DOMAIN, {})[entry.entry_id] = participation

    @callback
    def take(newest: State | None) -> None:
        unit_now = None if newest is None else newest.attributes.get("unit_of_measurement")
        participation.source.offer(None if newest is None else newest.state, unit_now)
        wrong = (
            newest is not None and newest.state not in ("unavailable", "unknown") and not convertible(unit_now, unit)
        )
        _issue(hass, entry, "wrong_unit", wrong, entity=entity_id, unit=str(unit_now), wanted=unit)

    @callback
    def on_change(event: Event) -> None:
        take(event.data["new_state"])

    @callback
    def on_time(_: Any) -> None:
        # A state that stays the same makes no event, but it is a reading all the same.
        take(hass.states.get(entity_id))

    slot = int(offer["measures"]["slot_seconds"])
    entry.async_on_unload(async_track_state_change_event(hass, entity_id, on_change))
    every = min(_AGAIN, timedelta(seconds=max(slot / 4, 0.25)))
    entry.async_on_unload(async_track_time_interval(hass, on_time, every))
    take(state)

    async def stop(_: Event) -> None:
        await hass.async_add_executor_job(participation.stop)

    entry.async_on_unload(hass.bus.async_listen_once(EVENT_HOMEASSISTANT_STOP, stop))
    key_file = device_folder(hass, f"{entry.data[FOLDER].rpartition('-')[2]}.key")

    async def forget_key(_: Any) -> None:
        await hass.async_add_executor_job(lambda: key_file.unlink(missing_ok=True))

    entry.async_on_unload(async_call_later(hass, _STORED, forget_key))
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    return True


async def async_unload_entry(hass: HomeAssistant, entry: ConfigEntry) -> bool:
    """Stop a participation."""
    unloaded = await hass.config_entries.async_unload_platforms(entry, PLATFORMS)
    if unloaded:
        participation: Participation = hass.data[DOMAIN].pop(entry.entry_id)
        await hass.async_add_executor_job(participation.stop)
    return unloaded


async def async_remove_entry(hass: HomeAssistant, entry: ConfigEntry) -> None:
    """Leave: delete the device's files with its credentials. The server sees that it reports no more."""
    for name in _ISSUES:
        issue_registry.async_delete_issue(hass, DOMAIN, f"{name}_{entry.entry_id}")
    folder = device_folder(hass, entry.data[FOLDER])
    await hass.async_add_executor_job(lambda: shutil.rmtree(folder, ignore_errors=True))


_ISSUES = ("wrong_unit", "campaign_refused", "wrong_clock", "campaign_over", "lifetime_spent")
_BY_PAUSE = {"clock": "wrong_clock", "ended": "campaign_over"}


def _update_issues(hass: HomeAssistant, entry: ConfigEntry, participation: Participation) -> None:
    """Raise and clear repair issues by the device's status, and ask for a new password if the old one is refused."""
    state = participation.state
    if state is None:
        return
    for word, name in _BY_PAUSE.items():
        _issue(hass, entry, name, state["paused"] == word)
    _issue(hass, entry, "lifetime_spent", bool(state["lifetime"]) and state["ever"] >= state["lifetime"])
    trouble: str = state["trouble"]
    _issue(hass, entry, "campaign_refused", trouble.startswith("campaign refused"), reason=trouble)
    if "refuses the connection" in trouble or "not authorised" in trouble.lower():
        entry.async_start_reauth(hass)


def _issue(hass: HomeAssistant, entry: ConfigEntry, name: str, present: bool, **words: str) -> None:
    key = f"{name}_{entry.entry_id}"
    if not present:
        issue_registry.async_delete_issue(hass, DOMAIN, key)
        return
    issue_registry.async_create_issue(
        hass,
        DOMAIN,
        key,
        is_fixable=False,
        severity=issue_registry.IssueSeverity.WARNING,
        translation_key=name,
        translation_placeholders={"title": entry.title, **words},
    )
