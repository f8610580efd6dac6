"""Changes of a fleet while it reports: add devices, renew passwords, revoke devices, forget them.

The devices' files and the store's inventory are kept consistent. A name is never given twice, even after its
device was forgotten. The reports of a revoked device stay in the sums, because they cannot be separated there.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.campaign.handover import leaving
from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.counts.device_states import SEEN
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.counts.seen import Seen, device_key
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.credentials import Secret
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.groups import append_groups, change_group, keep_groups, remove_device
from undertone_aggregator.settings.report_sources import DIRECT
from undertone_aggregator.store.inventory import ACTIVE, FORGOTTEN, REVOKED, Device, key_text, tombstone
from undertone_aggregator.store.store import Store, open_store
from undertone_device.core.ledger import DEFAULT_OUTBOX
from undertone_device.setup.config import read_config
from undertone_operate.fleet.authority import revoke_certificates
from undertone_operate.fleet.device_files import (
    AUTHORITY,
    DEVICE,
    IDENTITY,
    Target,
    agreeing,
    groups_entry,
    policy_of,
    signers,
    target_of,
    write_certificate,
    write_device,
)
from undertone_operate.fleet.join_codes import JoinCodes
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import Policy, parse_policy
from undertone_shared.topics import check_name


@dataclass(frozen=True)
class FleetFiles:
    """The devices of one campaign below ``folder``, the store of their reports, and their broker's files.

    ``broker``: the folder with the broker's passwords and access rules; ``fleets``: campaign -> folder, for all
    campaigns of that broker; ``stem``: the prefix of device names.
    """

    config: Config
    folder: Path
    store: Store
    broker: Path
    fleets: Mapping[str, Path]
    stem: str

    @staticmethod
    def at_home(home: Home, name: str, store: Store) -> "FleetFiles":
        """Open the devices of one campaign of a server's folder, whose campaigns share one broker. Raises Invalid."""
        if not (home.broker / "passwords").is_file():
            raise Invalid(f"{home.broker} contains no file passwords, expected a folder as undertone init makes it")
        folder = home.fleet(name)
        for path in (folder, folder / "devices"):
            if not path.is_dir():
                path.mkdir(mode=0o700, parents=True)
                give_to_owner(path, path.parent)
        # The campaign's name is the prefix of its devices' names, because two campaigns may share a sensor, but two
        # devices cannot share a name.
        return FleetFiles(home.config(name), folder, store, home.broker, home.fleets(), name)

    @property
    def _codes(self) -> JoinCodes:
        return JoinCodes(self.config.folder)

    def devices(self) -> dict[str, Device]:
        """Return every device that is not forgotten, including devices of which only the files exist."""
        stored = self.store.devices()
        names = {path.name for path in (self.folder / "devices").iterdir() if path.is_dir()}
        devices = {name: device for name, device in stored.items() if device.state != FORGOTTEN}
        return devices | {name: Device(name, EVERYBODY, ACTIVE, 0) for name in sorted(names - set(stored))}

    def add(
        self, count: int, group: str, target: Target, policy: str, now: int, outbox: int | None = None
    ) -> list[str]:
        """Provision ``count`` more devices with the next free numbers; return their names. Raises Invalid."""
        if not 1 <= count <= 100_000:
            raise Invalid(f"the number of devices is {count}, expected 1 to 100000")
        with self.changing():
            self.check_group(group)
            names = self.free_names(count)
            target = self.with_certificates(target)
            admitted = {
                name: write_device(self.config, name, self.devices_folder / name, target, policy, outbox, group=group)
                for name in names
            }
            self.register(admitted, group, now)
            if target.certificates and target.authority is not None:
                # A broker does not start without the list of revoked certificates.
                revoke_certificates(target.authority)
        return names

    def changing(self) -> AbstractContextManager[None]:
        """Hold the lock on the fleet's names and on the broker's files. Raises Invalid after a minute."""
        return credentials.alone(self.broker)

    def free_names(self, count: int) -> list[str]:
        """Return the next ``count`` names that nobody has, had or was promised. The caller must hold the lock."""
        inventory = self.devices()
        forgotten = {name for name, device in self.store.devices().items() if device.state == FORGOTTEN}
        # If a device took a reader's name, it would replace the reader's password.
        taken = {*inventory, *credentials.readers_of(self.broker / "access"), *self._codes.promised()}
        names: list[str] = []
        number = len(inventory) + len(forgotten)
        while len(names) < count:
            number += 1
            name = check_name("a device's name", f"{self.stem}-{number:03d}")
            if name not in taken and key_text(name) not in forgotten:
                names.append(name)
        return names

    def with_certificates(self, target: Target) -> Target:
        """Return the target with certificates for devices if the fleet's devices have them."""
        if next(self.devices_folder.glob(f"*/{IDENTITY}.crt"), None) is None:
            return target
        return replace(target, authority=self.authority, certificates=True)

    def register(self, admitted: Mapping[str, Secret], group: str, now: int) -> None:
        """Admit new devices whose folders exist: inventory, broker's files, group. The caller must hold the lock."""
        # The inventory is written before the broker's files, because a name in the inventory is never given again, even
        # after a crash between the two.
        self.store.set_devices([Device(name, group, ACTIVE, now) for name in admitted])
        self._write_users(admitted)
        if self.config.campaign.groups is not None:
            append_groups(self.config.path(self.config.campaign.groups), group, admitted)

    @property
    def devices_folder(self) -> Path:
        """The folder that contains a folder for each device."""
        return self.folder / "devices"

    def check_group(self, group: str) -> None:
        """Check the name of a group, and the file of groups. Raises Invalid.

        An invalid file would make the server stop the campaign.
        """
        check_name("group", group)
        groups = self.config.campaign.groups
        if groups is None and group != EVERYBODY:
            raise Invalid(
                f"group is {group!r}, but the campaign has no groups: set groups in [campaign] to a file of groups"
            )
        if groups is not None:
            append_groups(self.config.path(groups), group, [])

    def about_group(self, group: str) -> str:
        """Return a line that says that a group is new, and which other groups there are; "" for a group that has
        devices.
        """
        known = sorted({device.group for device in self.devices().values()} - {EVERYBODY})
        if group == EVERYBODY or group in known:
            return ""
        others = f"other groups: {', '.join(known)}" if known else "the campaign has no other"
        return f"{group} is a new group; {others}"

    def regroup(self, name: str, group: str) -> None:
        """Put a device into another group. Its earlier reports stay in the sums of the old group. Raises Invalid."""
        self.check_group(group)
        device = self.check_active(name)
        if self.config.campaign.groups is not None:
            change_group(self.config.path(self.config.campaign.groups), group, name)
        self.store.set_devices([device._replace(group=group)])
        self._note_group(name, group)

    def _note_group(self, name: str, group: str) -> None:
        """Write a device's new group into the device.json that the server keeps for it, if any. Raises OSError."""
        path = self.devices_folder / name / DEVICE
        if not path.is_file():
            return
        settings = json.loads(path.read_bytes())
        campaign = self.config.campaign.name
        others = {name: each for name, each in settings.pop("groups", {}).items() if name != campaign}
        if groups := others | groups_entry(campaign, group):
            settings["groups"] = groups
        write_private(path, json.dumps(settings, indent=2) + "\n")

    def rotate(self, name: str) -> Path:
        """Give a device a new password or certificate and invalidate the old one.

        Return the file to copy to the device. For a new certificate, its key is in the file beside it. Raises Invalid.
        """
        self.check_active(name)
        folder = self.folder / "devices" / name
        certificate = folder / f"{IDENTITY}.crt"
        if certificate.exists():
            # The old certificate is revoked first, because only the file that is overwritten next holds its serial
            # number.
            revoke_certificates(self.authority, [certificate])
            self.write_users({name: write_certificate(self.config, name, folder, self.authority)})
            return certificate
        password = credentials.new_password()
        path = folder / "password"
        write_private(path, password + "\n")
        self.write_users({name: password})
        return path

    def revoke(self, name: str, now: int) -> str:
        """Revoke a device, so that broker and admission refuse it from now on; return a sentence about what was done.

        The inventory is changed first, so the server refuses the device's reports even if a crash follows. Calling this
        again completes a revocation that was interrupted. Raises Invalid.
        """
        device = self.devices().get(name)
        if device is None or device.state != REVOKED:
            self.store.set_devices([self.check_active(name)._replace(state=REVOKED, since=now)])
        self.write_users({name: None})
        certificate = self.folder / "devices" / name / f"{IDENTITY}.crt"
        if certificate.exists():
            revoke_certificates(self.authority, [certificate])
        return f"{name} is revoked: the server refuses its later reports, and its earlier reports stay in the sums"

    def forget(self, name: str, now: int) -> None:
        """Delete a revoked device's name, files and group.

        A hash of the name is kept, so that the name is not given again. Raises Invalid.
        """
        device = self.devices().get(name)
        if device is None or device.state != REVOKED:
            found = device.state if device else "not in the inventory"
            raise Invalid(f"{name} is {found}, but only a revoked device can be forgotten")
        # Change the file of groups before the inventory. After a crash, this function can be called again only while
        # the inventory has the device.
        if self.config.campaign.groups is not None:
            with self.changing():
                remove_device(self.config.path(self.config.campaign.groups), name)
        # The store keeps the groups, too, and no server reads the file again if the campaign is over.
        groups = self.store.groups()
        if groups.pop(name, None) is not None:
            keep_groups(self.store, groups)
        self.store.set_devices([tombstone(device, now)], without=[name])
        self._codes.forget(name)
        shutil.rmtree(self.folder / "devices" / name, ignore_errors=True)

    def codes(self) -> dict[str, int]:
        """Return a map for the devices that joined by a code: device -> number of its join code."""
        return {code.device: code.id for code in self._codes.codes() if code.device is not None}

    def last_slots(self) -> dict[str, int | None]:
        """Return a map: device -> its newest counted slot, None for a device without a counted report."""
        seen = Seen()
        seen.load(self.store.segments(SEEN))
        words = np.frombuffer(seen.snapshot(), dtype="<u8").reshape(4, -1)
        newest = dict(zip(words[0].tolist(), (words[1] >> np.uint64(32)).tolist(), strict=True))
        return {name: newest.get(device_key(name)[1]) for name in self.devices()}

    @property
    def authority(self) -> Path:
        """The certificate file of the server folder's authority."""
        return self.config.path(AUTHORITY)

    def check_active(self, name: str) -> Device:
        """Return an active device. Raises Invalid for any other."""
        device = self.devices().get(name)
        if device is None or device.state != ACTIVE:
            raise Invalid(f"{name} is {device.state if device else 'not in the inventory'}, expected an active device")
        return device

    def write_users(self, changed: Mapping[str, Secret | None]) -> None:
        """Replace the passwords and the access rules, each file in one step. None deletes a user."""
        with self.changing():
            self._write_users(changed)

    def _write_users(self, changed: Mapping[str, Secret | None]) -> None:
        users = credentials.change_passwords(self.broker / "passwords", changed)
        active: dict[str, list[str]] = {}
        for campaign, folder in self.fleets.items():
            for path in sorted((folder / "devices").glob("*/")):
                if path.name in users:
                    active.setdefault(path.name, []).append(campaign)
        earlier = leaving(self.config.folder, active)
        for name, campaigns in active.items():
            campaigns += [campaign for campaign in earlier.get(name, ()) if campaign not in campaigns]
        broker = self.config.broker
        credentials.write_access_rules(
            self.broker / "access",
            broker.prefix,
            active,
            home_assistant=self.config.server.home_assistant,
            exact=None if broker.mode == DIRECT else credentials.EXACT_DEVICES,
        )


