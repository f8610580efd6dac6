"""Runs Home Assistant in its own environment, and prints its MQTT entities as JSON whenever one changes.

Usage: python home_assistant_child.py FOLDER MQTT-PORT USER PASSWORD HTTP-PORT. Each line is {unique id: {"state",
"attributes", "precision", "device"}}. The program ends when standard input ends.
"""

import asyncio
import json
import sys
from pathlib import Path

from homeassistant import bootstrap
from homeassistant.core import callback
from homeassistant.helpers import device_registry, entity_registry
from homeassistant.runner import RuntimeConfig


def write_configuration(folder: Path, broker: dict[str, object], port: int) -> None:
    (folder / "configuration.yaml").write_text(
        f"http:\n  server_host: 127.0.0.1\n  server_port: {port}\n", encoding="utf-8"
    )
    storage = folder / ".storage"
    storage.mkdir()
    # Home Assistant writes this when a person sets up its MQTT integration.
    entry = {"entry_id": "mqtt", "version": 1, "minor_version": 1, "domain": "mqtt", "title": "endpoint",
             "data": broker, "options": {}, "pref_disable_new_entities": False, "pref_disable_polling": False,
             "source": "user", "unique_id": None, "disabled_by": None}  # fmt: skip
    stored = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": [entry]}}
    (storage / "core.config_entries").write_text(json.dumps(stored), encoding="utf-8")


async def run(folder: Path, broker: dict[str, object], port: int) -> None:
    write_configuration(folder, broker, port)
    hass = await bootstrap.async_setup_hass(
        RuntimeConfig(config_dir=str(folder), skip_pip=True, skip_pip_packages=[], recovery_mode=False)
    )
    assert hass is not None
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.run_in_executor(None, lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)))
    entities, devices = entity_registry.async_get(hass), device_registry.async_get(hass)

    @callback
    def show(_: object = None) -> None:
        shown = {}
        for entity in entities.entities.values():
            state = hass.states.get(entity.entity_id)
            if entity.platform == "mqtt" and state is not None:
                device = devices.async_get(entity.device_id) if entity.device_id else None
                shown[entity.unique_id] = {
                    "state": state.state,
                    "attributes": dict(state.attributes),
                    "precision": entity.options.get("sensor", {}).get("suggested_display_precision"),
                    "device": None if device is None else device.name,
                }
        print(json.dumps(shown, default=str), flush=True)

    for event in ("state_changed", "entity_registry_updated"):
        hass.bus.async_listen(event, show)
    show()
    await ended.wait()
    await hass.async_stop(force=True)


if __name__ == "__main__":
    place, mqtt, user, password, http = sys.argv[1:]
    data = {"broker": "127.0.0.1", "port": int(mqtt), "username": user, "password": password}
    asyncio.run(run(Path(place), data, int(http)))
