"""Benchmark: one server process with twenty campaigns against one campaign with as many devices, and readers of the
page.
"""

import asyncio
import json
import multiprocessing
import os
import signal
import socket
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

from undertone_aggregator.counts.seen import DUPLICATE, UNVERIFIED
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.broker_process import kept_port
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.report_sources import MANAGED
from undertone_aggregator.store.store import open_store
from undertone_operate.initialise import Wishes, initialise
from undertone_shared import report
from undertone_shared.errors import Invalid
from undertone_shared.topics import DEFAULT_PREFIX, report_topic
from undertone_simulator.wire.descriptors import allow_connections
from undertone_studies.feed import publish
from undertone_studies.registry import Options
from undertone_studies.row import Measured, duration, rate

TITLE = "Twenty campaigns in one process, and the readers of its page"

CAMPAIGNS = 20
SLOT_SECONDS = 60
_PUBLISHER = "bench"
_WAIT_SECONDS = 120.0
_GLANCES = 5
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
"""


@dataclass(frozen=True)
class Drained:
    """Result of draining a backlog: reports per second of wall and of processor time; server's memory in MB."""

    rate: float
    processor: float
    megabytes: float


def run(options: Options) -> list[Measured]:
    """Measure ingest of 20 campaigns, of one, and of 20 with readers of the page.

    Raises Invalid without mosquitto or /proc.
    """
    if not Path("/proc/self/stat").exists():
        raise Invalid("processor time and memory of other processes are read from /proc, which is not here")
    devices, slots, readers = (400, 2, 20) if options.quick else (10_000, 15, 1000)
    with _server(1, devices) as alone, _server(CAMPAIGNS, devices) as many:
        drained: dict[str, list[Drained]] = {"one": [], "many": [], "read": []}
        for turn in range(1 if options.quick else 3):
            drained["one"].append(alone.drain(turn, slots))
            # Each variant goes first in turn, because the load of the machine changes within minutes.
            for half, name in enumerate(("many", "read") if turn % 2 else ("read", "many")):
                with many.read_by(readers if name == "read" else 0):
                    drained[name].append(many.drain(2 * turn + half, slots))
        best = {name: max(several, key=lambda each: each.rate) for name, several in drained.items()}
        glance = many.glance()
    what, beside = f"{CAMPAIGNS} campaigns, {devices:,} devices", "one campaign with as many"
    return [
        rate(f"{what}: commit, then acknowledge", best["many"].rate, "reports/s", beside, best["one"].rate, 0.8),
        duration(what, best["many"].processor, "CPU µs/report", beside, best["one"].processor),
        duration(what, best["many"].megabytes, "MB of the server", beside, best["one"].megabytes),
        rate(f"{what}, {readers} readers", best["read"].rate, "reports/s", "no reader", best["many"].rate, 0.95),
        duration(f"the page's data, {CAMPAIGNS} campaigns", 1000 * glance[0], "ms, again", "goal", 200.0, 1.0),
        Measured(f"the page's data, {CAMPAIGNS} campaigns", 1000 * glance[1], "ms, the first time"),
    ]


