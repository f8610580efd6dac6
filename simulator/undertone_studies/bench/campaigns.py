"""Benchmark: a server with twenty campaigns, against a server with one campaign and as many devices.

It also measures the page of the twenty campaigns while many people read it.

Each device has four reports under way, and sends the next one when its campaign has committed one of them and the
endpoint has acknowledged it. While the waits are measured, devices send one report at a time and pause. Then this
process locks the database of one campaign, which stands for a store that hangs; the devices of that campaign wait.
"""

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from undertone_aggregator.base.open_files import allow_connections
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.report_sources import DIRECT
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.initialise import Wishes, initialise
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, report_topic
from undertone_simulator.mosquitto import HOST, free_port
from undertone_studies.bench import ingest as bench
from undertone_studies.bench.connections import ConnectionLoad
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration, rate

TITLE = "Twenty campaigns in one process, with readers of their page"

CAMPAIGNS = 20
SLOT_SECONDS = 60
# Number of reports that each device keeps unacknowledged in the timed rounds. It is the default of a real device.
_IN_FLIGHT = 4
# Time limit in seconds, long enough for an overloaded machine.
_WAIT_SECONDS = 600.0
# For the measured waits: number of devices, number of reports of each, and seconds of pause after each report. The
# store hangs for a minute.
_WAITING = 200
_REPORTS = 120
_PAUSE_SECONDS = 0.5
# Largest increase in milliseconds that a hanging campaign may cause in the waits of other campaigns' devices.
_LONGER_MS = 100.0
_GLANCES = 5
# Prefixes of the names of devices in the timed rounds, and of devices whose waits are measured.
_TIMED, _APART = "timed", "apart"
_PLAN = """\
[campaign]
name = "{name}"
sensor = "load"
unit = "Wh"
bound = 10000
epsilon = 1
slot_seconds = 60
rounds = [1000]
cycle = 1000
settle_slots = {settle}
"""
# A slot settles after this many slots, which is more than the reports of a device in the timed rounds.
_SETTLE_SLOTS = 300


@dataclass(frozen=True)
class Drained:
    """Result of draining a backlog: reports/s of wall time, µs of processor time per report, server's memory in MB."""

    rate: float
    processor: float
    megabytes: float


def run(options: StudyOptions) -> list[Measured]:
    """Measure ingest of 20 campaigns, of one, and of 20 whose page has readers; waits of devices; times of the page.

    Raises Invalid without /proc.
    """
    if not Path("/proc/self/stat").exists():
        raise Invalid(
            "this benchmark reads processor time and memory from /proc, which does not exist: run it on Linux"
        )
    devices, each, readers = (400, 2, 20) if options.quick else (4_000, 30, 1000)
    allow_connections(2 * devices)
    with _server(1, devices) as alone, _server(CAMPAIGNS, devices) as many:
        drained: dict[str, list[Drained]] = {"one": [], "many": [], "read": []}
        for turn in range(1 if options.quick else 3):
            drained["one"].append(alone.report(each))
            # The two variants take turns in going first, because the load of the machine changes within minutes.
            for name in ("many", "read") if turn % 2 else ("read", "many"):
                with many.read_by(readers if name == "read" else 0):
                    drained[name].append(many.report(each))
        best = {name: max(several, key=lambda each: each.rate) for name, several in drained.items()}
        glance = many.glance()
        calm, beside = many.waits(2 if options.quick else _REPORTS)
    what, one = f"{CAMPAIGNS} campaigns, {devices:,} devices", "one campaign, as many devices"
    late = f"{CAMPAIGNS - 1} campaigns beside one whose store hangs"
    return [
        rate(f"{what}: commit, then acknowledge", best["many"].rate, "reports/s", one, best["one"].rate, 0.8),
        duration(what, best["many"].processor, "CPU µs/report", one, best["one"].processor),
        duration(what, best["many"].megabytes, "MB of the server", one, best["one"].megabytes),
        rate(f"{what}, {readers} readers", best["read"].rate, "reports/s", "no reader", best["many"].rate, 0.95),
        Measured(f"{CAMPAIGNS} campaigns", calm, "ms to PUBACK, 99 % quantile"),
        duration(
            late,
            beside,
            "ms to PUBACK, 99 % quantile",
            f"no store hangs, plus {_LONGER_MS:.0f} ms",
            calm + _LONGER_MS,
            1.0,
        ),
        duration(f"the page's data, {CAMPAIGNS} campaigns", 1000 * glance[0], "ms, later request", "goal", 200.0, 1.0),
        Measured(f"the page's data, {CAMPAIGNS} campaigns", 1000 * glance[1], "ms, first request"),
    ]


