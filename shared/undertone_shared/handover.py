"""The hand-over: the server's signed request to its devices to go on at another address, in other campaigns, or both.

A hand-over follows the signature of a campaign's message: canonical JSON, then the 64 bytes of an Ed25519 signature of
its `digest_of`::

    {"all":{"host":"new.example","port":8883},"campaign":"power",
     "devices":{"c01ffdc9a8b3a5e2":{"agreed":["82ecb1c98d1abaed3a65aa243bdfabbf"],"campaigns":["heat"]}},
     "number":1790000000}

``all`` is for every device of the campaign, ``devices`` for single ones: their fields replace those of ``all``. The key
of a device is its `device_key`, a hash, so that nobody reads the names of others. ``campaign`` is the campaign in whose
message the hand-over is sent.
``number`` grows with each hand-over; the server takes the time in Unix seconds, or one more than the last number if
that is larger. A device refuses a number that is more than its policy's ``lead_seconds`` ahead, and obeys only if
its policy says ``handover``; it goes over to ``campaigns`` only if ``agreed`` has the fingerprint of what its household
agreed to. The policy's limits hold in the new campaign as in the old one, and the new address must show a certificate
that the device's authority signed.
"""

import hashlib

from undertone_shared.checks import check_integer, check_object, check_text, parse_json
from undertone_shared.errors import Invalid
from undertone_shared.topics import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGNATURE_BYTES = 64
MOST_CAMPAIGNS = 4
MOST_AGREED = 16
_LARGEST_NUMBER = 0xFFFFFFFF
_ENTRY = ("host", "port", "campaigns", "agreed")


def digest_of(body: "bytes | memoryview") -> bytes:
    """Return the digest that is signed: sha256("undertone hand-over 1\\n" + body)."""
    digest = hashlib.sha256(b"undertone hand-over 1\n")
    digest.update(body)
    return digest.digest()


def device_key(campaign: str, device: str) -> str:
    """Return the key of a device in ``devices``: 16 hexadecimal digits of a hash of both names."""
    digest = hashlib.sha256(b"undertone hand-over device 1\n")
    digest.update(("%s\n%s" % (campaign, device)).encode())
    return "".join(["%02x" % byte for byte in digest.digest()[:8]])


def split(trailer: "bytes | memoryview") -> "tuple[bytes, bytes]":
    """Return (body, signature) of what follows a campaign's signature. Raises Invalid."""
    if len(trailer) <= SIGNATURE_BYTES:
        raise Invalid("the hand-over has %d bytes, expected more than %d" % (len(trailer), SIGNATURE_BYTES))
    end = len(trailer) - SIGNATURE_BYTES
    return bytes(trailer[:end]), bytes(trailer[end:])


def parse(body: bytes) -> "dict[str, Any]":
    """Return the fields of a hand-over. Raises Invalid, naming the field."""
    value = parse_json("the hand-over", body, len(body))
    fields = check_object("the hand-over", value, ("all", "campaign", "devices", "number"))
    check_name("campaign", fields["campaign"])
    check_integer("number", fields["number"], 1, _LARGEST_NUMBER)
    check_entry("all", fields["all"])
    devices = fields["devices"]
    for name in check_object("devices", devices, (), devices):
        check_entry("devices." + _hex("a device's key", name, 16), devices[name])
    return fields


def check_entry(name: str, entry: "Any") -> "dict[str, Any]":
    """Return ``entry`` if its fields are valid: ``host`` with ``port``, ``campaigns`` with or without ``agreed``.

    Any of these may be missing. Raises Invalid, naming the field.
    """
    fields = check_object(name, entry, (), _ENTRY)
    if ("host" in entry) != ("port" in entry):
        raise Invalid("%s is %r, expected both host and port, or neither" % (name, entry))
    if "host" in entry:
        check_text(name + ".host", entry["host"], 255)
        check_integer(name + ".port", entry["port"], 1, 65535)
    if "campaigns" in entry:
        names = entry["campaigns"]
        if not isinstance(names, list) or not 1 <= len(names) <= MOST_CAMPAIGNS:
            raise Invalid("%s.campaigns is %r, expected 1 to %d names" % (name, names, MOST_CAMPAIGNS))
        for each in names:
            check_name(name + ".campaigns", each)
    if "agreed" in entry:
        agreed = entry["agreed"]
        if "campaigns" not in entry or not isinstance(agreed, list) or not 1 <= len(agreed) <= MOST_AGREED:
            raise Invalid(
                "%s.agreed is %r, expected 1 to %d fingerprints, with a field campaigns" % (name, agreed, MOST_AGREED)
            )
        for each in agreed:
            _hex(name + ".agreed", each, 32)
    return fields


def _hex(name: str, text: "Any", digits: int) -> str:
    if not isinstance(text, str) or len(text) != digits or text.strip("0123456789abcdef"):
        raise Invalid("%s is %r, expected %d digits of 0-9a-f" % (name, text, digits))
    return text


def entry_of(fields: "dict[str, Any]", device: str) -> "dict[str, Any]":
    """Return what a hand-over asks of one device: the fields of ``all``, replaced by its own."""
    entry = dict(fields["all"])
    entry.update(fields["devices"].get(device_key(fields["campaign"], device), {}))
    return entry
