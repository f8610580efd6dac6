"""What servers of several sizes need: reports and logins are timed on this machine, and the rest is computed.

The trial runs the server's own endpoint, ingest and SQLite store in a temporary folder, with TLS and passwords. Other
threads send prepared reports in place of devices. Only the processor time of the thread that reads, commits and
acknowledges is counted, so that the devices' share is left out.
"""

import os
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from undertone_aggregator.base.open_files import RESERVE, raise_limit
from undertone_aggregator.base.room import CONNECTION_BYTES, Room, by_files, by_memory, usable_memory
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.design import square_wave
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.store.store import open_store
from undertone_aggregator.threshold import first_edges
from undertone_device.mqtt.knocks import PERIOD
from undertone_device.mqtt.packets import ACKED, CONNECTED, ClientSession
from undertone_operate.fleet.authority import private_authority, server_certificate
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.off_board.issue import build
from undertone_shared.scalar import Cohort
from undertone_shared.topics import DEFAULT_PREFIX, report_topic

HOMES = (1_000, 20_000, 100_000, 1_000_000)
TRIAL = "trial"
# Unix second at which the trial takes place.
TRIAL_NOW = 1_800_000_000
TRIAL_SLOT_SECONDS = 60
_DEVICES, _SLOTS = 200, 60
# Number of devices that log in or report at the same time.
_ABREAST = 20
_PASSWORD = "trial"
_PATIENCE_SECONDS = 120.0
# Memory of a server without devices, with its page and the listener for joining.
_BASE_BYTES = 512 << 20
# Bytes that the store and the inventory keep for each device.
_DEVICE_BYTES = 256
# Bytes on the wire for a report and its acknowledgement, with TLS and TCP/IP; and bytes that a connected device gets in
# a day, which are a copy of the campaign each hour.
_REPORT_WIRE_BYTES, _DAY_WIRE_BYTES = 200, 60_000
_YEARS = 3
# Up to this share of a core, one process has room for storms (all devices logging in at once) and for choosing θ.
_COMFORTABLE = 0.5
_DAY = 86400
# Names of the ways to run a server of a size.
ONE, FILES, MEMORY, MANY = "one process", "too few files", "too little memory", "several machines"
_ONE = "one process with SQLite, on this machine"
_BROKERS = "or use brokers, which hold the connections"
_MANY = "brokers, with workers and PostgreSQL, or with landed reports and Spark"


@dataclass(frozen=True)
class Speed:
    """What the trial measured: seconds of processor time for a report and for a login, and bytes of the store for a
    slot.
    """

    report: float
    login: float
    slot_bytes: float


@dataclass(frozen=True)
class Need:
    """What a server of ``homes`` needs. ``disk_bytes``: after three years, without audit and landing.

    ``core``: the share of one core that the reports take. ``back_seconds``: time until all devices have logged in again
    after a restart. It is the period in which they come back (`undertone_device.mqtt.knocks`), or the processor time of
    their logins if that is longer. ``way``: how to run the server, or what this machine has too little of. ``advice``:
    a sentence about this way.
    """

    homes: int
    reports_per_second: float
    memory_bytes: float
    disk_bytes: float
    files: int
    core: float
    back_seconds: float
    network_bits_per_second: float
    way: str
    advice: str


def here() -> dict[str, Room]:
    """Return how many connections this machine has room for, by its files and by its memory.

    The result is a map: name of what runs short -> room.
    """
    return {FILES: by_files(raise_limit()), MEMORY: by_memory(usable_memory())}


def need(homes: int, slot_seconds: int, speed: Speed, rooms: Mapping[str, Room]) -> Need:
    """Compute what a server needs for homes that all stay connected and report in each slot. ``rooms``: see `here`."""
    reports = homes / slot_seconds
    core = reports * speed.report
    bits = 8 * homes * (_REPORT_WIRE_BYTES / slot_seconds + _DAY_WIRE_BYTES / _DAY)
    return Need(
        homes,
        reports,
        _BASE_BYTES + homes * CONNECTION_BYTES,
        homes * _DEVICE_BYTES + _YEARS * 365 * _DAY / slot_seconds * speed.slot_bytes,
        homes + RESERVE,
        core,
        max(PERIOD / 1000, homes * speed.login),
        bits,
        *_way(homes, core, rooms),
    )


def _way(homes: int, core: float, rooms: Mapping[str, Room]) -> tuple[str, str]:
    if core > _COMFORTABLE:
        return MANY, _MANY
    short = {name: room for name, room in rooms.items() if homes > room.connections}
    if not short:
        return ONE, _ONE
    fixes = [
        f"{room.why} is enough for only {room.connections:,} devices: use {room.fix_for(homes)}"
        for room in short.values()
    ]
    return ", ".join(short), "; ".join((*fixes, _BROKERS))


