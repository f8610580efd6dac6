"""The steps in which a person joins a campaign: the link, the offer, the entity; and a new password later."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import voluptuous as vol
from homeassistant.config_entries import ConfigEntry, ConfigFlow, ConfigFlowResult
from homeassistant.helpers import selector
from homeassistant.helpers.aiohttp_client import async_get_clientsession

from undertone_device.setup.storage import FileStorage

from . import device_folder
from .const import DEVICE, DOMAIN, ENTITY, FOLDER, LINK, OFFER
from .joining import JoinError, Link, ask_offer, redeem
from .participation import Invalid, Participation, store_files
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


class UndertoneFlow(ConfigFlow, domain=DOMAIN):
    """Join a campaign. Nothing is drawn and no device exists before the last step."""

    VERSION = 1

    def __init__(self) -> None:
        self._link: Link | None = None
        self._offer: dict[str, Any] = {}
        self._entry: ConfigEntry | None = None

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Take the link that the person was given, and ask the server for its offer."""
        errors = {}
        if user_input is not None:
            try:
                self._link = Link.parse(user_input[LINK])
                self._offer = await ask_offer(async_get_clientsession(self.hass), self._link, self.hass.config.language)
            except JoinError as error:
                errors[LINK] = _known(error)
            else:
                return await self.async_step_offer()
        schema = vol.Schema({vol.Required(LINK): selector.TextSelector()})
        return self.async_show_form(
            step_id="user", data_schema=self.add_suggested_values_to_schema(schema, user_input), errors=errors
        )

    async def async_step_offer(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Show who asks, what is measured, how often, and the guarantee; the person agrees and chooses the entity."""
        measures = self._offer["measures"]
        errors = {}
        if user_input is not None:
            state = self.hass.states.get(user_input[ENTITY])
            unit = None if state is None else state.attributes.get("unit_of_measurement")
            if not user_input[AGREE]:
                errors[AGREE] = "not_agreed"
            elif not convertible(unit, measures["unit"]):
                errors[ENTITY] = "wrong_unit"
            else:
                try:
                    return await self._join(user_input[ENTITY])
                except JoinError as error:
                    errors["base"] = _known(error)
                except Invalid:
                    errors["base"] = "invalid"
        guarantee, reports = self._offer["guarantee"], self._offer["reports"]
        return self.async_show_form(
            step_id="offer",
            data_schema=self.add_suggested_values_to_schema(
                vol.Schema({vol.Required(ENTITY): self._entities(), vol.Required(AGREE, default=False): bool}),
                user_input,
            ),
            description_placeholders={
                "operator": self._offer["operator"],
                "campaign": self._offer["campaign"],
                "about": self._offer.get("about") or "",
                "measures": measures["text"],
                "per_day": str(reports["per_day"]),
                "until": reports["until"],
                "day": guarantee["sentence_day"],
                "life": guarantee["sentence_life"],
            },
            errors=errors,
        )

    def _entities(self) -> selector.EntitySelector:
        """Return the choice of entities whose unit converts to the campaign's."""
        measures = self._offer["measures"]
        wanted = units_for(measures["unit"])
        entities = [
            state.entity_id
            for state in self.hass.states.async_all(("sensor", "number", "input_number"))
            if state.attributes.get("unit_of_measurement") in wanted
            and (measures["measure"] != "counter" or state.attributes.get("state_class") != "measurement")
        ]
        return selector.EntitySelector(selector.EntitySelectorConfig(include_entities=entities))

    async def _join(self, entity: str) -> ConfigFlowResult:
        """Redeem the code and store the device's files. Raises JoinError, Invalid."""
        assert self._link is not None
        # The key is on disk before it is used: if the answer is lost, or Home Assistant ends before it has stored the
        # new entry, the same link can be used again in this home. `async_setup_entry` deletes the key later.
        code = hashlib.sha256(self._link.code.encode()).hexdigest()[:16]
        key = await self.hass.async_add_executor_job(_key, device_folder(self.hass, f"{code}.key"))
        answer = await redeem(async_get_clientsession(self.hass), self._link, key)
        files: Mapping[str, str] = answer["files"]
        await self.async_set_unique_id(f"{self._link.base}#{answer['device']}")
        self._abort_if_unique_id_configured()
        folder = f"{answer['device']}-{code}"
        await self.hass.async_add_executor_job(
            store_files, device_folder(self.hass, folder), {**files, "device.json": _of_home(files["device.json"])}
        )
        return self.async_create_entry(
            title=f"{self._offer['operator']}: {self._offer['campaign']}",
            data={DEVICE: answer["device"], ENTITY: entity, FOLDER: folder, OFFER: self._offer},
        )

    async def async_step_reauth(self, entry_data: Mapping[str, Any]) -> ConfigFlowResult:
        """Begin to replace a password that the server refuses."""
        self._entry = self.hass.config_entries.async_get_entry(self.context["entry_id"])
        return await self.async_step_reauth_confirm()

    async def async_step_reauth_confirm(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Take the new password, which whoever runs the server has issued."""
        assert self._entry is not None
        errors = {}
        if user_input is not None:
            participation: Participation = self.hass.data[DOMAIN][self._entry.entry_id]
            try:
                await self.hass.async_add_executor_job(participation.set_password, user_input[PASSWORD].strip())
            except (Invalid, OSError):
                errors["base"] = "invalid"
            else:
                await self.hass.config_entries.async_reload(self._entry.entry_id)
                return self.async_abort(reason="reauth_successful")
        password = selector.TextSelector(selector.TextSelectorConfig(type=selector.TextSelectorType.PASSWORD))
        return self.async_show_form(
            step_id="reauth_confirm",
            data_schema=vol.Schema({vol.Required(PASSWORD): password}),
            description_placeholders={"title": self._entry.title},
            errors=errors,
        )


def _known(error: JoinError) -> str:
    if error.reason == "invalid":
        # The server calls a code invalid whose form is wrong; to a person that is a link that nobody knows.
        return "unknown"
    return error.reason if error.reason in _ERRORS else "cannot_connect"


def _key(path: Path) -> str:
    """Return the key that is stored at ``path``, a new one if there is none."""
    if path.exists():
        return path.read_text("ascii")
    key = secrets.token_hex(32)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    FileStorage(str(path.parent)).write(path.name, key.encode())
    return key


def _of_home(device: str) -> str:
    """Return device.json without a source, because Home Assistant gives the samples."""
    fields = json.loads(device)
    fields.pop("source", None)
    return json.dumps(fields)
