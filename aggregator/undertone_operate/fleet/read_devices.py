"""The devices of a fleet, read from their files."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from undertone_aggregator.server.folder import SERVER, Home
from undertone_aggregator.store.inventory import REVOKED
from undertone_aggregator.store.store import NoStore, open_store
from undertone_device.setup import assembly
from undertone_device.setup.config import read_config
from undertone_shared.policy import Policy


@dataclass(frozen=True)
class ProvisionedDevice:
    """One device of the fleet.

    ``place``: the address (host, port) to which it connects. ``password``: reads its password there; the result is None
    for a device that logs in with a certificate. ``policy``: its owner's policy.
    """

    name: str
    place: tuple[str, int]
    password: Callable[[], str | None]
    policy: Policy


def read_provisioned(folder: Path) -> list[ProvisionedDevice]:
    """Return the devices of a folder such as `fleets/NAME`, sorted by name, without those that are revoked.

    The stores of the server's folder around it, if there is one, tell which devices are revoked. Raises Invalid for
    files that a device would refuse.
    """
    members, revoked = [], _revoked(folder)
    for path in sorted((folder / "devices").iterdir()):
        if path.name in revoked:
            continue
        config = read_config(str(path / "device.json"))
        broker = config.broker
        password = partial(assembly.read_password, broker)
        members.append(
            ProvisionedDevice(config.name, (broker.host, broker.port), password, assembly.read_policy(config))
        )
    return members


def _revoked(folder: Path) -> set[str]:
    """Return the devices that are revoked in a campaign of this fleet."""
    around = folder.resolve().parent.parent
    if not (around / SERVER).is_file():
        return set()
    home, revoked = Home(around), set()
    for name, url in home.stores().items():
        if home.fleet(name).resolve() == folder.resolve():
            with contextlib.suppress(NoStore), open_store(url, campaign=name, read_only=True) as store:
                revoked |= {device.name for device in store.devices().values() if device.state == REVOKED}
    return revoked
