"""Devices that run on this machine, all in one process. Each has its own ledger, policy, connection and source."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertone_device.host import status
from undertone_device.host.home_assistant import open_card
from undertone_device.host.household import WHY
from undertone_device.host.others import Comparison, Others
from undertone_device.host.sources import open_source
from undertone_device.host.sources.background import BackgroundReader
from undertone_device.host.sources.source import SensorSource
from undertone_device.mqtt.client import Platform
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import DeviceConfig, read_config
from undertone_device.setup.storage import FileStorage
from undertone_shared.errors import Invalid
from undertone_shared.policy import Policy

if TYPE_CHECKING:
    from undertone_device.mqtt.protocols import Transport

_STATUS_SECONDS = 10
_STEP_MILLISECONDS = 250
_FINISH_MILLISECONDS = 2000


# Callback for a report: "sent" or "acked", the device, the report's bytes.
Note = Callable[[str, str, bytes], None]


class HostedDevice:
    """One device: its client, its source, and the status file for its owner. Raises Invalid, naming the field.

    ``say``: called with a sentence when something changes. ``note``: called with each report before it is sent, and
    when it is acknowledged. ``source``: where samples come from; by default the source of the configuration.
    ``transport``: by default paho-mqtt. ``state``: the newest status, None before the first round. ``compares``: True
    if the device receives the published means and keeps its own values beside them, in ``comparison``; otherwise
    ``comparison`` is None.
    """

    def __init__(
        self,
        config: DeviceConfig,
        say: Callable[[str], None],
        note: Note,
        source: SensorSource | None = None,
        transport: "Transport | None" = None,
        compares: bool = False,
    ) -> None:
        policy = assembly.read_policy(config)
        if policy.stream and policy.stream.dimension > 1:
            raise Invalid(f"stream.dimension is {policy.stream.dimension}, expected 1: a source gives one number")
        self._source = source or open_source(config)
        self._home = open_card(config)
        transport = transport or _paho(config, policy)
        self._storage = FileStorage(config.state)
        self.comparison = Comparison(self._storage) if compares else None
        self._others: Others | None = None
        if self.comparison is not None:
            transport = self._others = Others(transport, config, self.comparison)
        self._modulus = config.counter_modulus
        self.name = config.name
        self.say = say
        self.state: dict[str, Any] | None = None
        self._background = BackgroundReader(self._source) if self._source.slow else None
        read = (self._background or self._source).read if self._source.polled else None
        platform = Platform(clock.unix_time, clock.ticks, clock.sleep_ms)
        platform.read = read
        platform.handed_over = lambda report: note("sent", config.name, report)
        platform.acknowledged = lambda report: note("acked", config.name, report)
        self._client = assembly.make_client(config, policy, transport, platform)
        self._heard = clock.unix_time()
        self._written: dict[str, Any] = {}
        self._written_at = -_STATUS_SECONDS
        self._printed = ""
        self.say(f"started, broker {transport.places[0][0]}:{transport.places[0][1]}")

    def step(self, milliseconds: int) -> None:
        """Run one round: process samples, send reports, and write the status.

        An unchanged status is not written. While the printed sentence stays the same, the status is written at most
        every ten seconds.
        """
        self._observe()
        self._client.step(milliseconds)
        now = clock.unix_time()
        state = self._state(now)
        if state is None:
            return
        self.state = state
        if self._home is not None:
            self._home.show(state)
            state["home"] = self._home.trouble
        sentence = _sentence(state)
        if sentence != self._printed:
            self.say(sentence)
        elif 0 <= now - self._written_at < _STATUS_SECONDS or state == dict(self._written, time=now):
            return
        self._printed = sentence
        # Keep a copy of the written status for comparison, because the counters in ``state`` itself change later.
        text = json.dumps(state)
        self._written, self._written_at = json.loads(text), now
        self._write(text)

    def _observe(self) -> None:
        """Process the samples that have arrived since the last round."""
        reporter = self._client.reporter
        campaign = reporter.campaign
        if self._others is not None:
            self._others.campaign = campaign
        for sample in self._source.arrived():
            self._heard = clock.unix_time()
            reporter.observe(sample, self._heard)
            if self.comparison is not None:
                self.comparison.add(campaign, sample, self._heard, clock.ticks(), self._modulus)
        if self._background is None or campaign is None:
            return
        now = clock.unix_time()
        try:
            answer = self._background.answer(now, campaign.slot_seconds)
        except (OSError, ValueError):
            self._client.counts["sensor_failures"] += 1
        else:
            if answer is not None:
                reporter.observe(answer, now)

    def finish(self) -> None:
        """Send waiting reports for at most two seconds (longer if connecting takes longer), and write the status."""
        self._client.finish(_FINISH_MILLISECONDS)
        self._source.close()
        if self._home is not None:
            self._home.close()
        if state := self._state(clock.unix_time()):
            self._write(json.dumps(state))
        self.say(f"stopped, reports waiting in the outbox: {len(self._client.reporter.outbox)}")

    def close(self) -> None:
        """Unlock the state folder, so that another device object may use it; a process unlocks it when it ends."""
        storage = self._client.reporter.storage
        if isinstance(storage, FileStorage):
            storage.close()

    def _write(self, text: str) -> None:
        try:
            self._storage.write(status.FILE, text.encode())
        except OSError as error:
            # A full disk affects only the status; the ledger decides for itself whether the device can continue.
            self.say(f"the status cannot be written: {error}")

    def _state(self, now: int) -> dict[str, Any] | None:
        """Return the status; None, with a message, if the files in the device's folder cannot be read."""
        try:
            described = status.describe(self._client, now)
        except (OSError, ValueError) as error:
            sentence = f"the status cannot be made: {error}"
            if sentence != self._printed:
                self._printed = sentence
                self.say(sentence)
            return None
        return dict(described, source=(self._background or self._source).trouble or self._silence(now))

    def _silence(self, now: int) -> str:
        campaign = self._client.reporter.campaign
        if self._source.polled or campaign is None or now - self._heard < campaign.slot_seconds:
            return ""
        return "no sample: nothing has arrived for a whole slot"


