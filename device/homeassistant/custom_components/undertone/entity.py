"""What the entities of a participation have in common."""

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import callback
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.dispatcher import async_dispatcher_connect
from homeassistant.helpers.entity import Entity

from .const import DEVICE, DOMAIN, SIGNAL
from .participation import Participation

# A config entry whose ``runtime_data`` is the participation.
UndertoneEntry = ConfigEntry[Participation]


class ParticipationEntity(Entity):
    """An entity of one participation; its state is written anew whenever the device's status changes."""

    _attr_has_entity_name = True
    _attr_should_poll = False

    def __init__(self, entry: UndertoneEntry, participation: Participation, key: str) -> None:
        self.entry = entry
        self.participation = participation
        self._attr_translation_key = key
        self._attr_unique_id = f"{entry.entry_id}_{key}"
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            name=entry.title,
            model=entry.data[DEVICE],
            manufacturer="Undertone",
            entry_type=DeviceEntryType.SERVICE,
        )

    @property
    def available(self) -> bool:
        """Return True while the device runs and has a status."""
        return self.participation.state is not None and not self.participation.error

    async def async_added_to_hass(self) -> None:
        """Subscribe to changes of the status."""
        self.async_on_remove(
            async_dispatcher_connect(self.hass, SIGNAL.format(self.entry.entry_id), self._status_changed)
        )

    @callback
    def _status_changed(self) -> None:
        self.async_write_ha_state()
