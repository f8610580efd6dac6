"""Undertone for Home Assistant: a home takes part in a campaign with one of its meters.

Each config entry is one participation: a device with its own ledger and policy, which runs in a thread of its own.
The released zip has the device package in the folder ``packages``. The package is no requirement of the manifest,
because it requires a newer paho-mqtt than the one that Home Assistant pins. The integration uses no paho-mqtt.
"""

# ruff: noqa: E402

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_PACKAGES = Path(__file__).parent / "packages"


def _load(name: str) -> None:
    """Import a package of the folder ``packages``, which stays out of the paths that other integrations import from."""
    spec = importlib.machinery.PathFinder.find_spec(name, [str(_PACKAGES)])
    if name in sys.modules or spec is None or spec.loader is None:
        return
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


for _name in ("undertone_shared", "undertone_device"):
    _load(_name)

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import Any

from homeassistant.const import EVENT_HOMEASSISTANT_STOP, Platform
from homeassistant.core import Event, HomeAssistant, State, callback
from homeassistant.exceptions import ConfigEntryError, ConfigEntryNotReady
from homeassistant.helpers import entity_registry
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.dispatcher import async_dispatcher_send
from homeassistant.helpers.event import (
    async_track_entity_registry_updated_event,
    async_track_state_change_event,
    async_track_time_interval,
)

from .const import ENTITY, FOLDER, SIGNAL
from .entity import UndertoneEntry
from .folders import device_folder, forget
from .issues import delete_issues, show_issue, update_issues
from .joining import JoinServer
from .links import JoinError
from .participation import Invalid, Joined, Participation, stored
from .units import convertible

_LOGGER = logging.getLogger(__name__)
PLATFORMS = [Platform.BUTTON, Platform.SENSOR, Platform.SWITCH]
_AGAIN = timedelta(seconds=30)
_LEAVE_SECONDS = 10
_RISING = ("total", "total_increasing")


async def async_setup_entry(hass: HomeAssistant, entry: UndertoneEntry) -> bool:
    """Start a participation."""
    folder = device_folder(hass, entry.data[FOLDER])
    try:
        agreed = await hass.async_add_executor_job(stored, folder, hass.config.language)
    except Invalid as error:
        raise ConfigEntryError(str(error)) from error
    except OSError as error:
        raise ConfigEntryNotReady(str(error)) from error
    measures = agreed["measures"]
    unit: str = measures["unit"]
    entity_id: str = entry.data[ENTITY]

    @callback
    def show() -> None:
        update_issues(hass, entry, participation)
        async_dispatcher_send(hass, SIGNAL.format(entry.entry_id))

    def changed() -> None:
        # While Home Assistant ends, its event loop may be closed before the device's thread has ended.
        with contextlib.suppress(RuntimeError):
            hass.loop.call_soon_threadsafe(show)

    state = hass.states.get(entity_id)
    cumulative = measures["measure"] == "counter" or (
        state is not None and state.attributes.get("state_class") in _RISING
    )
    try:
        # Reading a time zone's file may block.
        participation = await hass.async_add_executor_job(
            Participation, folder, unit, cumulative, changed, hass.config.language, hass.config.time_zone
        )
        await hass.async_add_executor_job(participation.start)
    except Invalid as error:
        raise ConfigEntryError(str(error)) from error
    except OSError as error:
        raise ConfigEntryNotReady(str(error)) from error
    entry.runtime_data = participation
    try:
        await _follow(hass, entry, participation, state, measures)
    except BaseException:
        # The device stops if its entities could not be added, because nobody could pause it without them.
        await hass.async_add_executor_job(participation.stop)
        raise
    return True


async def _follow(
    hass: HomeAssistant, entry: UndertoneEntry, participation: Participation, state: State | None, measures: Any
) -> None:
    """Pass the meter's states to the participation from now on, and add the participation's own entities."""
    unit: str = measures["unit"]
    entity_id: str = entry.data[ENTITY]

    @callback
    def take(newest: State | None) -> None:
        unit_now = None if newest is None else newest.attributes.get("unit_of_measurement")
        participation.source.offer(None if newest is None else newest.state, unit_now)
        wrong = (
            newest is not None and newest.state not in ("unavailable", "unknown") and not convertible(unit_now, unit)
        )
        show_issue(hass, entry, "wrong_unit", wrong, entity=entity_id, unit=str(unit_now), wanted=unit)
        # While Home Assistant starts, an absent entity is no issue: the meter's integration may start after this one.
        show_issue(hass, entry, "no_entity", newest is None and hass.is_running, entity=entity_id)

    @callback
    def on_change(event: Event) -> None:
        take(event.data["new_state"])

    @callback
    def on_time(_: Any) -> None:
        # A state that does not change makes no event, but it is a reading, too.
        take(hass.states.get(entity_id))
        update_issues(hass, entry, participation)

    @callback
    def on_registry(event: Event[entity_registry.EventEntityRegistryUpdatedData]) -> None:
        if event.data["action"] == "update" and "old_entity_id" in event.data:
            # A person has given the entity another id.
            hass.config_entries.async_update_entry(entry, data={**entry.data, ENTITY: event.data["entity_id"]})
            hass.config_entries.async_schedule_reload(entry.entry_id)

    async def stop(_: Event) -> None:
        await hass.async_add_executor_job(participation.stop)

    slot = int(measures["slot_seconds"])
    entry.async_on_unload(async_track_state_change_event(hass, entity_id, on_change))
    entry.async_on_unload(async_track_entity_registry_updated_event(hass, entity_id, on_registry))
    every = min(_AGAIN, timedelta(seconds=max(slot / 4, 0.25)))
    entry.async_on_unload(async_track_time_interval(hass, on_time, every))
    entry.async_on_unload(hass.bus.async_listen_once(EVENT_HOMEASSISTANT_STOP, stop))
    take(state)
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)


async def async_unload_entry(hass: HomeAssistant, entry: UndertoneEntry) -> bool:
    """Stop a participation; return True once its entities are removed and its thread has ended.

    Until then, nobody may start this participation again, because two threads would use the same files.
    """
    if not await hass.config_entries.async_unload_platforms(entry, PLATFORMS):
        return False
    return await hass.async_add_executor_job(entry.runtime_data.stop)


async def async_remove_entry(hass: HomeAssistant, entry: UndertoneEntry) -> None:
    """Leave: have the server revoke the device, and delete its files with its credentials.

    If the server cannot be reached, it sees only that the device reports no more.
    """
    delete_issues(hass, entry)
    folder = device_folder(hass, entry.data[FOLDER])
    try:
        joined = await hass.async_add_executor_job(Joined.read, folder)
        if joined is not None:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await JoinServer(async_get_clientsession(hass), joined.link).leave(joined.key)
    except (JoinError, OSError) as error:
        reason = error.reason if isinstance(error, JoinError) else type(error).__name__
        _LOGGER.warning("The server could not be told that this home has left %s: %s", entry.title, reason)
    await hass.async_add_executor_job(forget, folder)
