"""One participation: the device package in a thread of its own, fed with the states of one entity.

The device package decides alone what leaves the home: policy, ledger, pauses and signatures are its own. This module
gives it the clock and random numbers of the operating system, a folder, and samples.
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from undertone_device.core.ledger import FILE as LEDGER
from undertone_device.host import consent, household
from undertone_device.host.gateway import HostedDevice
from undertone_device.host.others import Comparison
from undertone_device.host.sources.source import SensorSource
from undertone_device.host.words import read_words
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import DeviceConfig, read_config
from undertone_device.setup.storage import LARGEST_SECRET, FileStorage
from undertone_shared.checks import check_integer, check_text
from undertone_shared.errors import Invalid
from undertone_shared.policy import parse_policy

from .links import Link, is_loopback
from .units import sample

_LOGGER = logging.getLogger(__name__)
_STEP_MILLISECONDS = 250
# Connecting may block for 10 s for each address of the server: IPv6 and IPv4. Sending the waiting reports takes at most
# 2 s more.
_STOP_SECONDS = 25
# Words in the device's status if the server refuses the device's credentials.
_REFUSALS = ("bad user name or password", "not authorised")
# For this many seconds after the start, a refusal of a device that was never connected counts as temporary.
_PATIENCE_SECONDS = 120
# This file is in the state folder while Home Assistant writes a backup. A ledger that is restored with it is old.
BACKUP_MARK = "in-a-backup"
_WAITING = 1000
CONFIG = "device.json"
_JOINED = "join.json"
# Longest name of a host, in characters (RFC 1035).
_LONGEST_HOST = 253
# Files of a new device that a server may send.
_FILES = (CONFIG, "policy.json", "ca.crt", "password", "device.crt", "device.key")


class StateSource(SensorSource):
    """Turns the states of an entity into samples in the campaign's ``unit``.

    A state that is unavailable, unknown or no number is no sample. ``cumulative``: the entity is a meter that only
    counts up; if it was reset or replaced, the new readings continue the old ones.
    """

    polled = False

    def __init__(self, unit: str, cumulative: bool) -> None:
        self._unit = unit
        self._cumulative = cumulative
        self._newest: int | None = None
        self._before_reset = 0
        # Unix second of the newest sample, for the household.
        self.heard: int | None = None
        self._samples: deque[int] = deque(maxlen=_WAITING)

    def offer(self, state: str | None, unit: str | None) -> None:
        """Take a state of the entity, in the event loop. Whatever the state contains, this does not raise."""
        if state in (None, "unavailable", "unknown", ""):
            self.trouble = "no sample: the entity has no state"
            return
        try:
            value = sample(state, unit, self._unit)
        except ValueError as error:
            self.trouble = f"no sample: {error}"
            return
        self.trouble = ""
        if self._cumulative:
            newest = self._newest
            self._newest = value
            # A small step back is a correction; a large one is a reset.
            if newest is not None and 10 * value < 9 * newest:
                self._before_reset += newest
            value += self._before_reset
        self._samples.append(value)

    def arrived(self) -> list[int]:
        """Return the samples since the last call; called in the device's thread."""
        samples = []
        while self._samples:
            samples.append(self._samples.popleft())
        if samples:
            self.heard = clock.unix_time()
        return samples


