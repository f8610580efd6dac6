"""Moves of devices while they report: fleets to another address, a device to another campaign.

A move is a signed hand-over, which the running server sends with the campaign (`undertone_shared.handover`). A device
obeys it at its next contact, if its policy allows hand-overs. The device's files in the server's folder are changed as
well, because some devices get them by hand.
"""

import json
import time
from collections import Counter
from typing import Any

from undertone_aggregator.base.files import write_private
from undertone_aggregator.campaign.handover import read_handover, write_handover
from undertone_aggregator.mqtt.signing import Signer, read_key
from undertone_aggregator.server.folder import BROKER, SERVER, Home
from undertone_aggregator.settings.broker_options import is_loopback
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.options import host_name
from undertone_aggregator.settings.report_sources import DIRECT
from undertone_aggregator.settings.toml import with_options
from undertone_aggregator.store.inventory import ACTIVE, MOVED, Device
from undertone_aggregator.store.store import Store, open_store
from undertone_operate.fleet.agreements import agreements, is_inside
from undertone_operate.fleet.authority import AUTHORITY_KEY, server_certificate
from undertone_operate.fleet.device_files import AUTHORITY
from undertone_operate.fleet.devices import FleetFiles
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid, Refused
from undertone_shared.handover import device_key
from undertone_shared.policy import Policy, parse_policy

# The endpoint's certificate and key, as `undertone init` places them.
CERTIFICATE, KEY = f"{BROKER}/server.crt", f"{BROKER}/server.key"


def move_fleets(home: Home, host: str, port: int, *, endpoint: bool = False) -> list[str]:
    """Send all devices of a server's folder to ``host``:``port``; return sentences about what was done.

    ``endpoint``: the devices move from an external broker to this server's own endpoint. Raises Invalid, also if no
    campaign has been made yet, and if several brokers share the devices. Raises OSError.
    """
    host_name("the address", host)
    check_integer("the port", port, 1, 65535)
    with home.changing():
        return _move_fleets(home, host, port, endpoint=endpoint)


def _move_fleets(home: Home, host: str, port: int, *, endpoint: bool) -> list[str]:
    names = home.names()
    if not names:
        raise Invalid(
            f"there is no campaign in {home.folder}, so there is no device to move: set the address in [broker] of"
            f" {SERVER} yourself"
        )
    config = home.config(names[0])
    if config.broker.hosts:
        raise Invalid(
            f"broker.hosts is set in {home.folder / SERVER}, expected broker.host: this command moves the devices of"
            " one broker only"
        )
    if endpoint and not config.broker.source.broker:
        raise Invalid("devices connect to this server's endpoint already: --endpoint is for an external broker")
    signer = _signer(config)
    own = endpoint or not config.broker.source.broker
    if own and not endpoint and config.broker.certificate is None and not is_loopback(host):
        raise Invalid(
            f"this server's endpoint has no certificate, so only devices on this machine reach it: {host} needs"
            " broker.host, broker.certificate and broker.key first"
        )
    options = _endpoint_options(config, host) if endpoint else {"reached_as" if own else "host": host}
    sentences = _certificate(config, host) if own else []
    for name in names:
        fields = read_handover(home.folder, name)
        fields["all"] |= {"host": host, "port": port}
        for entry in fields["devices"].values():
            entry.pop("host", None)
            entry.pop("port", None)
        write_handover(home.folder, fields, int(time.time()), signer.sign)
    policies: Counter[bytes] = Counter()
    for folder in set(home.fleets().values()):
        for path in sorted((folder / "devices").glob("*/device.json")):
            device = json.loads(path.read_bytes())
            device["broker"] |= {"host": host, "port": port}
            write_private(path, json.dumps(device, indent=2) + "\n", durable=False)
            policies[path.with_name("policy.json").read_bytes()] += 1
    server = home.folder / SERVER
    write_private(server, with_options(server.read_text(encoding="utf-8"), "broker", {**options, "port": port}))
    obeying = sum(n for data, n in policies.items() if _obeys(parse_policy(data), signer))
    sentences.append(
        f"{obeying} of {policies.total()} devices move to {host}:{port} at their next contact with this server"
    )
    if by_hand := policies.total() - obeying:
        sentences.append(
            f"{by_hand} of {policies.total()} devices cannot move by themselves, because their policies allow no"
            f" hand-over by this server: copy the changed device.json of each from {home.folder / 'fleets'} to the"
            " device"
        )
    sentences.append("a device that cannot log in at the new address tries the old and the new address in turn")
    if home.join.listen is not None:
        sentences.append(
            f"phones learn from the web app at {home.join.url} where to report: keep the app at this address until each"
            " phone has opened it twice, or ask people to join again"
        )
    if endpoint:
        steps = "stop the broker, then the server, and start the server at the new address"
    elif own:
        steps = "stop the server, and start it at the new address"
    else:
        steps = "stop the server, let the broker listen at the new address, and start the server"
    sentences.append(
        f"{SERVER} has the new address, which takes effect when the server starts. When the devices have been in"
        f" contact with this server, {steps}"
    )
    return sentences


def move_device(home: Home, campaign: str, device: str, to: str, group: str) -> list[str]:
    """Send one device from a campaign to another of the same folder; return sentences about what was done.

    Its reports that are under way in the old campaign are still counted. Raises Invalid if its policy allows no
    hand-over or refuses the new campaign, or if its household has not agreed to that campaign. Raises OSError.
    """
    if to == campaign:
        raise Invalid(f"the campaign is {to!r}, expected another campaign than the device's own")
    with home.changing():
        return _move_device(home, campaign, device, to, group)


