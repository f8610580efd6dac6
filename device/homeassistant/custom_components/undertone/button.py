"""The button that ends a participation for good."""

from homeassistant.components.button import ButtonEntity
from homeassistant.const import EntityCategory
from homeassistant.core import HomeAssistant
from homeassistant.helpers.entity_platform import AddEntitiesCallback

from .entity import ParticipationEntity, UndertoneEntry

PARALLEL_UPDATES = 1


async def async_setup_entry(
    hass: HomeAssistant, entry: UndertoneEntry, async_add_entities: AddEntitiesCallback
) -> None:
    """Add the button of one participation."""
    async_add_entities([LeaveButton(entry, entry.runtime_data, "leave")])


class LeaveButton(ParticipationEntity, ButtonEntity):
    """Leave: the participation is removed with its files. Joining again needs a new link."""

    # The button stands among the settings, so that nobody presses it by mistake instead of the switch.
    _attr_entity_category = EntityCategory.CONFIG

    @property
    def available(self) -> bool:
        """Return True: leaving is always possible."""
        return True

    async def async_press(self) -> None:
        """Remove the participation."""
        self.hass.async_create_task(self.hass.config_entries.async_remove(self.entry.entry_id))