class Participation:
    """A device in ``folder`` that runs in a thread from ``start`` to ``stop``. ``changed`` is called in that thread.

    ``language``, ``zone``: the home's; the comparison with other homes counts an evening from 18:00 in this time zone.
    """

    def __init__(
        self,
        folder: Path,
        unit: str,
        cumulative: bool,
        changed: Callable[[], None],
        language: str,
        zone: str = "UTC",
    ) -> None:
        self._zone = ZoneInfo(zone)
        self.unit = unit
        self.source = StateSource(unit, cumulative)
        # The comparison with the other homes (see `undertone_device.host.others`). Only this home sees it: it is in no
        # status, log or diagnostics. ``compares``: whether the comparison is switched on.
        self.compared: dict[str, Any] | None = None
        # The group whose mean is shown; "all" is everybody.
        self.compared_group = ""
        self.compares = True
        self._wanted: bool | None = None
        self.state: dict[str, Any] | None = None
        self.error = ""
        # The reason for which a campaign was refused last, in the person's language.
        self.refusal = ""
        self._language = language
        self._reasons: dict[str, str] = {}
        self._refusals: dict[str, int] = {}
        self._folder = folder
        self._log = folder / "reports.log"
        self._changed = changed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = 0.0
        self._config: DeviceConfig | None = None

    @property
    def config(self) -> DeviceConfig:
        """The device's configuration. Raises Invalid."""
        self._config = self._config or read_config(str(self._folder / CONFIG))
        return self._config

    @property
    def refused(self) -> bool:
        """True while the server refuses the device's credentials, unless the device may be new to the server.

        A server may refuse a new device for a moment, until it has read its changed files.
        """
        state = self.state
        if state is None or state["online"] or not any(word in state["trouble"] for word in _REFUSALS):
            return False
        return state["counts"]["connected"] > 0 or time.monotonic() - self._started > _PATIENCE_SECONDS

    def start(self) -> None:
        """Open the device's files, lock them, and start its thread; it may block. Raises Invalid, OSError."""
        config = self.config
        self._reasons = read_words(self._language)["refused_campaigns"]
        forget_restored(Path(config.state))
        policy = assembly.read_policy(config)
        transport = assembly.board_transport(config, policy, clock.ticks)
        # The device's sentences go to the debug log only, because they may name files. The status has what matters.
        device = HostedDevice(config, _LOGGER.debug, self._note, self.source, transport, compares=True)
        self._stopped.clear()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(device,), name=f"undertone {config.name}", daemon=True)
        self._thread.start()

    def _run(self, device: HostedDevice) -> None:
        shown: Any = None
        try:
            while not self._stopped.is_set():
                device.step(_STEP_MILLISECONDS)
                self._log_connection(device)
                self._note_refusal(device.state)
                compared = self._compare(device.comparison)
                self.state = device.state and {**device.state, "last_reading": self.source.heard}
                # The statuses are compared as text, because the device goes on changing the counters in them. The time
                # and the last reading's time are left out: a meter may be read each second, and Home Assistant would
                # store each status.
                important = self.state and json.dumps(
                    {**self.state, "time": 0, "last_reading": 0, "compared": compared}
                )
                if important != shown:
                    shown = important
                    self._changed()
            device.finish()
        except Exception as error:
            # An error that ends the thread must be visible. Only its type is shown, because its text could quote a
            # reading.
            self.error = type(error).__name__
            _LOGGER.error(
                "%s has stopped after an error (%s): reload its entry in Undertone's integration",
                device.name,
                self.error,
            )
            self._changed()
        finally:
            device.close()

    def _note_refusal(self, state: dict[str, Any] | None) -> None:
        # A copy, because the device goes on counting in its status.
        counts = dict(state["refusals"]) if state else {}
        self.refusal = self._reasons.get(newest_refusal(self._refusals, counts), self.refusal)
        self._refusals = counts

    def _log_connection(self, device: HostedDevice) -> None:
        """Log once that the connection is lost, and once that it is back; called before ``state`` is replaced."""
        before, now = self.state, device.state
        if before and now and before["online"] != now["online"]:
            _LOGGER.info("%s is %s", device.name, "connected again" if now["online"] else "not connected")

    def _note(self, word: str, device: str, report: bytes) -> None:
        """Append a report that is sent or acknowledged to the file ``reports.log``, if the owner has made one."""
        if self._log.exists():
            with self._log.open("a", encoding="ascii") as file:
                file.write(f"{time.time_ns() // 1_000_000} {word} {device} {report.hex()}\n")

    def stop(self) -> bool:
        """End the thread after its current step; return True if it has ended. The call may block for 25 seconds."""
        self._stopped.set()
        if self._thread is None:
            return True
        self._thread.join(_STOP_SECONDS)
        return not self._thread.is_alive()

    def pause(self, on: bool) -> None:
        """Begin or end the household's pause by the device's own rules; it may block. Raises Invalid, OSError."""
        if on:
            household.begin_pause(self.config, clock.unix_time())
        else:
            household.resume(self.config, clock.unix_time())

    def compare(self, on: bool) -> None:
        """Switch the comparison with the other homes on or off, in the next step. Off deletes what was kept for it."""
        self._wanted = on

    def _compare(self, comparison: Comparison | None) -> int:
        """Update the comparison; return a number that changes whenever the comparison changes."""
        if comparison is None:
            return 0
        if self._wanted is not None and self._wanted != comparison.on:
            comparison.switch(self._wanted)
        self._wanted = None
        self.compares = comparison.on
        self.compared_group = comparison.group
        now = clock.unix_time()
        self.compared = comparison.summary(now, evening_of(now, self._zone))
        return comparison.changes


