"""The files of a device before its first report: name, password or certificate, policy, configuration.

    fleets/NAME/devices/<device>/device.json, policy.json, password or device.crt and device.key, ca.crt (with TLS)

The folder `fleets/NAME` is in the server's folder, see `undertone_aggregator.server.folder`. Only the owner can read
the secret files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.owner import give_to_owner
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.stream_rounds import round_length, stream_rule
from undertone_aggregator.counts.epochs import late_seconds
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.design import best_fraction
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.addresses import PLAIN_PORT, TLS_PORT
from undertone_aggregator.mqtt.credentials import Secret, ShownCertificate
from undertone_aggregator.mqtt.signing import ensure_key
from undertone_aggregator.settings.broker_options import is_loopback
from undertone_aggregator.settings.config import CampaignPlan, Config
from undertone_device.core.ledger import LARGEST_OUTBOX
from undertone_device.core.units import UNIT, epsilon_units
from undertone_device.host.consent import fingerprint
from undertone_operate.fleet.authority import device_certificate
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy
from undertone_shared.policy_fields import VERSION
from undertone_shared.topics import shard

DAY = 86400
# Path of the private authority's certificate within the folder that has the authority.
AUTHORITY = "tls/ca.crt"
# File name of a device's configuration.
DEVICE = "device.json"
# File name, without suffix, of a device's own certificate and key.
IDENTITY = "device"


@dataclass(frozen=True)
class Target:
    """The broker as devices reach it.

    ``authority``: the CA certificate that devices trust; None means MQTT without TLS.

    ``places``: (host, port) of each of several brokers, instead of host and port. ``certificates``: each device gets a
    certificate of its own instead of a password. It is signed by that authority, whose key is beside its certificate.
    """

    host: str
    port: int
    authority: Path | None
    places: tuple[tuple[str, int], ...] = ()
    certificates: bool = False

    def place(self, device: str) -> tuple[str, int]:
        """Return (host, port) of the broker that serves this device's shard."""
        return self.places[shard(device) % len(self.places)] if self.places else (self.host, self.port)


def target_of(config: Config) -> Target:
    """Return the configured broker, or the server's own endpoint, as devices reach it.

    An address without TLS is allowed only on loopback or, for a broker, if [broker] says insecure. Raises Invalid if
    TLS is needed and no authority is known, or if the authority's certificate is not a file.
    """
    broker = config.broker
    direct = not broker.source.broker
    host = broker.reached_as or broker.places[0][0]
    # The rule for the server itself applies: without TLS only on this machine, or if the settings allow it.
    open_endpoint = direct and broker.certificate is None and is_loopback(host)
    open_broker = not direct and broker.ca_file is None and (broker.insecure or is_loopback(host))
    plain = open_endpoint or open_broker
    own, ca = config.path(AUTHORITY), None
    if not plain and direct and own.is_file():
        ca = own
    elif not plain and (direct or broker.ca_file is None):
        missing = f"{own} is missing" if direct else "ca_file is missing in [broker] of server.toml"
        signed = "the endpoint's certificate" if direct else "the broker's certificate"
        raise Invalid(
            f"devices cannot verify {host}: {missing}, expected the certificate of the authority that signed {signed}"
        )
    elif not plain:
        ca = config.path(str(broker.ca_file))
    if ca is not None and not ca.is_file():
        raise Invalid(f"{ca} is not a file, expected the authority's certificate")
    port = broker.port or (PLAIN_PORT if plain else TLS_PORT)
    places = [(name, each or port) for name, each in broker.places] if broker.hosts else []
    # If the endpoint authenticates devices by the authority that devices trust, devices log in with certificates of
    # that authority.
    shown = direct and broker.ca_file is not None and config.path(broker.ca_file) == ca
    return Target(host, port, ca, tuple(places), shown and ca == own)


