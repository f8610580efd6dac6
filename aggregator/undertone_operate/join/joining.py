"""Joining by a code: the offer of a code, and its redemption, which makes one device for one code.

No secret of a device is stored. Its password, or its certificate's key, is derived from the code and from a key that
only the redeemer has, see `secret_seed`. So the same code and key get the same reply again, for example after a broken
connection. Neither the server's disk nor a backup of it holds a secret of a device that joined by a code.
"""

import hashlib
import hmac
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.mqtt.addresses import WEBSOCKET_PATH
from undertone_aggregator.mqtt.credentials import Secret, new_password
from undertone_aggregator.mqtt.endpoint.passwords import CERTIFICATE, password_matches, read_passwords
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.config import Config
from undertone_aggregator.store.inventory import ACTIVE
from undertone_aggregator.store.store import open_store
from undertone_device.host.consent import consent
from undertone_device.host.words import read_words
from undertone_operate.fleet.authority import device_key, is_for_key, key_text
from undertone_operate.fleet.device_files import DEVICE, IDENTITY, device_files, shown_secret, write_folder
from undertone_operate.fleet.devices import FleetFiles, model_of, revoke_at_home
from undertone_operate.fleet.join_codes import (
    BOUND,
    EXPIRED,
    OPEN,
    REDEEMED,
    REVOKED,
    JoinCode,
    JoinCodes,
    has_key,
    parse_code,
)
from undertone_operate.join.offer import campaign_end, iso, offer, offered_policy
from undertone_operate.join.words import DEFAULT, REFUSALS
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy

KEY_BYTES = 32
# For this many seconds after its redemption, a code and its key get the same reply again.
REPEAT_SECONDS = 30 * 86400
# Files of a device's folder that hold no secret.
_PUBLIC = (DEVICE, "policy.json", "ca.crt", f"{IDENTITY}.crt")
# An offer is computed again after this number of seconds.
_OFFER_SECONDS = 10.0
_MOST_OFFERS = 100

UNKNOWN, USED, INVALID, SLOW_DOWN, UNAVAILABLE = "unknown", "used", "invalid", "slow_down", "unavailable"
# Name of another sentence for the reason `EXPIRED`.
ENDED = "ended"


class JoinRefused(Exception):
    """A refusal. ``reason``: one word.

    ``words``: key of its sentence in `REFUSALS`, if that is not the reason. ``detail``: a sentence used instead.
    """

    def __init__(self, reason: str, words: str = "", detail: str = "") -> None:
        super().__init__(detail or REFUSALS[DEFAULT][words or reason])
        self.reason = reason
        self._words = words or reason
        self._detail = detail

    def sentence(self, language: str) -> str:
        """Return the sentence for the person who joins."""
        return self._detail or REFUSALS[language][self._words]


@dataclass(frozen=True)
class Redemption:
    """A code, and the secret key of 32 bytes that its redeemer chose for it."""

    code: bytes
    key: bytes

    @staticmethod
    def parse(code: object, key: object) -> "Redemption":
        """Make a redemption from a request's texts. Raises Invalid."""
        refusal = f"key is not valid, expected {2 * KEY_BYTES} hexadecimal digits"
        if not isinstance(key, str) or len(key) != 2 * KEY_BYTES or not key.isascii() or not key.isalnum():
            raise Invalid(refusal)
        try:
            return Redemption(parse_code(code), bytes.fromhex(key))
        except ValueError as wrong:
            raise Invalid(str(wrong) if isinstance(wrong, Invalid) else refusal) from None


def secret_seed(asked: Redemption) -> bytes:
    """Return the 32 bytes from which a device's password or key is made: HMAC-SHA256 under the redeemer's key.

    Whoever has only the code, or only the key, learns nothing about these bytes.
    """
    return hmac.digest(asked.key, b"undertone join device secret" + asked.code, hashlib.sha256)