def evening_of(now: int, zone: ZoneInfo) -> int:
    """Return the Unix second of 18:00 today, or of 18:00 yesterday if it is not yet 18:00."""
    local = datetime.fromtimestamp(now, zone)
    begins = local.replace(hour=18, minute=0, second=0, microsecond=0)
    return int((begins if local >= begins else begins - timedelta(days=1)).timestamp())


def newest_refusal(before: dict[str, int], now: dict[str, int]) -> str:
    """Return a reason whose count of refused campaigns has grown from ``before`` to ``now``, or "" if none has."""
    grown = [reason for reason, count in now.items() if count > before.get(reason, 0)]
    return grown[-1] if grown else ""


@dataclass(frozen=True)
class Joined:
    """What a home remembers of joining: link, key and the offer that a person agreed to, with the policy in it.

    This is stored before the code is redeemed, because the same key can redeem the code again if an answer was lost.
    The home also needs the key to leave. ``key``: 64 hexadecimal digits, as secret as the device's password.
    """

    link: Link
    key: str
    offer: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Joined | None":
        """Return what is stored in a device's folder.

        Return None if nothing is stored, or nothing that can be read. Raises OSError.
        """
        text = FileStorage(str(folder)).read(_JOINED) if folder.is_dir() else None
        try:
            fields = json.loads(text or b"")
            offer = dict(fields["offer"])
            consent.offered(offer["policy"], offer["operator"], offer["about"])
            return cls(Link(**fields["link"]), str(fields["key"]), offer)
        except (ValueError, TypeError, KeyError):
            return None

    def store(self, folder: Path) -> "Joined":
        """Store this durably, readable by this user only, and return what is stored. Raises OSError.

        If the folder has a key already, that key stays.
        """
        before = Joined.read(folder)
        stored = self if before is None else Joined(self.link, before.key, self.offer)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        FileStorage(str(folder)).write(_JOINED, json.dumps(asdict(stored)).encode())
        return stored


def shown(offer: dict[str, Any], language: str) -> dict[str, Any]:
    """Return what a person reads of an offer: see `undertone_device.host.consent`. Raises Invalid."""
    policy = consent.offered(offer.get("policy"), offer.get("operator"), offer.get("about"))
    return consent.consent(policy, read_words(language)["consent"])


def stored(folder: Path, language: str) -> dict[str, Any]:
    """Return what a person reads of the policy in a device's folder. Raises Invalid."""
    policy = assembly.read_policy(read_config(str(folder / CONFIG)))
    return consent.consent(policy, read_words(language)["consent"])


def set_password(folder: Path, password: str) -> None:
    """Store the new password of a device whose old one was replaced. Raises Invalid, OSError."""
    name = read_config(str(folder / CONFIG)).broker.password_file
    if name is None:
        raise Invalid("broker has no field password_file, expected one, to which the new password is written")
    if not 0 < len(password.encode()) <= LARGEST_SECRET or not password.isprintable():
        raise Invalid(f"the password is not 1 to {LARGEST_SECRET} bytes of printable text")
    FileStorage(str(folder)).write(Path(name).name, password.encode())


