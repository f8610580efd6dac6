"""Which devices an operator has, and in which state: in the store, so that every worker refuses who was revoked."""

from typing import NamedTuple

from undertone_aggregator.collect.seen import device_key

ACTIVE = "active"
REVOKED = "revoked"
FORGOTTEN = "forgotten"
STATES = (ACTIVE, REVOKED, FORGOTTEN)


class Device(NamedTuple):
    """One device. ``since``: Unix second at which its state began."""

    name: str
    group: str
    state: str
    since: int


def tombstone(device: Device, now: int) -> Device:
    """What is left of a forgotten device: its key, from which nobody reads the name, and which keeps it from reuse."""
    return Device(key_text(device.name), "", FORGOTTEN, now)


def key_text(name: str) -> str:
    """The deduplication's key of a name, in hexadecimal."""
    return f"{device_key(name)[1]:016x}"
