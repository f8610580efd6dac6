"""A campaign's later end: its plan gets more report slots, and the server issues its newest epoch with the new end."""

from undertone_aggregator.base.durations import utc
from undertone_aggregator.campaign.binding import RETIRED, STATE
from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.toml import with_option
from undertone_operate.changes.changing import LENGTH, apply, begun, examine
from undertone_shared.errors import Invalid


def extend(
    home: Home,
    name: str,
    *,
    by: int | None = None,
    until: int | None = None,
    although_refused: bool = False,
    write: bool = True,
) -> list[str]:
    """Extend a campaign ``by`` seconds or ``until`` a Unix second, to whole slots; return sentences about the
    extension.

    ``write``: False changes nothing and only returns the sentences. Raises Invalid for a campaign that is retired, has
    not begun or has a successor, and for an end that is too early. Without ``although_refused``, also raises Invalid
    for an end that policies of devices refuse. Raises OSError.
    """
    config = home.config(home.only(name))
    slot = config.campaign.slot_seconds
    meta, timeline = begun(config)
    if meta.get(STATE) == RETIRED:
        raise Invalid(f"campaign {name} is retired for good: make a new campaign")
    if not len(timeline):
        raise Invalid(f"campaign {name} has no epoch yet: change campaign.{LENGTH} with undertone campaign apply")
    end = epochs_of(config).last_slot(timeline) + 1
    more = (until // slot - end) if until is not None else (by or 0) // slot
    if more < 1:
        given = utc(end * slot + (by or 0) if until is None else until)
        raise Invalid(
            f"the new end is {given}, expected {utc((end + 1) * slot)} or later: {name} ends at {utc(end * slot)}, and"
            f" a slot lasts {slot} s"
        )
    text = home.file(name).read_text(encoding="utf-8")
    text = with_option(text, "campaign", LENGTH, config.campaign.report_slots + more)
    if write:
        return apply(home, name, text, although_refused=although_refused)
    return [*examine(home, name, text).sentences, "nothing was written"]
