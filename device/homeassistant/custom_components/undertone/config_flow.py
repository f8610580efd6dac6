"""The steps in which a person joins: the link, the offer, the entity. Later: another entity, a new password."""

import re
import secrets
from collections.abc import Mapping
from typing import Any

import voluptuous as vol
from homeassistant.config_entries import ConfigFlow, ConfigFlowResult
from homeassistant.core import HomeAssistant
from homeassistant.helpers import selector
from homeassistant.helpers.aiohttp_client import async_get_clientsession

from .const import DEVICE, DOMAIN, ENTITY, FOLDER, LINK, OFFER
from .folders import device_folder, forget
from .joining import JoinServer
from .links import JoinError, Link
from .participation import Invalid, Joined, set_password, shown, store_files, stored
from .units import convertible, units_for

AGREE, PASSWORD = "agree", "password"
_ERRORS = (
    "cannot_connect",
    "certificate",
    "expired",
    "invalid",
    "invalid_link",
    "revoked",
    "slow_down",
    "unavailable",
    "unknown",
    "used",
)
# Refusals after which the same link may work again with the same key.
_AGAIN = ("cannot_connect", "certificate", "slow_down", "unavailable")
# Characters that Markdown would read as markup.
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~])")


class UndertoneFlow(ConfigFlow, domain=DOMAIN):
    """Join a campaign. Before the last step there is no device, and no random number is drawn for a report."""

    VERSION = 1

    def __init__(self) -> None:
        self._joined: Joined | None = None

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Take the link that the person was given, and ask the server for its offer."""
        errors = {}
        if user_input is not None:
            try:
                link = Link.parse(user_input[LINK])
                # The same link may be open, unfinished, in another window.
                await self.async_set_unique_id(link.folder, raise_on_progress=False)
                self._abort_if_unique_id_configured()
                self._joined = await self._begin(link)
            except JoinError as error:
                errors[LINK] = _known(error)
            else:
                return await self.async_step_offer()
        schema = vol.Schema({vol.Required(LINK): selector.TextSelector()})
        return self.async_show_form(
            step_id="user", data_schema=self.add_suggested_values_to_schema(schema, user_input), errors=errors
        )

    async def _begin(self, link: Link) -> Joined:
        """Return the server's offer and a new key, or the stored ones if this home has used the link before.

        Raises JoinError.
        """
        before = await self.hass.async_add_executor_job(Joined.read, device_folder(self.hass, link.folder))
        if before is not None:
            return Joined(link, before.key, before.offer)
        offer = await JoinServer(async_get_clientsession(self.hass), link).offer(self.hass.config.language)
        return Joined(link, secrets.token_hex(32), offer)

    async def async_step_offer(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Show who asks, what is measured, how often, and the guarantee; the person agrees and chooses the entity."""
        assert self._joined is not None
        offer = self._joined.offer
        agreed = await self.hass.async_add_executor_job(shown, offer, self.hass.config.language)
        measures = agreed["measures"]
        errors = {}
        if user_input is not None:
            if not user_input[AGREE]:
                errors[AGREE] = "not_agreed"
            elif not _fits(self.hass, user_input[ENTITY], measures):
                errors[ENTITY] = "wrong_unit"
            else:
                try:
                    return await self._join(self._joined, user_input[ENTITY])
                except JoinError as error:
                    errors["base"] = _known(error)
                except Invalid:
                    errors["base"] = "invalid"
                except OSError:
                    errors["base"] = "disk"
        schema = vol.Schema(
            {vol.Required(ENTITY): _entities(self.hass, measures), vol.Required(AGREE, default=False): bool}
        )
        return self.async_show_form(
            step_id="offer",
            data_schema=self.add_suggested_values_to_schema(schema, user_input),
            description_placeholders={
                # The title of the step shows this name as plain text, so nothing is escaped in it.
                "operator": offer["operator"],
                "asks": _plain(offer["operator"]),
                "campaign": _plain(offer["campaign"]),
                "about": _plain(offer["about"] or "–"),
                # Every sentence about the policy comes from the device package, which also enforces the policy.
                "agreement": "\n\n".join(f"**{title}:** {_plain(text)}" for _, title, text in agreed["rows"]),
                "expert": _plain(agreed["expert"]),
            },
            errors=errors,
        )

    async def _join(self, joined: Joined, entity: str) -> ConfigFlowResult:
        """Redeem the code and store the device's files. Raises JoinError, Invalid, OSError."""
        self._abort_if_unique_id_configured()
        folder = device_folder(self.hass, joined.link.folder)
        server = JoinServer(async_get_clientsession(self.hass), joined.link)
        # The key is on disk before it is used: if the answer is lost, or Home Assistant ends before it has stored the
        # new entry, the same link can be used again in this home.
        joined = await self.hass.async_add_executor_job(joined.store, folder)
        try:
            answer = await server.redeem(joined.key)
        except JoinError as error:
            if error.reason not in _AGAIN:
                await self.hass.async_add_executor_job(forget, folder)
            raise
        try:
            name, files = answer["device"], answer["files"]
            if not isinstance(name, str) or not isinstance(files, dict):
                raise Invalid("the answer has no device or no files")
            await self.hass.async_add_executor_job(store_files, folder, files, joined)
        except (Invalid, KeyError, TypeError, AttributeError):
            await self.hass.async_add_executor_job(forget, folder)
            await server.leave(joined.key)
            raise Invalid("the server sent files that this home cannot use") from None
        return self.async_create_entry(
            title=f"{joined.offer['operator']}: {joined.offer['campaign']}",
            data={DEVICE: name, ENTITY: entity, FOLDER: joined.link.folder, OFFER: joined.offer},
        )

    async def async_step_reconfigure(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Measure with another entity from now on; the ledger and the policy stay."""
        entry = self._get_reconfigure_entry()
        folder = device_folder(self.hass, entry.data[FOLDER])
        agreed = await self.hass.async_add_executor_job(stored, folder, self.hass.config.language)
        measures = agreed["measures"]
        errors = {}
        if user_input is not None:
            if _fits(self.hass, user_input[ENTITY], measures):
                return self.async_update_reload_and_abort(entry, data_updates={ENTITY: user_input[ENTITY]})
            errors[ENTITY] = "wrong_unit"
        schema = vol.Schema({vol.Required(ENTITY): _entities(self.hass, measures)})
        return self.async_show_form(
            step_id="reconfigure",
            data_schema=self.add_suggested_values_to_schema(schema, user_input or entry.data),
            description_placeholders={"title": entry.title, "measures": _plain(agreed["what"])},
            errors=errors,
        )

    async def async_step_reauth(self, entry_data: Mapping[str, Any]) -> ConfigFlowResult:
        """Begin to replace a password that the server refuses."""
        return await self.async_step_reauth_confirm()

    async def async_step_reauth_confirm(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Take the new password, which the people who run the server have issued."""
        entry = self._get_reauth_entry()
        errors = {}
        if user_input is not None:
            folder = device_folder(self.hass, entry.data[FOLDER])
            try:
                await self.hass.async_add_executor_job(set_password, folder, user_input[PASSWORD].strip())
            except (Invalid, OSError):
                errors[PASSWORD] = "invalid_password"
            else:
                return self.async_update_reload_and_abort(entry)
        password = selector.TextSelector(selector.TextSelectorConfig(type=selector.TextSelectorType.PASSWORD))
        return self.async_show_form(
            step_id="reauth_confirm",
            data_schema=vol.Schema({vol.Required(PASSWORD): password}),
            description_placeholders={"title": entry.title},
            errors=errors,
        )


def _entities(hass: HomeAssistant, measures: dict[str, Any]) -> selector.EntitySelector:
    """Return the choice of the entities that can measure this."""
    wanted = units_for(measures["unit"])
    entities = [
        state.entity_id
        for state in hass.states.async_all(("sensor", "number", "input_number"))
        if state.attributes.get("unit_of_measurement") in wanted
        and (measures["measure"] != "counter" or state.attributes.get("state_class") != "measurement")
    ]
    return selector.EntitySelector(selector.EntitySelectorConfig(include_entities=entities))


def _fits(hass: HomeAssistant, entity: str, measures: dict[str, Any]) -> bool:
    """Return True if the entity has a unit that converts to the campaign's."""
    state = hass.states.get(entity)
    return state is not None and convertible(state.attributes.get("unit_of_measurement"), measures["unit"])


def _known(error: JoinError) -> str:
    if error.reason == "invalid":
        # The server says "invalid" of a code that has a wrong form. A person reads that the link is unknown.
        return "unknown"
    return error.reason if error.reason in _ERRORS else "cannot_connect"


def _plain(text: str) -> str:
    """Return text from the server so that Markdown shows it as it is, without links and pictures."""
    return _MARKUP.sub(r"\\\1", text)
