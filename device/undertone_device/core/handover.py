"""Hand-overs that a device obeys: checked once, and kept in the file ``handover``. The module is loaded on demand.

The address in ``device.json`` stays as a second address: a device that is not let in at the new address tries both in
turn.
"""

import json

from undertone_shared import handover
from undertone_shared.errors import Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_device.core.guard import Guard
    from undertone_device.core.ledger import Storage

FILE = "handover"
_FURTHER = ("number", "history", "outside")
_LONGEST_HISTORY = 8


def load(storage: "Storage") -> "dict[str, Any]":
    """Return what the device has kept of the hand-overs that it obeyed, {} without one. Raises OSError.

    The fields are those of a hand-over's entry for a device, each from the newest hand-over that had it, and three
    more. ``number``: the newest hand-over's. ``history``: [number, campaigns] of each hand-over to other campaigns,
    oldest first, at most 8. ``outside``: campaigns that a hand-over named although the household had not agreed to
    them. A damaged file counts as none: the device then goes where its configuration says, and hears the hand-over
    again.
    """
    try:
        entry = json.loads(storage.read(FILE) or b"{}")
        further = {name: entry.pop(name) for name in _FURTHER if name in entry}
        handover.check_entry("the hand-over", entry)
        if not isinstance(further.get("history", []), list) or not isinstance(further.get("outside", []), list):
            return {}
        entry.update(further)
    except (ValueError, RuntimeError, AttributeError, TypeError):
        return {}
    return entry if further.get("number", 0) else {}


def take(
    trailer: "bytes | memoryview",
    campaign: str,
    device: str,
    guard: "Guard",
    now: int,
    alive: "Callable[[], object] | None",
) -> "dict[str, Any] | None":
    """Keep a hand-over that is newer than the last one; return all that is kept if it changes anything, else None.

    ``campaign``: the campaign in whose message the hand-over was. ``now``: Unix seconds. The ledger has the number,
    too, so that no older hand-over is obeyed after the file was damaged. Raises Invalid and Refused for a hand-over
    that the device does not obey, OSError if it cannot be stored.
    """
    policy, ledger, storage = guard.policy, guard.ledger, guard.storage
    body, signature = handover.split(trailer)
    fields = handover.parse(body)
    before = load(storage)
    kept = before.pop("number", 0)
    newest = max(kept, ledger.handover)
    number = fields["number"]
    if fields["campaign"] != campaign:
        raise Refused("topic", "the hand-over for %s came on the topic of %s" % (fields["campaign"], campaign))
    if number < newest or number == kept == ledger.handover:
        return None
    if not policy.signers:
        raise Refused("signature", "the policy names no signers")
    policy.check_signature(handover.digest_of(body), signature, alive)
    if number > now + policy.lead_seconds:
        # A number far ahead is refused: with it, a thief of the key could block every later hand-over.
        raise Refused(
            "ahead",
            "the hand-over's number is %d, expected at most %d s after now (%d)" % (number, policy.lead_seconds, now),
        )
    entry = handover.entry_of(fields, device)
    after = dict(before)
    campaigns = entry.pop("campaigns", None)
    agreed = entry.pop("agreed", ())
    after.update(entry)
    if campaigns is not None:
        if policy.agreed and policy.agreed in agreed:
            if after.get("campaigns") != campaigns:
                after["history"] = (after.get("history", []) + [[number, campaigns]])[-_LONGEST_HISTORY:]
            after["campaigns"] = campaigns
            after.pop("outside", None)
        else:
            after["outside"] = campaigns
    stored = dict(after)
    stored["number"] = number
    storage.write(FILE, json.dumps(stored).encode())
    ledger.handover = number
    if not ledger.lost:
        guard.write()
    return after if after != before else None


def follow(client: "Any", campaign: str, trailer: "bytes | memoryview") -> bool:
    """Obey a hand-over that came with a campaign's message to a `Client`; return True if it must connect anew.

    If the device does not obey it, the client's ``trouble`` says why.
    """
    reporter, platform = client.reporter, client.platform
    try:
        entry = take(trailer, campaign, reporter.device, reporter.guard, platform.clock(), platform.alive)
    except (Refused, Invalid, OSError, MemoryError) as refused:
        client.trouble = "hand-over refused: %.300s" % refused
        return False
    if entry is None:
        return False
    if entry.get("outside"):
        client.trouble = "campaign refused: the agreement does not cover %s" % ", ".join(entry["outside"])
    before = (client.transport.places[:], client.config.campaigns)
    client.transport.places[:] = places(entry, client.transport.configured)
    client.config.campaigns = campaigns(entry, client.config.campaigns)
    reporter.accepted.successors = tuple(entry.get("campaigns", ()))
    return (client.transport.places, client.config.campaigns) != before


def apply(config: "Any", storage: "Storage") -> None:
    """Put the address and the campaigns of the kept hand-over into a `DeviceConfig`. Raises OSError."""
    entry = load(storage)
    config.broker.places = places(entry, (config.broker.host, config.broker.port))
    config.campaigns = campaigns(entry, config.campaigns)
    config.successors = tuple(entry.get("campaigns", ()))


def places(entry: "dict[str, Any]", configured: "tuple[str, int]") -> "list[tuple[str, int]]":
    """Return the addresses to try: that of the hand-over, if it names one, then the configured one."""
    if "host" not in entry or (entry["host"], entry["port"]) == configured:
        return [configured]
    return [(entry["host"], entry["port"]), configured]


def campaigns(entry: "dict[str, Any]", configured: "tuple[str, ...]") -> "tuple[str, ...]":
    """Return the campaigns to listen to: the configured ones, and those of the hand-over."""
    return configured + tuple([name for name in entry.get("campaigns", ()) if name not in configured])