class _Served:
    """A server in its own process, whose clock stands still while it drains a backlog."""

    def __init__(self, home: Home, devices: int, clock: "Synchronized[float]", pid: int, page: int) -> None:
        self._home = home
        self._clock = clock
        self._pid = pid
        self._page = page
        names = home.names()
        self._devices = [(f"{names[n % len(names)]}-{n:05d}", names[n % len(names)]) for n in range(devices)]
        # The stores stay open, because opening twenty of them while a drain is timed would distort the measured time.
        self._stores = {name: open_store(home.config(name).store_url, campaign=name, read_only=True) for name in names}
        self._epochs = {name: store.epochs()[-1].campaign for name, store in self._stores.items()}
        first = next(iter(self._epochs.values()))
        # The clock is set so that all slots are over before they are reported.
        clock.value = first.epoch + 90 * SLOT_SECONDS

    def drain(self, turn: int, slots: int) -> Drained:
        """Measure how long the server takes for a backlog that was published while it was stopped.

        The same devices use other slots at each turn.
        """
        before, reports = self._received(), len(self._devices) * slots
        os.kill(self._pid, signal.SIGSTOP)
        try:
            # A client has at most 65,535 unacknowledged messages.
            for slot in range(turn * slots, (turn + 1) * slots):
                publish(self._address(), self._reports(slot, 1))
            processor = self._processor()
        finally:
            os.kill(self._pid, signal.SIGCONT)
        began = time.perf_counter()
        while self._received() < before + reports:
            if time.perf_counter() > began + _WAIT_SECONDS:
                raise RuntimeError(f"{self._received() - before} of {reports} reports were received")
            time.sleep(0.01)
        wall = time.perf_counter() - began
        return Drained(reports / wall, (self._processor() - processor) / reports * 1e6, self._megabytes())

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
        """Measure the seconds for the summaries of all campaigns: the best of several requests, and the first."""
        took = []
        for _ in range(_GLANCES):
            began = time.perf_counter()
            answer = asyncio.run(_get(self._page, "/api/v1/campaigns"))
            took.append(time.perf_counter() - began)
            if len(json.loads(answer)["campaigns"]) != len(self._epochs):
                raise RuntimeError("the page does not show every campaign")
        return min(took[1:]), took[0]

    def _reports(self, start: int, slots: int) -> Iterator[tuple[str, bytes]]:
        for slot in range(start, start + slots):
            for number, (device, name) in enumerate(self._devices):
                campaign = self._epochs[name]
                assert campaign.cohort is not None
                symbol = (number + slot) * 31 % campaign.cohort.mechanism.symbols
                at = campaign.first_slot + slot
                payload = report.pack(report.COHORT, campaign.fingerprint, at, (symbol,), 1 + slot)
                yield report_topic(DEFAULT_PREFIX, name, device), payload

    def _received(self) -> int:
        total = 0
        for name, store in self._stores.items():
            outcomes = store.outcomes()
            # A broker that waits too long for the stopped server delivers some messages again.
            if sum(outcomes[known] for known in ("counted", DUPLICATE, UNVERIFIED)) != outcomes["received"]:
                raise RuntimeError(f"reports of {name} were refused: {dict(outcomes)}")
            total += outcomes["counted"]
        return total

    def _address(self) -> Address:
        return Address("127.0.0.1", kept_port(self._home.broker), _PUBLISHER, _PUBLISHER)

    def _processor(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _megabytes(self) -> float:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@contextmanager
def _server(campaigns: int, devices: int) -> Iterator[_Served]:
    from undertone_aggregator.mqtt.broker import free_port

    with tempfile.TemporaryDirectory(prefix="undertone-bench-") as name:
        folder, page = Path(name) / "home", free_port()
        wishes = Wishes(MANAGED, "127.0.0.1", None, "", ("undertone",), health=None, page=f"127.0.0.1:{page}")
        initialise(folder, wishes)
        home = Home(folder)
        credentials.change_passwords(home.broker / "passwords", {_PUBLISHER: _PUBLISHER})
        with (home.broker / "access").open("a") as access:
            access.write(f"user {_PUBLISHER}\ntopic readwrite #\n")
        for number in range(campaigns):
            home.write_plan(f"c{number:02d}", _PLAN.format(name=f"c{number:02d}"))
        context = multiprocessing.get_context("spawn")
        clock = context.Value("d", time.time())
        child = context.Process(target=serve, args=(str(folder), clock))
        child.start()
        try:
            _wait(home, child, page)
            yield _Served(home, devices, clock, child.pid or 0, page)
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
            raise RuntimeError("the page did not begin")
        time.sleep(0.05)


def serve(folder: str, clock: "Synchronized[float]") -> None:
    """Run `undertone serve` in a child process with another clock."""
    from undertone_aggregator.base.log import Journal
    from undertone_aggregator.campaign.runner import Options as How
    from undertone_aggregator.server.page_process import run_page
    from undertone_aggregator.server.supervisor import open_server

    stop, home = threading.Event(), Home(Path(folder))
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open(os.devnull, "w") as nowhere:
        journal = Journal(nowhere)
        with open_server(home, stop, journal, How(clock=lambda: clock.value)) as server, run_page(home, journal):
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
