"""The hand-over: the server's signed request to its devices to go on at another address, or in another campaign.

It follows the signature of a campaign's message: canonical JSON, then 64 bytes of Ed25519 signature of `digest_of` it::

    {"all":{"host":"new.example","port":8883},"campaign":"power","devices":{"power-3":{"campaigns":["heat"]}},
     "number":1790000000}

``all`` is for every device of the campaign, ``devices`` for single ones, whose fields come first. ``campaign`` is the
campaign in whose message it is sent, ``number`` grows with each hand-over. A device obeys only if its policy says
``handover``; the policy's limits hold in the new campaign as in the old one, and the new address must show a
certificate that the device's authority signed.
"""

import hashlib
import json

from undertone_shared.checks import check_integer, check_object, check_text
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGNATURE_BYTES = 64
MOST_CAMPAIGNS = 4
_LARGEST_NUMBER = (1 << 53) - 1
_ENTRY = ("host", "port", "campaigns")


def digest_of(body: "bytes | memoryview") -> bytes:
    """Return the digest that is signed: sha256("undertone hand-over 1\\n" + body)."""
    digest = hashlib.sha256(b"undertone hand-over 1\n")
    digest.update(body)
    return digest.digest()


def split(trailer: "bytes | memoryview") -> "tuple[bytes, bytes]":
    """Return (body, signature) of what follows a campaign's signature. Raises Invalid."""
    if len(trailer) <= SIGNATURE_BYTES:
        raise Invalid("the hand-over has %d bytes, expected more than %d" % (len(trailer), SIGNATURE_BYTES))
    end = len(trailer) - SIGNATURE_BYTES
    return bytes(trailer[:end]), bytes(trailer[end:])


def parse(body: bytes) -> "dict[str, Any]":
    """Return the fields of a hand-over. Raises Invalid, naming the field."""
    try:
        value = json.loads(body)
    except (ValueError, RuntimeError):
        raise Invalid("the hand-over is not JSON")
    fields = check_object("the hand-over", value, ("all", "campaign", "devices", "number"))
    check_name("campaign", fields["campaign"])
    check_integer("number", fields["number"], 1, _LARGEST_NUMBER)
    check_entry("all", fields["all"])
    if not isinstance(fields["devices"], dict):
        raise Invalid("devices is %r, expected an object" % (fields["devices"],))
    for name in fields["devices"]:
        check_entry("devices." + check_name("device", name), fields["devices"][name])
    return fields


def check_entry(name: str, entry: "Any") -> "dict[str, Any]":
    """Return an entry: a host and its port, and names of campaigns, either or both. Raises Invalid."""
    if not isinstance(entry, dict):
        raise Invalid("%s is %r, expected an object" % (name, entry))
    check_object(name, entry, tuple([field for field in _ENTRY if field in entry]))
    if ("host" in entry) != ("port" in entry):
        raise Invalid("%s is %r, expected a host and its port" % (name, entry))
    if "host" in entry:
        check_text(name + ".host", entry["host"], 255)
        check_integer(name + ".port", entry["port"], 1, 65535)
    if "campaigns" in entry:
        names = entry["campaigns"]
        if not isinstance(names, list) or not 1 <= len(names) <= MOST_CAMPAIGNS:
            raise Invalid("%s.campaigns is %r, expected 1 to %d names" % (name, names, MOST_CAMPAIGNS))
        for each in names:
            check_name(name + ".campaigns", each)
    return entry


def entry_of(fields: "dict[str, Any]", device: str) -> "dict[str, Any]":
    """Return what a hand-over asks of one device: the fields of ``all``, replaced by its own."""
    entry = dict(fields["all"])
    entry.update(fields["devices"].get(device, {}))
    return entry