def revoke_at_home(home: Home, name: str, device: str) -> str:
    """Revoke a device of a campaign in a server's folder; return a sentence about what was done. Raises Invalid."""
    check_name("device", device)
    config = home.config(home.only(name))
    with open_store(config.store_url, campaign=name) as store:
        return FleetFiles.at_home(home, name, store).revoke(device, int(time.time()))


def model_of(fleet: FleetFiles) -> tuple[Target, str, int | None]:
    """Return (broker, policy, outbox) of the fleet's first device, as a model for new ones.

    In an empty fleet the policy allows only what the campaign needs. The same holds if the first device's policy
    refuses the campaign, for example because it was made for a predecessor with a smaller ε, a smaller bound or longer
    slots. A policy that names only earlier keys of the server gets the present key. Raises Invalid, StoreError.
    """
    first = min((fleet.folder / "devices").glob("*/device.json"), default=None)
    if first is None:
        target = target_of(fleet.config)
        return target, _planned_policy(fleet.config, target), None
    policy = first.with_name("policy.json").read_bytes()
    try:
        device = read_config(str(first))
        refuses = _refuses(parse_policy(policy), fleet)
    except Invalid as wrong:
        raise Invalid(f"{first.parent}, the model of the new devices, cannot be read: {wrong}") from None
    authority = first.with_name("ca.crt")
    target = Target(device.broker.host, device.broker.port, authority if authority.is_file() else None)
    places = [(host, port or device.broker.port) for host, port in fleet.config.broker.places]
    if len(places) > 1:
        target = replace(target, places=tuple(places))
    text = _planned_policy(fleet.config, target) if refuses else _with_present_key(fleet.config, policy.decode())
    return target, text, None if device.outbox == DEFAULT_OUTBOX else device.outbox