def _move_device(home: Home, campaign: str, device: str, to: str, group: str) -> list[str]:
    now = int(time.time())
    target, here = home.config(to), home.config(campaign)
    signer = _signer(here)
    with _opened(home, campaign) as old_store, _opened(home, to) as new_store:
        old, new = FleetFiles.at_home(home, campaign, old_store), FleetFiles.at_home(home, to, new_store)
        if old.folder == new.folder:
            raise Invalid(f"{campaign} and {to} have the same devices, because one succeeds the other")
        old.check_active(device)
        folder = old.folder / "devices" / device
        policy = parse_policy((folder / "policy.json").read_bytes())
        if not _obeys(policy, signer):
            raise Invalid(
                f"the policy of {device} allows no hand-over by this server: add a device to {to} and revoke {device}"
            )
        _check_policy(target, policy, device, now)
        if not is_inside(policy, agreements(home, to)):
            raise Invalid(
                f"the household of {device} has not agreed to {to}: revoke {device}, and add a new device with a new"
                f" policy to {to}"
            )
        new.check_group(group)
        about_group = new.about_group(group)
        # The inventory of the new campaign is changed first, so that no crash leaves a device that no campaign knows.
        new_store.set_devices([Device(device, group, ACTIVE, now)])
        (new.folder / "devices" / device).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.rename(new.folder / "devices" / device)
        path = new.folder / "devices" / device / "device.json"
        settings = json.loads(path.read_bytes())
        settings.pop("groups", None)
        write_private(path, json.dumps({**settings, "campaigns": [to]}, indent=2) + "\n")
        old_store.set_devices([Device(device, old.devices()[device].group, MOVED, now)])
        fields = read_handover(home.folder, campaign)
        fields["devices"] = _without_arrived(fields["devices"], campaign, new)
        fields["devices"][device_key(campaign, device)] = {"campaigns": [to], "agreed": [policy.agreed]}
        write_handover(home.folder, fields, now, signer.sign)
        new.write_users({})
        new.regroup(device, group)
    return [
        f"{device} moves from {campaign} to {to}, group {group}, at its next contact with this server",
        *([about_group] if about_group else []),
        "during the move, the device may report to both campaigns; its privacy budget and its spending stay the same",
    ]


def _without_arrived(devices: dict[str, Any], campaign: str, new: FleetFiles) -> dict[str, Any]:
    """Return ``devices`` without those that report in the new campaign already."""
    arrived = {device_key(campaign, name) for name, slot in new.last_slots().items() if slot is not None}
    return {name: entry for name, entry in devices.items() if name not in arrived}


def _opened(home: Home, name: str) -> Store:
    return open_store(home.config(name).store_url, campaign=name)


def _signer(config: Config) -> Signer:
    try:
        return read_key(config.path(config.server.signing_key))
    except OSError as wrong:
        raise Invalid(f"a move needs the key that signs campaigns: {wrong}") from None


def _obeys(policy: Policy, signer: Signer) -> bool:
    return policy.handover and bytes.fromhex(signer.public) in policy.signers


def _check_policy(config: Config, policy: Policy, device: str, now: int) -> None:
    from undertone_aggregator.campaign.preview import epochs_of

    try:
        policy.check_campaign(epochs_of(config).first(now).campaign)
    except Refused as refused:
        raise Invalid(f"the policy of {device} refuses {config.campaign.name}: {refused}") from None


def _endpoint_options(config: Config, host: str) -> dict[str, Any]:
    """Return the changes of [broker] by which the server's own endpoint replaces an external broker.

    They are options with their new values; None removes an option. Raises Invalid if the endpoint has no certificate
    and none can be made, unless it is reached only on this machine.
    """
    options: dict[str, Any] = {
        "mode": DIRECT,
        "passwords": f"{BROKER}/passwords",
        "access": f"{BROKER}/access",
        "host": "0.0.0.0",
        "reached_as": host,
        "certificate": CERTIFICATE,
        "key": KEY,
    }
    options |= dict.fromkeys(("password_file", "ca_file", "insecure", "user", "worker_users", "websocket_url"))
    if config.path(AUTHORITY).with_name(AUTHORITY_KEY).is_file():
        return options
    if is_loopback(host):
        return {**options, "host": host, "certificate": None, "key": None}
    if not (config.path(CERTIFICATE).is_file() and config.path(KEY).is_file()):
        raise Invalid(
            f"the endpoint has no certificate for {host}, expected {config.path(CERTIFICATE)} and its key beside it"
        )
    return options


def _certificate(config: Config, host: str) -> list[str]:
    """Renew the endpoint's certificate, for the new name and the old one; return sentences about this.

    The certificate is renewed only if the authority's key is in the folder. Without an authority the result is empty.
    """
    broker = config.broker
    authority = config.path(AUTHORITY)
    if not authority.is_file():
        return []
    authority_key = authority.with_name(AUTHORITY_KEY)
    if not authority_key.is_file():
        return [
            f"the server needs a certificate for {host}: this command made none, because {authority_key} is missing"
        ]
    names = [host, broker.reached_as or broker.host]
    certificate, key = server_certificate(authority, names)
    write_private(config.path(broker.key or KEY), key)
    write_private(config.path(broker.certificate or CERTIFICATE), certificate)
    return [f"the server has a new certificate for {' and '.join(dict.fromkeys(names))}"]