class Joining:
    """The join codes of a server's folder, as people redeem them. ``clock``: Unix seconds."""

    def __init__(self, home: Home, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._codes = JoinCodes(home.folder)
        self._clock = clock
        # (campaign, what for, when the code was made) -> (when the offer was computed, the offer).
        self._offers: dict[tuple[str, str, int], tuple[float, dict[str, Any]]] = {}

    def offer(self, code: bytes) -> dict[str, Any]:
        """Return what a person reads before joining. Raises JoinRefused. Raises Invalid or OSError for a broken
        campaign.
        """
        now = self._clock()
        found = self._codes.find([code]).get(code)
        if found is None:
            raise JoinRefused(UNKNOWN)
        state = found.state(now)
        if state != OPEN:
            raise JoinRefused(USED if state in (BOUND, REDEEMED) else state)
        return {**self._offer(found, now), "code_expires": iso(found.expires)}

    def redeem(self, asked: Sequence[Redemption]) -> list[dict[str, Any] | JoinRefused]:
        """Redeem codes, each with its key. Return the reply or the refusal of each.

        Redeeming many costs little more than redeeming one. Raises Invalid or OSError if the folder cannot be changed.
        Then each code can be redeemed again with the same key.
        """
        now = self._clock()
        self._codes.bind([(each.code, each.key) for each in asked], int(now))
        found = self._codes.find([each.code for each in asked])
        refusals = [_refusal(found.get(each.code), each, now) for each in asked]
        by_campaign: dict[str, list[int]] = {}
        for index, refusal in enumerate(refusals):
            if refusal is None:
                by_campaign.setdefault(found[asked[index].code].campaign, []).append(index)
        replies: dict[int, dict[str, Any] | JoinRefused] = {}
        for campaign, indices in by_campaign.items():
            answers = self._redeem_in(campaign, [asked[index] for index in indices], int(now))
            replies.update(zip(indices, answers, strict=True))
        return [refusal or replies[index] for index, refusal in enumerate(refusals)]

    def leave(self, asked: Redemption) -> dict[str, Any]:
        """Revoke the device that joined with this code and key, because its owner leaves; return {"device": its name}.

        Leaving again changes nothing. Raises JoinRefused. Raises Invalid or OSError if the folder cannot be changed.
        """
        found = self._codes.find([asked.code]).get(asked.code)
        if found is None:
            raise JoinRefused(UNKNOWN)
        if not has_key(found, asked.key) or found.redeemed is None or found.device is None:
            raise JoinRefused(USED if found.key is not None else REVOKED)
        # A campaign and its successor have the same devices, but each campaign has its own inventory.
        for campaign, folder in self._home.fleets().items():
            if campaign in self._home.names() and (folder / "devices" / found.device).is_dir():
                revoke_at_home(self._home, campaign, found.device)
        return {"device": found.device}

    def _redeem_in(self, campaign: str, asked: Sequence[Redemption], now: int) -> list[dict[str, Any] | JoinRefused]:
        """Redeem codes of one campaign that are bound to the keys given here."""
        try:
            campaign = self._current(campaign, now)
        except JoinRefused as refused:
            return [refused] * len(asked)
        config = self._home.config(campaign)
        with open_store(config.store_url, campaign=campaign) as store:
            fleet = FleetFiles.at_home(self._home, campaign, store)
            with fleet.changing():
                # Another process may have redeemed these codes before this one had the lock.
                found = self._codes.find([each.code for each in asked])
                pairs = [(found[each.code], each) for each in asked]
                self._make(fleet, [pair for pair in pairs if _is_due(fleet, pair[0])], now)
            found = self._codes.find([each.code for each in asked])
            users = read_passwords(fleet.broker / "passwords")
            active = {name for name, device in store.devices().items() if device.state == ACTIVE}
            return [_reply(fleet, found[each.code].device or "", each, users, active) for each in asked]

    def _make(self, fleet: FleetFiles, new: Sequence[tuple[JoinCode, Redemption]], now: int) -> None:
        """Make the devices of codes, or complete those that an interrupted redemption began.

        The caller must hold the fleet's lock.
        """
        if not new:
            return
        nameless = list(dict.fromkeys(code.id for code, _ in new if code.device is None))
        names = dict(zip(nameless, fleet.free_names(len(nameless)), strict=True))
        self._codes.promise(list(names.items()))
        found = self._codes.find([asked.code for _, asked in new])
        target, model, outbox = model_of(fleet)
        target = fleet.with_certificates(target)
        registered = fleet.store.devices()
        by_group: dict[str, dict[str, Secret]] = {}
        policies: dict[tuple[str, int], str] = {}
        for _, asked in new:
            code, seed = found[asked.code], secret_seed(asked)
            name = code.device
            # A code that has just been revoked has no name.
            if name is None or (name in registered and registered[name].state != ACTIVE):
                continue
            folder = fleet.devices_folder / name
            if not _is_complete(folder):
                shutil.rmtree(folder, ignore_errors=True)
                if (code.about, code.created) not in policies:
                    policies[code.about, code.created] = offered_policy(
                        fleet.config, model, self._home.join.asks, code.about, code.created
                    )
                policy = policies[code.about, code.created]
                files = device_files(fleet.config, name, target, policy, outbox, seed, group=code.group)
                write_folder(folder, files.public)
            by_group.setdefault(code.group, {})[name] = _secret(fleet.config, folder, seed)
        for group, admitted in by_group.items():
            fleet.check_group(group)
            fleet.register(admitted, group, now)
        self._codes.redeemed([code.id for code in found.values() if code.device is not None], now)

    def _current(self, campaign: str, now: int) -> str:
        """Return the campaign that a code is for: its own campaign or, once that has ended, the successor.

        Raises JoinRefused if the campaign is gone, or if it has ended and has no successor.
        """
        names = self._home.names()
        plans = {name: self._home.config(name).campaign for name in names}
        while True:
            gone = campaign not in names
            if not gone and now < campaign_end(self._home.config(campaign), now):
                return campaign
            successor = next((name for name, plan in plans.items() if plan.succeeds == campaign), None)
            if successor is None:
                raise JoinRefused(REVOKED) if gone else JoinRefused(EXPIRED, ENDED)
            campaign = successor

    def _offer(self, code: JoinCode, now: float) -> dict[str, Any]:
        key = code.campaign, code.about, code.created
        computed, fields = self._offers.get(key, (0.0, {}))
        if fields and computed <= now < computed + _OFFER_SECONDS:
            return fields
        current = self._current(code.campaign, int(now))
        config = self._home.config(current)
        with open_store(config.store_url, campaign=current) as store:
            fleet = FleetFiles.at_home(self._home, current, store)
            target, model, _ = model_of(fleet)
            certificates = fleet.with_certificates(target).certificates
        asks = self._home.join.asks
        fields = offer(config, offered_policy(config, model, asks, code.about, code.created), asks, code.about)
        # A phone's browser needs a password and the WebSocket. So it refuses an offer that lacks one of them.
        fields["credentials"] = "certificate" if certificates else "password"
        fields["websocket"] = websocket_address(config.broker, target.host)
        # Codes that were made together share one entry. A server's folder usually has few entries, but their number has
        # no limit of its own.
        if len(self._offers) >= _MOST_OFFERS:
            self._offers.clear()
        self._offers[key] = now, fields
        return fields


def agreement(home: Home, code: bytes) -> list[tuple[str, str]]:
    """Return (title, text) of each thing to which a person agrees by a code, as the person's own program says it.

    Raises JoinRefused, Invalid, OSError.
    """
    policy = json.dumps(Joining(home).offer(code)["policy"])
    shown = consent(parse_policy(policy.encode()), read_words(DEFAULT)["consent"])
    return [(title, text) for _, title, text in shown["rows"]]


def _refusal(found: JoinCode | None, asked: Redemption, now: float) -> JoinRefused | None:
    """Return why a code, as `JoinCodes.bind` left it in the file, cannot be redeemed with this key; None if it can."""
    if found is None:
        return JoinRefused(UNKNOWN)
    if found.key is None:
        state = found.state(now)
        return JoinRefused(EXPIRED if state == OPEN else state)
    if not has_key(found, asked.key):
        return JoinRefused(USED)
    if found.redeemed is None and found.revoked is not None:
        return JoinRefused(REVOKED)
    if found.redeemed is not None and (found.device is None or now >= found.redeemed + REPEAT_SECONDS):
        return JoinRefused(USED)
    return None


def _is_due(fleet: FleetFiles, code: JoinCode) -> bool:
    """Return True if the device of a code has to be made, or made again after a power cut took its files."""
    if code.redeemed is None:
        return code.revoked is None
    return code.device is not None and not _is_complete(fleet.devices_folder / code.device)


def _is_complete(folder: Path) -> bool:
    """Return True if a device's folder has its files. They are not synced, so after a power cut they may be empty."""
    paths = [folder / DEVICE, folder / "policy.json"]
    return all(path.is_file() and path.stat().st_size > 0 for path in paths)


def _secret(config: Config, folder: Path, seed: bytes) -> Secret:
    """Return the credentials of a device whose folder is complete."""
    certificate = folder / f"{IDENTITY}.crt"
    if certificate.is_file():
        return shown_secret(config, certificate.read_text(encoding="ascii"))
    return new_password(seed)


def _reply(
    fleet: FleetFiles, name: str, asked: Redemption, users: dict[str, str], active: set[str]
) -> dict[str, Any] | JoinRefused:
    """Return the reply to a redemption. It is a refusal if the device has been revoked, or has got other credentials
    since.
    """
    if name not in active or name not in users:
        return JoinRefused(REVOKED)
    folder, seed = fleet.devices_folder / name, secret_seed(asked)
    files = {file: path.read_text(encoding="utf-8") for file in _PUBLIC if (path := folder / file).is_file()}
    certificate = files.get(f"{IDENTITY}.crt")
    if certificate is not None:
        key = device_key(seed)
        files[f"{IDENTITY}.key"] = key_text(key)
        valid = is_for_key(certificate, key)
    else:
        password = new_password(seed)
        files["password"] = password + "\n"
        valid = not users[name].startswith(CERTIFICATE) and password_matches(users[name], password)
    if not valid:
        return JoinRefused(REVOKED)
    return {"device": name, "files": files, "addresses": _addresses(fleet.config, json.loads(files[DEVICE]))}


def _addresses(config: Config, device: dict[str, Any]) -> dict[str, str | None]:
    """Return the addresses of MQTT and of MQTT over WebSocket for a device with this configuration."""
    broker = device["broker"]
    host, secure = _bracketed(broker["host"]), "s" if "tls" in broker else ""
    websocket = websocket_address(config.broker, broker["host"])
    return {"mqtt": f"mqtt{secure}://{host}:{broker['port']}", "websocket": websocket}


def websocket_address(broker: BrokerOptions, host: str | None = None) -> str | None:
    """Return the address of MQTT over WebSocket, or None if there is none.

    An external broker has an address of its own. The endpoint's address is at ``host``, by default as devices reach it.
    """
    if broker.websocket_url is not None:
        return broker.websocket_url
    if broker.websocket_place is None:
        return None
    secure = "" if broker.certificate is None else "s"
    host = _bracketed(host or broker.reached_as or broker.host)
    return f"ws{secure}://{host}:{broker.websocket_place[1]}{WEBSOCKET_PATH}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