def store_files(folder: Path, files: dict[str, str], joined: Joined) -> None:
    """Write the files of a new device durably, readable by this user only. Raises Invalid, OSError.

    The files come from the server, and the person has agreed to the policy that was shown. So the configuration may
    name only files that came with it, and only the agreed policy is stored.
    """
    for name in files:
        if name not in _FILES:
            raise Invalid(f"a file's name is {name!r}, expected one of {', '.join(_FILES)}")
    storage = FileStorage(str(folder))
    configuration = _home_configuration(files, joined.link)
    consent.same_policy(joined.offer["policy"], files["policy.json"])
    if "tls" not in configuration["broker"] and not parse_policy(files["policy.json"].encode()).insecure:
        raise Invalid('broker has no field tls, expected one: the policy does not say "insecure": true')
    for name, text in {**files, CONFIG: json.dumps(configuration)}.items():
        storage.write(name, text.encode())
    config = read_config(str(folder / CONFIG))
    assembly.tls_context(config.broker, assembly.read_policy(config))


def _home_configuration(files: dict[str, str], link: Link) -> dict[str, Any]:
    """Return the fields of device.json without ``source``, ``wifi`` and ``ntp``. Raises Invalid.

    Home Assistant gives the samples, the network and the clock.
    """
    fields: Any
    try:
        fields = json.loads(files[CONFIG])
    except (KeyError, ValueError, RecursionError):
        fields = None
    broker = fields.get("broker") if isinstance(fields, dict) else None
    if not isinstance(broker, dict) or "policy.json" not in files:
        raise Invalid("the server's files lack policy.json, or a device.json with the field broker")
    # Before anything is stored or shown, check that the server's address is a text of limited length and a port.
    check_text("broker.host", broker.get("host"), _LONGEST_HOST)
    if broker.get("port") is not None:
        check_integer("broker.port", broker["port"], 1, 65535)
    tls = broker.get("tls")
    if tls is None and (link.secure or not is_loopback(str(broker.get("host")))):
        why = "the link is encrypted" if link.secure else "the server is not on this machine"
        raise Invalid(f"broker has no field tls, expected one: {why}")
    tls = tls if isinstance(tls, dict) else {}
    expected = {
        "policy": (fields.get("policy"), ("policy.json",)),
        "state": (fields.get("state"), ("state",)),
        "broker.password_file": (broker.get("password_file"), (None, "password")),
        "broker.tls.ca": (tls.get("ca"), (None, "", "ca.crt")),
        "broker.tls.identity": (tls.get("identity"), (None, "device")),
    }
    for name, (value, allowed) in expected.items():
        if value not in allowed:
            raise Invalid(f"{name} is {value!r}, expected {allowed[-1]!r}")
    return {name: value for name, value in fields.items() if name not in ("source", "wifi", "ntp")}


def mark_backup(folder: Path, on: bool) -> None:
    """Mark the state folder for the time in which a backup copies it, or remove the mark. Raises OSError."""
    state = folder / "state"
    if state.is_dir():
        storage = FileStorage(str(state))
        if on:
            storage.write(BACKUP_MARK, b"")
        else:
            storage.delete(BACKUP_MARK)


def forget_restored(state: Path) -> None:
    """Delete a ledger that came from a backup, because it could allow an interval to be reported twice.

    The device then counts all that it may ever spend as spent. Raises OSError.
    """
    if (state / BACKUP_MARK).exists():
        storage = FileStorage(str(state))
        storage.delete(LEDGER)
        storage.delete(BACKUP_MARK)


__all__ = [
    "Invalid",
    "Joined",
    "Participation",
    "StateSource",
    "mark_backup",
    "set_password",
    "shown",
    "store_files",
    "stored",
]