class _Served:
    """A server in its own process, and its devices, which are in this process.

    ``ahead``: seconds by which the server's clock is ahead of this machine's.
    """

    def __init__(self, home: Home, devices: list[str], ahead: "Synchronized[float]", pid: int, page: int) -> None:
        self._home = home
        self._pid = pid
        self._page = page
        names = home.names()
        # The stores stay open, because opening twenty of them while a round is timed would distort the measured time.
        self._stores = {name: open_store(home.config(name).store_url, campaign=name, read_only=True) for name in names}
        self._epochs = {name: store.epochs()[-1].campaign for name, store in self._stores.items()}
        first = next(iter(self._epochs.values()))
        # Set the server's clock past all slots that are reported. The first one has settled, and from now on a further
        # slot settles each minute.
        ahead.value = first.epoch + (_SETTLE_SLOTS + 1) * SLOT_SECONDS - time.time()
        self._runner = asyncio.Runner()
        # Every load that was connected, to be closed at the end.
        self._loads: list[ConnectionLoad] = []
        timed = [device for device in devices if not device.startswith(_APART)]
        self._load = self._connected(timed)
        # The first report of a device costs more than later ones, so it is not timed.
        self._runner.run(self._load.report(1))
        self._load.in_flight = _IN_FLIGHT
        self._apart = [device for device in devices if device.startswith(_APART)]

    def _connected(self, devices: list[str]) -> ConnectionLoad:
        port = self._home.config(self._home.names()[0]).broker.port
        campaigns = {device: device.split("-")[1] for device in devices}
        load = ConnectionLoad(
            port,
            [
                (device, report_topic(DEFAULT_PREFIX, name, device), self._epochs[name])
                for device, name in campaigns.items()
            ],
        )
        self._loads.append(load)
        self._runner.run(load.connect())
        return load

    def report(self, each: int) -> Drained:
        """Time a round in which each device sends ``each`` reports and the server acknowledges all of them."""
        before, processor = self._load.sent, self._processor()
        began = time.perf_counter()
        self._runner.run(self._load.report(each))
        wall = time.perf_counter() - began
        reports = self._load.sent - before
        return Drained(reports / wall, (self._processor() - processor) / reports * 1e6, self._megabytes())

    def waits(self, each: int) -> tuple[float, float]:
        """Return the 99th percentile of the wait for a PUBACK, in milliseconds: undisturbed, and while one store hangs.

        Raises RuntimeError if a report to the campaign whose store hangs was acknowledged meanwhile.
        """
        hanging = self._home.names()[0]
        stuck = self._connected([device for device in self._apart if f"-{hanging}-" in device])
        load = self._connected([device for device in self._apart if f"-{hanging}-" not in device])
        late = []
        load.pause = _PAUSE_SECONDS
        store = self._home.config(hanging).store_address.file
        assert store is not None
        for held in (False, True):
            with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as database:
                if held:
                    database.execute("BEGIN IMMEDIATE")
                load.waits.clear()
                self._runner.run(self._wait(load, each, stuck if held else None))
                late.append(1000 * float(np.quantile(load.waits, 0.99)))
                if held and stuck.waits:
                    raise RuntimeError(
                        f"reports to {hanging} that were acknowledged and not stored: {len(stuck.waits)}"
                    )
                if held:
                    database.execute("ROLLBACK")
            database.close()
        return late[0], late[1]

    async def _wait(self, load: ConnectionLoad, each: int, stuck: ConnectionLoad | None) -> None:
        never = None if stuck is None else asyncio.ensure_future(stuck.report(1))
        await load.report(each)
        if never is not None:
            never.cancel()

    def close(self) -> None:
        """Close the devices' connections."""
        for load in self._loads:
            self._runner.run(load.close())
        self._runner.close()

    @contextmanager
    def read_by(self, readers: int) -> Iterator[None]:
        """Keep ``readers`` live pages open, each with the event stream of one campaign, and read their events."""
        names = self._home.names()
        context = multiprocessing.get_context("spawn")
        opened, ended = context.Event(), context.Event()
        listened = [names[i % len(names)] for i in range(readers)]
        child = context.Process(target=read_events, args=(self._page, listened, opened, ended))
        child.start()
        try:
            if not opened.wait(_WAIT_SECONDS):
                raise RuntimeError(f"not all of {readers} pages opened")
            yield
        finally:
            ended.set()
            child.join()

    def glance(self) -> tuple[float, float]:
        """Return the seconds of a request for all campaigns' summaries: the least of the later ones, and the first."""
        took = []
        for _ in range(_GLANCES):
            began = time.perf_counter()
            answer = asyncio.run(_get(self._page, "/api/v1/campaigns"))
            took.append(time.perf_counter() - began)
            if len(json.loads(answer)["campaigns"]) != len(self._epochs):
                raise RuntimeError("the page does not show every campaign")
        return min(took[1:]), took[0]

    def _processor(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _megabytes(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@contextmanager
def _server(campaigns: int, devices: int) -> Iterator[_Served]:
    with tempfile.TemporaryDirectory(prefix="undertone-bench-") as name:
        folder, page = Path(name) / "home", free_port()
        wishes = Wishes(DIRECT, HOST, None, "", ("undertone",), port=free_port(), health=None, page=f"127.0.0.1:{page}")
        initialise(folder, wishes)
        home = Home(folder)
        names = [f"c{number:02d}" for number in range(campaigns)]
        provisioned = [
            f"{kind}-{names[n % campaigns]}-{n:05d}"
            for kind, m in ((_TIMED, devices), (_APART, _WAITING))
            for n in range(m)
        ]
        credentials.change_passwords(home.broker / "passwords", dict.fromkeys(provisioned, bench.PASSWORD))
        own = {device: [device.split("-")[1]] for device in provisioned}
        credentials.write_access_rules(home.broker / "access", DEFAULT_PREFIX, own)
        for name in names:
            home.write_plan(name, _PLAN.format(name=name, settle=_SETTLE_SLOTS))
        context = multiprocessing.get_context("spawn")
        ahead = context.Value("d", 0.0)
        child = context.Process(target=serve, args=(str(folder), ahead))
        child.start()
        try:
            _wait(home, child, page)
            served = _Served(home, provisioned, ahead, child.pid or 0, page)
            yield served
            served.close()
        finally:
            child.terminate()
            child.join()


def _wait(home: Home, child: Any, page: int) -> None:
    """Wait until every campaign has issued its first epoch, and the page listens."""
    deadline = time.monotonic() + _WAIT_SECONDS
    for name in home.names():
        while True:
            try:
                with open_store(home.config(name).store_url, campaign=name, read_only=True) as store:
                    if store.epoch_count():
                        break
            except (Invalid, OSError):
                pass
            if time.monotonic() > deadline or not child.is_alive():
                raise RuntimeError(f"campaign {name} did not begin")
            time.sleep(0.05)
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", page)) == 0:
                return
        if time.monotonic() > deadline or not child.is_alive():
            raise RuntimeError("the page did not start to listen")
        time.sleep(0.05)


def serve(folder: str, ahead: "Synchronized[float]") -> None:
    """Run `undertone serve` in a child process, with a clock that is ``ahead`` seconds ahead."""
    from undertone_aggregator.base.log import Journal
    from undertone_aggregator.campaign.runner import RunOptions
    from undertone_aggregator.server.page_process import run_page
    from undertone_aggregator.server.supervisor import alone, open_server

    stop, home = threading.Event(), Home(Path(folder))
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        journal = Journal(nowhere)
        options = RunOptions(clock=lambda: time.time() + ahead.value)
        with alone(home), open_server(home, stop, journal, options) as server, run_page(home, journal):
            server.run(stop)


def read_events(port: int, names: list[str], opened: "Event", ended: "Event") -> None:
    """Read event streams in a child process, one for each name, until ``ended`` is set."""
    allow_connections(len(names))
    asyncio.run(_read(port, names, opened, ended))


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def _read(port: int, names: list[str], opened: "Event", ended: "Event") -> None:
    """Open an event stream for each name, and read until the end."""
    streams = []
    for name in names:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/v1/campaigns/{name}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        streams.append((reader, writer))
    reading = [asyncio.ensure_future(_swallow(reader)) for reader, _ in streams]
    opened.set()
    while not ended.is_set():
        await asyncio.sleep(0.1)
    for task in reading:
        task.cancel()
    for _, writer in streams:
        writer.close()


async def _swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass
