"""Repair issues, which tell a person what to mend or to know, and Home Assistant's request for a new password."""

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant
from homeassistant.helpers import issue_registry

from .const import DOMAIN
from .participation import Participation

ISSUES = (
    "wrong_unit",
    "no_entity",
    "campaign_refused",
    "campaign_outside",
    "wrong_clock",
    "campaign_over",
    "lifetime_spent",
)
# The device's word for why it sends nothing -> the issue to show.
_BY_PAUSE = {"clock": "wrong_clock", "ended": "campaign_over"}


def update_issues(hass: HomeAssistant, entry: ConfigEntry, participation: Participation) -> None:
    """Raise and clear repair issues by the device's status, and ask for a new password if the old one is refused."""
    state = participation.state
    if state is None:
        return
    for word, name in _BY_PAUSE.items():
        show_issue(hass, entry, name, state["paused"] == word)
    # The device also pauses for "lifetime" when less than one report's cost is left: "ever" is then below "lifetime".
    spent = state["paused"] == "lifetime" or (bool(state["lifetime"]) and state["ever"] >= state["lifetime"])
    show_issue(hass, entry, "lifetime_spent", spent)
    trouble: str = state["trouble"]
    outside = state["outside"]
    refused = trouble.startswith("campaign refused") and not outside
    show_issue(hass, entry, "campaign_refused", refused, reason=participation.refusal)
    show_issue(hass, entry, "campaign_outside", bool(outside), campaign=", ".join(outside))
    if participation.refused:
        entry.async_start_reauth(hass)


def show_issue(hass: HomeAssistant, entry: ConfigEntry, name: str, present: bool, **words: str) -> None:
    """Raise one of `ISSUES` if ``present``, and clear it otherwise.

    ``words``: values for the placeholders in its text.
    """
    key = _key(entry, name)
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


def delete_issues(hass: HomeAssistant, entry: ConfigEntry) -> None:
    """Clear every issue of a participation."""
    for name in ISSUES:
        issue_registry.async_delete_issue(hass, DOMAIN, _key(entry, name))


def _key(entry: ConfigEntry, name: str) -> str:
    return f"{name}_{entry.entry_id}"
