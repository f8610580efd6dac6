"""Hand-overs that a device obeys: checked once, and kept in the file ``handover``. The module is loaded on demand.

The address in ``device.json`` stays the second one: a device that is not let in at the new address tries both in turn.
"""

import json

from undertone_shared import handover
from undertone_shared.errors import Invalid, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_device.core.ledger import Storage
    from undertone_shared.policy import Policy

FILE = "handover"


def load(storage: "Storage") -> "dict[str, Any]":
    """Return the entry of the newest hand-over that the device has obeyed, with its ``number``; {} without one.

    A damaged file counts as none: the device then goes where its configuration says, and hears the hand-over again.
    """
    try:
        entry = json.loads(storage.read(FILE) or b"{}")
        number = entry.pop("number", 0)
        handover.check_entry("the hand-over", entry)
        entry["number"] = number
    except (ValueError, RuntimeError, AttributeError, TypeError):
        return {}
    return entry if number else {}


def take(
    trailer: "bytes | memoryview",
    campaign: str,
    device: str,
    policy: "Policy",
    storage: "Storage",
    alive: "Callable[[], object] | None",
) -> "dict[str, Any] | None":
    """Keep a hand-over that is newer than the last one; return its entry if it changes anything, else None.

    ``campaign``: the campaign in whose message it was. Raises Invalid and Refused for a hand-over that
    the device does not obey, OSError if it cannot be stored.
    """
    body, signature = handover.split(trailer)
    fields = handover.parse(body)
    before = load(storage)
    number = before.pop("number", 0)
    if fields["campaign"] != campaign:
        raise Refused("topic", "the hand-over is for %s, its topic says %s" % (fields["campaign"], campaign))
    if fields["number"] <= number:
        return None
    if not policy.signers:
        raise Refused("signature", "the policy names no signers")
    policy.check_signature(handover.digest_of(body), signature, alive)
    entry = handover.entry_of(fields, device)
    after = dict(before)
    after.update(entry)
    stored = dict(after)
    stored["number"] = fields["number"]
    storage.write(FILE, json.dumps(stored).encode())
    return after if after != before else None


def follow(client: "Any", campaign: str, trailer: "bytes | memoryview") -> bool:
    """Obey a hand-over that came with a campaign's message to a `Client`; return True if it must connect anew.

    What is not obeyed is in the client's ``trouble``.
    """
    reporter = client.reporter
    try:
        entry = take(trailer, campaign, reporter.device, reporter.policy, reporter.storage, client.alive)
    except (Refused, Invalid, OSError, MemoryError) as refused:
        client.trouble = "hand-over refused: %.300s" % refused
        return False
    if entry is None:
        return False
    client.transport.places[:] = places(entry, client.transport.configured)
    client.campaigns = campaigns(entry, client.campaigns)
    reporter.accepted.successors = tuple(entry.get("campaigns", ()))
    return True


def apply(config: "Any", storage: "Storage") -> None:
    """Put the kept hand-over into a `DeviceConfig`. Raises OSError."""
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