def configuration(path: str) -> DeviceConfig:
    """Read the configuration in a file. Raises Invalid with the file's name."""
    try:
        return read_config(path)
    except Invalid as wrong:
        cause = wrong.__context__
        raise Invalid(f"{path}: {cause.strerror if isinstance(cause, OSError) else wrong}") from None


def run(paths: list[str], as_json: bool, ledger: str | None = None) -> None:
    """Run the devices of these configuration files until SIGTERM or Ctrl-C.

    ``ledger``: a file that records each report before it is sent, and when it is acknowledged. Raises Invalid before
    anything runs if a configuration is wrong, or if two share a name or a state folder; OSError for a ledger that
    cannot be written.
    """
    configs = [configuration(path) for path in paths]
    for what in ("name", "state"):
        values = [getattr(config, what) for config in configs]
        for value in values:
            if values.count(value) > 1:
                raise Invalid(
                    f"{what} is {value!r} in {values.count(value)} configurations, expected a different one in each"
                )
    with ExitStack() as stack:
        file = None if ledger is None else stack.enter_context(open(ledger, "a", 1, "ascii", opener=_private))

        def note(word: str, device: str, report: bytes) -> None:
            if file is not None:
                file.write(f"{time.time_ns() // 1_000_000} {word} {device} {report.hex()}\n")

        stopped: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, frame: stopped.append(received))
        devices = []
        for path, config in zip(paths, configs, strict=True):
            try:
                devices.append(HostedDevice(config, _printer(config.name, as_json), note))
            except Invalid as wrong:
                # Among several devices, the sentence has to say which one is wrong.
                raise Invalid(f"{path}: {wrong}" if len(paths) > 1 else str(wrong)) from None
        share = max(_STEP_MILLISECONDS // len(devices), 1)
        while not stopped:
            for device in devices:
                device.step(share)
        for device in devices:
            device.finish()


def _paho(config: DeviceConfig, policy: Policy) -> "Transport":
    """Return the connection of phones and gateways. Raises Invalid."""
    # The import is here, because a program that brings its own transport may lack paho-mqtt.
    from undertone_device.host.paho_transport import PahoTransport

    broker = config.broker
    assembly.apply_handover(config, policy)
    transport = PahoTransport(
        broker.host,
        broker.port,
        config.name,
        broker.user,
        assembly.read_password(broker),
        broker.keepalive,
        assembly.tls_context(broker, policy),
    )
    transport.places[:] = broker.places
    return transport


def _printer(device: str, as_json: bool) -> Callable[[str], None]:
    """Return a function that prints one line about the device for the user."""

    def say(sentence: str) -> None:
        line = f"{device}: {sentence}"
        print(json.dumps({"time": clock.unix_time(), "event": line}) if as_json else line, flush=True)

    return say


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, because it shows when and how often a device reported."""
    return os.open(path, flags, 0o600)


def configurations(folder: str) -> list[str]:
    """Return the paths of ``device.json`` in ``folder`` and in the folders directly in it, at least one.

    Raises Invalid if there is none.
    """
    paths = sorted(str(path) for pattern in ("device.json", "*/device.json") for path in Path(folder).glob(pattern))
    if not paths:
        raise Invalid(f"{folder} and the folders directly in it have no device.json")
    return paths


def _sentence(state: dict[str, Any]) -> str:
    """Return a line about the state; the line changes only when something important changes."""
    campaign = state["campaign"]
    parts = ["online" if state["online"] else "offline"]
    parts.append(f"campaign {campaign['name']} epoch {campaign['epoch']}" if campaign else "no campaign")
    if state["paused"]:
        why = WHY.get(state["paused"])
        parts.append(f"paused: {state['paused']}{f' ({why})' if why else ''}")
    parts += [sentence for sentence in (state["trouble"], state["source"], state.get("home")) if sentence]
    return ", ".join(parts)