def _with_present_key(config: Config, policy: str) -> str:
    """Return the policy, with the server's present key as its signer if it names signers but not this key.

    After a change of the key, a device with the model's signers would refuse everything that this server signs. Without
    a usable key the policy stays as it is.
    """
    fields = json.loads(policy)
    with contextlib.suppress(Invalid, OSError):
        present = signers(config)
        if fields.get("signers") and present[0] not in map(str.lower, fields["signers"]):
            return json.dumps({**fields, "signers": present}, indent=2) + "\n"
    return policy


def _planned_policy(config: Config, target: Target) -> str:
    return json.dumps(policy_of(config, target), indent=2) + "\n"


def _refuses(policy: Policy, fleet: FleetFiles) -> bool:
    """Return True if a device with this policy refuses the campaign, or can refuse its later epochs."""
    plan, newest = fleet.config.campaign, Timeline(fleet.store.epochs()).last
    epoch = epochs_of(fleet.config).first(int(time.time())) if newest is None else newest
    try:
        policy.check_campaign(epoch.campaign)
    except Refused:
        return True
    return policy.theta[1] < plan.bound


def for_successors(config: Config, target: Target, successors: int) -> str:
    """Return the policy that the campaign's plan needs, with bounds for life that allow ``successors`` more such
    campaigns.

    It does not start from a device's policy, because that policy may already allow several campaigns. Raises
    Invalid for a number out of range.
    """
    check_integer("--successors", successors, 0, 100)
    fields = policy_of(config, target)
    for table in (fields, fields.get("stream") or {}):
        if table.get("lifetime"):
            table["lifetime"] *= 1 + successors
    return json.dumps(agreeing(fields, "", ""), indent=2) + "\n"