def trial_campaign() -> Campaign:
    """Return a campaign whose devices report in every minute around `TRIAL_NOW`."""
    first = TRIAL_NOW // TRIAL_SLOT_SECONDS - 80
    return build(
        name=TRIAL,
        sensor="load",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=10_000,
        slot_seconds=TRIAL_SLOT_SECONDS,
        cycle=1440,
        epoch=first * TRIAL_SLOT_SECONDS,
        last_slot=first + 1440,
        default=0,
        cohort=Cohort(square_wave(1, first_edges(10_000, 128))),
        report=None,
    )


def measure() -> Speed:
    """Log devices in and count their reports, in a temporary folder; return the measured speed. Raises OSError."""
    names = [f"meter-{number:03d}" for number in range(_DEVICES)]
    campaign = trial_campaign()
    with tempfile.TemporaryDirectory(prefix="undertone-capacity-") as name:
        folder = Path(name)
        listener, context = _secured(folder)
        credentials.write_passwords(folder / "passwords", dict.fromkeys(names, _PASSWORD))
        file = folder / "s.sqlite"
        plan = IngestPlan(DEFAULT_PREFIX, TRIAL, TRIAL_SLOT_SECONDS, cells_of)
        gate = Gate(folder / "passwords", credentials.servers_names(), None)
        # The store is closed before its size is read, because closing writes its log into the file.
        with open_store(file) as store:
            store.set_meta({"campaign": TRIAL})
            store.add_epoch(Epoch(campaign, TRIAL_NOW))
        before = _size(file)
        with (
            open_store(file) as store,
            Endpoint(listener, gate, Limits(burst=10**9), plan.prefix, batch=plan.batch) as endpoint,
        ):
            endpoint.listen()
            ingest = Ingest(plan, store, endpoint.open(TRIAL, plan.slot_seconds), clock=lambda: TRIAL_NOW)
            devices = [_Device(each, campaign) for each in names]

            def count(work: Callable[[_Device], None]) -> float:
                """Return the processor time of this thread while all devices do something in other threads."""
                began = time.thread_time()
                with ThreadPoolExecutor(_ABREAST) as pool:
                    working = [pool.submit(work, each) for each in devices]
                    while not all(each.done() for each in working):
                        ingest.step()
                for each in working:
                    each.result()
                return time.thread_time() - began

            login = count(lambda device: device.log_in(endpoint.port, context))
            reports = count(_Device.report_all)
            for device in devices:
                device.close()
        return Speed(reports / (_DEVICES * _SLOTS), login / _DEVICES, (_size(file) - before) / _SLOTS)


def _secured(folder: Path) -> tuple[Listener, ssl.SSLContext]:
    """Return a listener on a free port of loopback with a certificate, and a context of its devices."""
    authority = private_authority(folder / "tls", "localhost")
    certificate, key = server_certificate(authority, ["localhost"])
    (folder / "server.crt").write_text(certificate, encoding="utf-8")
    (folder / "server.key").write_text(key, encoding="utf-8")
    context = ssl.create_default_context()
    # The certificate is not verified, because client and server are both in this process.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return Listener("127.0.0.1", 0, folder / "server.crt", folder / "server.key"), context


def _size(file: Path) -> int:
    """Return the bytes of a store's file and of the files beside it, such as its write-ahead log."""
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*") if os.path.exists(path))


class _Device:
    """A device with prepared reports, one for each slot."""

    def __init__(self, name: str, campaign: Campaign) -> None:
        self._name = name
        self._session = ClientSession(600)
        self._socket: ssl.SSLSocket | None = None
        assert campaign.cohort is not None
        symbols = campaign.cohort.mechanism.symbols
        self._topic = report_topic(DEFAULT_PREFIX, TRIAL, name)
        self._reports = [
            report.pack(
                report.COHORT,
                campaign.fingerprint,
                campaign.first_slot + slot,
                ((hash(name) + slot * 31) % symbols,),
                1 + slot,
            )
            for slot in range(_SLOTS)
        ]

    def log_in(self, port: int, context: ssl.SSLContext) -> None:
        """Connect, and wait until the server has accepted the device. Raises OSError."""
        plain = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._socket = context.wrap_socket(plain, server_hostname="localhost")
        self._session.connect(self._name, self._name, _PASSWORD, 0)
        self._until(CONNECTED, 1)

    def report_all(self) -> None:
        """Send all reports, and wait for their acknowledgements. Raises OSError."""
        for each in self._reports:
            self._session.publish(self._topic, each, 0)
        self._until(ACKED, _SLOTS)

    def close(self) -> None:
        """Disconnect."""
        if self._socket is not None:
            self._socket.close()

    def _until(self, kind: str, count: int) -> None:
        assert self._socket is not None
        self._socket.sendall(self._session.output())
        while count > 0:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"the trial's server has ended the connection of {self._name}")
            count -= sum(event[0] == kind for event in self._session.receive(data, 0))
            if output := self._session.output():
                self._socket.sendall(output)
