"""The switches of a participation: the household's pause, which keeps the device's own rules, and the comparison."""

from datetime import UTC, datetime
from typing import Any

from homeassistant.components.switch import SwitchEntity
from homeassistant.const import EntityCategory
from homeassistant.core import HomeAssistant
from homeassistant.exceptions import HomeAssistantError
from homeassistant.helpers.entity_platform import AddEntitiesCallback

from undertone_device.core.pauses import ENDLESS
from undertone_device.setup import clock

from .const import DOMAIN
from .entity import ParticipationEntity, UndertoneEntry
from .participation import Invalid

# Only one switch is set at a time, because the household's pause is one file.
PARALLEL_UPDATES = 1


async def async_setup_entry(
    hass: HomeAssistant, entry: UndertoneEntry, async_add_entities: AddEntitiesCallback
) -> None:
    """Add the switches of one participation."""
    async_add_entities(
        [PauseSwitch(entry, entry.runtime_data, "pause"), CompareSwitch(entry, entry.runtime_data, "compare")]
    )


class PauseSwitch(ParticipationEntity, SwitchEntity):
    """On: the home reports nothing once the pause has begun. The server can see that the home is silent."""

    @property
    def is_on(self) -> bool | None:
        """Return True from the request for a pause until the pause ends, so also before it begins."""
        status = self.participation.state
        return None if status is None else status["pause"][1] > clock.unix_time()

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        """Return when the pause begins and ends; None for no pause, and for a pause without an end."""
        status = self.participation.state
        if status is None:
            return {}
        start, until = (
            None if second in (0, ENDLESS) else datetime.fromtimestamp(second, UTC) for second in status["pause"]
        )
        return {"from": start, "until": until}

    async def async_turn_on(self, **_: Any) -> None:
        """Ask for a pause. It begins at the first edge of a slot once the policy's rest has passed."""
        await self._pause(True)

    async def async_turn_off(self, **_: Any) -> None:
        """End the pause at an edge of a slot, as early as the device's rules allow; cancel it if it has not begun."""
        await self._pause(False)

    async def _pause(self, on: bool) -> None:
        try:
            await self.hass.async_add_executor_job(self.participation.pause, on)
        except (Invalid, OSError) as error:
            raise HomeAssistantError(translation_domain=DOMAIN, translation_key="not_paused") from error


class CompareSwitch(ParticipationEntity, SwitchEntity):
    """On: this home receives the published means, and shows its own numbers beside them.

    For this the home sends only a subscription.
    """

    _attr_entity_category = EntityCategory.CONFIG

    @property
    def is_on(self) -> bool:
        """Return True if the home is compared with the others."""
        return self.participation.compares

    async def async_turn_on(self, **_: Any) -> None:
        """Compare from the next slot on."""
        self.participation.compare(True)

    async def async_turn_off(self, **_: Any) -> None:
        """Stop comparing, and delete what was stored for the comparison."""
        self.participation.compare(False)
