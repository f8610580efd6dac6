"""The operator's inventory of devices. It is in the store, so that every worker refuses revoked devices."""

from collections.abc import Iterable
from typing import NamedTuple

from undertone_aggregator.counts.seen import device_key

ACTIVE = "active"
REVOKED = "revoked"
FORGOTTEN = "forgotten"
# The device went to another campaign. Its reports that are still under way are counted.
MOVED = "moved"
STATES = (ACTIVE, REVOKED, FORGOTTEN, MOVED)
# States of the devices whose reports are refused.
REFUSED = (REVOKED, FORGOTTEN)


class Device(NamedTuple):
    """One device. ``since``: the Unix second at which its state began."""

    name: str
    group: str
    state: str
    since: int


def tombstone(device: Device, now: int) -> Device:
    """Return the row of a forgotten device: its key, which does not reveal the name but prevents the name's reuse."""
    return Device(key_text(device.name), "", FORGOTTEN, now)


def refused_keys(devices: Iterable[Device]) -> frozenset[int]:
    """Return the keys of devices whose reports are refused. A forgotten device stays refused."""
    return frozenset(
        int(device.name, 16) if device.state == FORGOTTEN else device_key(device.name)[1]
        for device in devices
        if device.state in REFUSED
    )


def key_text(name: str) -> str:
    """Return the deduplication key of a name, in hexadecimal."""
    return f"{device_key(name)[1]:016x}"