def outbox_for(plan: CampaignPlan, absence: int) -> int:
    """Return the number of reports that a device must store so that the server can be away without a loss.

    ``absence``: the seconds for which the server may be away. One report more than fall due in this time is stored,
    because the absence may begin just before a report. Raises Invalid for an absence after which reports are no longer
    counted, or for more reports than a device can store.
    """
    late = late_seconds(plan.slot_seconds)
    if not 1 <= absence <= late:
        raise Invalid(
            f"absence is {absence} s, expected 1 to {late} s, because the server does not count later reports"
        )
    reports = -(-absence // (plan.slot_seconds * plan.stride)) + 1
    if reports > LARGEST_OUTBOX:
        raise Invalid(
            f"absence is {absence} s, in which a device may draw {reports} reports, expected at most {LARGEST_OUTBOX}:"
            " for a longer absence, use a broker, which queues reports"
        )
    return reports


def reports_in_a_life(plan: CampaignPlan) -> int:
    """Return how many reports a policy allows in a device's life: those of the plan and of the waits between epochs,
    and a tenth more, see `with_spare`.
    """
    return with_spare(turns_in_a_life(plan))


def with_spare(number: int) -> int:
    """Return a number of reports or slots, increased by a tenth.

    The tenth is for rounds that take longer than planned, for slots that a device reserves ahead and loses at a
    restart, and for an extension of the plan.
    """
    return number + -(-number // 10)


def turns_in_a_life(plan: CampaignPlan) -> int:
    """Return the largest number of reports that one device draws in a campaign, with the waits between epochs."""
    return -(-_slots(plan) // plan.stride)


def life_sentence(policy: dict[str, Any]) -> str:
    """Return a sentence about what a policy lets a device spend in its whole life."""
    lifetime, units = policy.get("lifetime", 0), epsilon_units(*policy["cap"])
    rho = (policy.get("stream") or {}).get("lifetime", 0)
    if not units and rho:
        return (
            f"each device may spend a budget of rho = {rho / UNIT:.5f} in its whole life; then it stops reporting for"
            " good"
        )
    if not lifetime:
        sentence = "the policy's lifetime is 0: a device's spending is limited in each period, not in its whole life"
        return f"{sentence}; on streams, it may spend rho = {rho / UNIT:.5f} in its whole life" if rho else sentence
    sentence = (
        f"each device may spend epsilon = {lifetime / UNIT:.2f} in its whole life, which is"
        f" {many(lifetime // units, 'report')}"
    )
    if rho:
        sentence += f", and rho = {rho / UNIT:.5f} on streams"
    return f"{sentence}; then it stops reporting for good"


def _slots(plan: CampaignPlan) -> int:
    """Return the number of slots in which devices may draw under this plan.

    They are the slots of all rounds and of the report epoch, the slots between epochs, in which reports arrive and θ
    is chosen, and one more epoch as a reserve.
    """
    slack = (len(plan.rounds) + 1) * (plan.lead_slots + plan.settle_slots + 2) + plan.epoch_slots
    return sum(plan.rounds) + plan.report_slots + slack


def make_policy(plan: CampaignPlan, *, insecure: bool, **others: Any) -> dict[str, Any]:
    """Make a policy for this campaign. It allows the campaign's epsilon, slots and bound, and its length and number of
    reports with a tenth to spare.

    `others` replace or add fields. Raises Invalid if the result is not a valid policy.
    """
    cap = best_fraction(plan.epsilon)
    fields: dict[str, Any] = {
        "version": VERSION,
        "sensor": plan.sensor,
        "measures": [plan.measure],
        "unit": plan.unit,
        "cap": list(cap),
        "slot_seconds": plan.slot_seconds,
        "theta": [1, plan.bound],
        "duration_seconds": with_spare(_slots(plan)) * plan.slot_seconds,
        "lifetime": reports_in_a_life(plan) * epsilon_units(*cap),
        "period_seconds": DAY,
        "reports_per_period": max(1, DAY // plan.slot_seconds),
        "epoch_seconds": min(plan.cycle, *plan.rounds, plan.epoch_slots) * plan.slot_seconds,
        "insecure": insecure,
        "handover": bool(others.get("signers")),
    }
    if plan.window is not None:
        # The policy makes the device rest for the window's length after each report, whatever a campaign asks for.
        turn = plan.stride * plan.slot_seconds
        fields |= {"rest_seconds": plan.window, "reports_per_period": DAY // turn + 1}
    fields.update(others)
    parse_policy(json.dumps(fields).encode())
    return fields


def policy_of(config: Config, target: Target) -> dict[str, Any]:
    """Return the policy of a device for this campaign of this server, see `make_policy`. Raises Invalid."""
    allowed = {"signers": signers(config), **stream_policy(config)}
    return agreeing(make_policy(config.campaign, insecure=target.authority is None, **allowed), "", "")


def agreeing(policy: dict[str, Any], asks: str, purpose: str) -> dict[str, Any]:
    """Return the policy with the fingerprint of what its household agrees to, if the policy allows hand-overs.

    ``asks``, ``purpose``: who asks and what for, in the words that the household reads. Both are empty for devices
    whose owners get a file.
    """
    agreed = ""
    if policy.get("handover"):
        agreed = fingerprint(parse_policy(json.dumps({**policy, "agreed": ""}).encode()), asks, purpose)
    return {**policy, "agreed": agreed}


def signers(config: Config) -> list[str]:
    """Return the policy's field ``signers``: the server's public key.

    Raises Invalid if the key is missing, because a new key would not be the one with which the server signs.
    """
    key = config.path(config.server.signing_key)
    if not key.exists():
        raise Invalid(f"{key} is missing, expected the signing key that undertone init made (docs/operator.md)")
    return [ensure_key(key).public]


def stream_policy(config: Config) -> dict[str, Any]:
    """Return the policy's fields for the configured stream, and no more; empty without a stream. Raises Invalid.

    The cap for single readings is 1/1, which is ε = 0, so the device sends none of them beside the stream. With a
    threshold round, the cap is the round's ε, and the lifetime allows one such report. The cap for the stream is the
    cost of one period, which is the window, or the campaign's whole length without a window. The stream's lifetime
    budget is twice the campaign's cost, because a device charges all of this cost when it accepts the campaign, and
    again if the campaign is reissued.
    """
    if config.stream is None:
        return {}
    plan, rule = config.campaign, stream_rule(config.campaign, config.stream)
    slots = rule.renewal or plan.report_slots
    life = 2 * rule.charge() * rule.windows_of(plan.report_slots)
    fields = {"rho": rule.charge(), "lifetime": life, "period_seconds": slots * plan.slot_seconds, "laws": [rule.law]}
    limits = {"stream": {**fields, "dimension": rule.dimension}}
    if config.stream.round_epsilon is None:
        return {"cap": [1, 1], "lifetime": 0, **limits}
    cap = best_fraction(config.stream.round_epsilon)
    # The stream's epoch may follow as soon as the round has settled.
    apart = round_length(plan, config.stream) * plan.slot_seconds
    return {"cap": list(cap), "lifetime": epsilon_units(*cap), "epoch_seconds": apart, **limits}


def write_device(
    config: Config,
    name: str,
    folder: Path,
    target: Target,
    policy: str,
    outbox: int | None = None,
    *,
    group: str = EVERYBODY,
) -> Secret:
    """Write one device's files to a new folder that only its owner can read; return its credentials. Raises OSError."""
    files = device_files(config, name, target, policy, outbox, group=group)
    write_folder(folder, {**files.public, **files.private})
    return files.secret


@dataclass(frozen=True)
class DeviceFiles:
    """The files of one device: file name -> text.

    ``public``: files without secrets; ``private``: the file with the device's password, or with its certificate's key.
    ``secret``: its credentials, in the form in which the broker's files need them.
    """

    public: dict[str, str]
    private: dict[str, str]
    secret: Secret


def device_files(
    config: Config,
    name: str,
    target: Target,
    policy: str,
    outbox: int | None = None,
    seed: bytes | None = None,
    *,
    group: str = EVERYBODY,
) -> DeviceFiles:
    """Return the files of a new device in this group.

    ``seed``: 32 secret bytes that determine the password or the certificate's key; None for random ones. Raises Invalid
    for the name of one of the server's own users. Also raises Invalid if devices have certificates and the authority's
    key is missing.
    """
    credentials.check_device_name(name)
    public = {"policy.json": policy}
    private: dict[str, str] = {}
    secret: Secret
    if target.authority is not None:
        public["ca.crt"] = target.authority.read_text(encoding="utf-8")
    if target.certificates and target.authority is not None:
        certificate, key = device_certificate(target.authority, name, seed)
        public[f"{IDENTITY}.crt"] = certificate
        private[f"{IDENTITY}.key"] = key
        secret = shown_secret(config, certificate)
    else:
        secret = credentials.new_password(seed)
        private["password"] = secret + "\n"
    public[DEVICE] = json.dumps(_device(config, name, target, outbox, group), indent=2) + "\n"
    return DeviceFiles(public, private, secret)


def write_folder(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files to a new folder; only its owner can read them. Raises OSError."""
    folder.mkdir(mode=0o700)
    give_to_owner(folder, folder.parent)
    for name, text in texts.items():
        if name != DEVICE:
            _write(folder / name, text)
    # This file is written last and in one step. If it exists, the folder is complete.
    write_private(folder / DEVICE, texts[DEVICE], durable=False)


def write_certificate(config: Config, name: str, folder: Path, authority: Path) -> Secret:
    """Write a device's new certificate and key to its folder; return its credentials. Raises Invalid, OSError."""
    certificate, key = device_certificate(authority, name)
    write_private(folder / f"{IDENTITY}.key", key)
    write_private(folder / f"{IDENTITY}.crt", certificate)
    return shown_secret(config, certificate)


def shown_secret(config: Config, certificate: str) -> Secret:
    """Return the credentials of a device that logs in with this certificate (PEM).

    For a broker they are a random password that nobody knows, so that only the certificate lets the device in.
    """
    return ShownCertificate(certificate) if not config.broker.source.broker else credentials.new_password()


def _device(config: Config, name: str, target: Target, outbox: int | None, group: str) -> dict[str, Any]:
    host, port = target.place(name)
    broker: dict[str, Any] = {"host": host, "port": port}
    if not target.certificates:
        broker["password_file"] = "password"
    if target.authority is not None:
        broker["tls"] = {"ca": "ca.crt"} | ({"identity": IDENTITY} if target.certificates else {})
    return {
        "name": name,
        "broker": broker,
        "prefix": config.broker.prefix,
        "campaigns": [config.campaign.name],
        **({"groups": groups} if (groups := groups_entry(config.campaign.name, group)) else {}),
        "policy": "policy.json",
        "state": "state",
        **({} if outbox is None else {"outbox": outbox}),
    }


def groups_entry(campaign: str, group: str) -> dict[str, str]:
    """Return the entry of a campaign in a device's ``groups``; empty for a device in no group."""
    return {} if group == EVERYBODY else {campaign: group}


def _write(path: Path, text: str) -> None:
    """Create a private file. The file is not synced to the disk: a fleet has many files, and they can be made again."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")
