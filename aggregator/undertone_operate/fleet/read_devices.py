"""The devices of a fleet, read from their files."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from undertone_device.setup import assembly
from undertone_device.setup.config import read_config
from undertone_shared.policy import Policy


@dataclass(frozen=True)
class ProvisionedDevice:
    """One device of the fleet: its name, where its password at the broker is read from, and its owner's policy."""

    name: str
    password: Callable[[], str | None]
    policy: Policy


def read_provisioned(folder: Path) -> list[ProvisionedDevice]:
    """Return the devices of a folder such as `fleets/NAME`, by name. Raises Invalid for files that no device takes."""
    members = []
    for path in sorted((folder / "devices").iterdir()):
        config = read_config(str(path / "device.json"))
        members.append(
            ProvisionedDevice(config.name, partial(assembly.read_password, config.broker), assembly.read_policy(config))
        )
    return members
