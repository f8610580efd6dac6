"""The operator's inventory of devices and their states, in the store, so that every worker refuses revoked devices."""

from collections.abc import Iterable
from typing import NamedTuple

from undertone_aggregator.counts.seen import device_key

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
    """Return a forgotten device's entry: a key from which the name cannot be read, but which prevents its reuse."""
    return Device(key_text(device.name), "", FORGOTTEN, now)


def refused_keys(devices: Iterable[Device]) -> frozenset[int]:
    """Return the keys of devices whose reports are refused.

    A revoked device stays refused after its name is deleted.
    """
    return frozenset(
        int(device.name, 16) if device.state == FORGOTTEN else device_key(device.name)[1]
        for device in devices
        if device.state != ACTIVE
    )


def key_text(name: str) -> str:
    """Return the deduplication key of a name, in hexadecimal."""
    return f"{device_key(name)[1]:016x}"
