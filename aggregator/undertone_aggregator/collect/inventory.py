"""Which devices an operator has, and in which state: in the store, so that every worker refuses who was revoked."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from undertone_aggregator.collect.seen import device_key

if TYPE_CHECKING:
    from undertone_aggregator.collect.store import Store

# The fact that is another one whenever the groups of devices are others; absent where nobody has kept groups.
GROUPED = "groups_edition"
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


def keep_groups(store: "Store", groups: Mapping[str, str]) -> bool:
    """Keep device -> group in a store, where its workers find it; whether anything is new."""
    edition = hashlib.sha256(json.dumps(sorted(groups.items())).encode()).hexdigest()
    if store.meta(GROUPED).get(GROUPED) == edition:
        return False
    with store.transaction():
        store.set_groups(groups)
        store.set_meta({GROUPED: edition})
    return True
