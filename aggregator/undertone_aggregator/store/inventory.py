"""Which devices an operator has, and in which state: in the store, so that every worker refuses who was revoked."""

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
    """What is left of a forgotten device: its key, from which nobody reads the name, and which keeps it from reuse."""
    return Device(key_text(device.name), "", FORGOTTEN, now)


def refused_keys(devices: Iterable[Device]) -> frozenset[int]:
    """Keys of those whose reports are refused: to drop the name of a revoked device does not let it in again."""
    return frozenset(
        int(device.name, 16) if device.state == FORGOTTEN else device_key(device.name)[1]
        for device in devices
        if device.state != ACTIVE
    )


def key_text(name: str) -> str:
    """The deduplication's key of a name, in hexadecimal."""
    return f"{device_key(name)[1]:016x}"
