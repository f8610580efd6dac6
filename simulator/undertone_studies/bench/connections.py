"""Benchmark: cost of a report from thousands of devices, through a broker and through direct connections.

Each connection has one report in flight and sends the next one when the report is acknowledged; the first report is not
timed. The processor time is the least of three rounds, for broker and server together, without the devices. A broker
acknowledges when it has a report, a direct endpoint when the report is committed. The variant "sockets" only answers
and stores nothing: no server in Python can cost less. In the variant with readers, the server publishes ten messages a
second, and this process reads them, too.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undertone_aggregator.base.files import write_private
from undertone_aggregator.base.open_files import allow_connections
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.mqtt import credentials, packets
from undertone_aggregator.store.store import open_store
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.topics import report_topic
from undertone_simulator.mosquitto import HOST, Mosquitto, free_port
from undertone_simulator.wire.connection import DeviceConnection
from undertone_studies.bench import ingest as bench
from undertone_studies.processor import check_proc, processor_seconds
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration, rate

TITLE = "Devices by the thousand, with a broker and without"

_WAYS = {
    "paho, one by one": ("paho", "plain"),
    "broker, one by one": ("broker", "plain"),
    "broker": ("broker", "lane"),
    "direct, one by one": ("direct", "plain"),
    "direct": ("direct", "lane"),
    "direct, 200 readers": ("readers", "lane"),
    "no server: sockets alone": ("sockets", "plain"),
}
_OLD = "paho, one by one"
_DIRECT, _READ = "direct", "direct, 200 readers"
# Goals: the processor time of the old intake (paho, one packet at a time), divided by that of each variant, must reach
# this ratio.
_GOALS = {"direct, one by one": 2.0, "direct": 1 / 0.35}
# Number of readers, and the goal for the ratio of the variant with readers to that without.
_READERS = 200
_WITH_READERS = 0.9
_READER = "reader"
_ABREAST = 200
_ROUNDS = 3
_PATIENCE_SECONDS = 240.0


@dataclass(frozen=True)
class Cost:
    """Cost of one variant: seconds to connect all; reports/s; µs of processor time per report; PUBACK waits in ms."""

    connecting: float
    rate: float
    processor: float
    waits: np.ndarray


def run(options: StudyOptions) -> list[Measured]:
    """Measure the processor time per report at 1,000 and 10,000 connections.

    Raises Invalid without mosquitto or /proc.
    """
    check_proc()
    rows = []
    for connections, each in ((200, 5),) if options.quick else ((1_000, 25), (10_000, 10)):
        allow_connections(connections)
        costs = {name: _measure(*way, connections, each) for name, way in _WAYS.items()}
        for name, cost in costs.items():
            what = f"{connections:,} connections, {name}"
            than, goal, fast = (
                (_DIRECT, _WITH_READERS, _WITH_READERS) if name == _READ else (_OLD, _GOALS.get(name), None)
            )
            old = costs[than]
            rows.append(duration(what, cost.processor, "CPU µs/report", than, old.processor, goal))
            rows.append(rate(what, cost.rate, "reports/s", than, old.rate, fast))
            rows.append(duration(what, cost.connecting, "s to connect", than, old.connecting))
            median, late = np.quantile(cost.waits, [0.5, 0.99]).tolist()
            rows.append(Measured(what, median, "ms to PUBACK, median"))
            rows.append(Measured(what, late, "ms to PUBACK, 99 % quantile"))
    return rows


def _measure(intake: str, admission: str, connections: int, each: int) -> Cost:
    names = [f"meter-{number:05d}" for number in range(connections)]
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        users = dict.fromkeys((*names, _READER, credentials.AGGREGATOR), bench.PASSWORD)
        credentials.write_passwords(folder / "passwords", users)
        access = f"user {credentials.AGGREGATOR}\ntopic readwrite #\npattern write {bench.PLAN.prefix}/+/+/%u/report\n"
        access += f"user {_READER}\ntopic read {bench.PLAN.prefix}/+/aggregate/#\n"
        write_private(folder / "access", access)
        campaign = bench.make_campaign()
        with open_store(folder / "s.sqlite") as store:
            store.set_meta({"campaign": bench.CAMPAIGN})
            store.add_epoch(Epoch(campaign, bench.NOW))
        broker = None
        if intake in ("broker", "paho"):
            broker = Mosquitto(
                folder / "broker", port, passwords=folder / "passwords", access=folder / "access", own_client_ids=True
            )
            broker.start()
        try:
            return _served(intake, admission, folder, port, broker, campaign, names, each)
        finally:
            if broker is not None:
                broker.stop()


def _served(
    intake: str,
    admission: str,
    folder: Path,
    port: int,
    broker: Mosquitto | None,
    campaign: Campaign,
    names: list[str],
    each: int,
) -> Cost:
    command = [sys.executable, "-m", "undertone_studies.served", intake, admission, str(folder), str(port)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        while (line := child.stdout.readline()) != b"ready\n":
            if not line:
                raise RuntimeError(f"the server for {intake} ended with code {child.wait()}")
        pids = [child.pid] + ([broker.pid] if broker is not None and broker.pid else [])
        load = ConnectionLoad(
            port, [(name, report_topic(bench.PLAN.prefix, bench.CAMPAIGN, name), campaign) for name in names]
        )
        counts = intake != "sockets"
        with asyncio.Runner() as runner:
            readers = runner.run(_connect_readers(port)) if intake == "readers" else []
            connecting = runner.run(load.connect())
            # The first report of a device costs extra work once, so it is not timed.
            _report(runner, load, 1, folder, counts)
            load.waits.clear()
            rounds = []
            for _ in range(_ROUNDS):
                before, began = processor_seconds(pids), time.perf_counter()
                _report(runner, load, each, folder, counts)
                rounds.append((processor_seconds(pids) - before, time.perf_counter() - began))
            for reader in readers:
                reader.close()
            runner.run(load.close())
        used, wall = (min(times) / (len(names) * each) for times in zip(*rounds, strict=True))
        return Cost(connecting, 1 / wall, used * 1e6, np.array(load.waits) * 1000)
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


async def _connect_readers(port: int) -> list[asyncio.Transport]:
    """Connect readers that subscribe to all estimates at QoS 0 and read them."""
    loop, hello = asyncio.get_running_loop(), packets.connect("", _READER, bench.PASSWORD, 600, clean=True)
    hello += packets.subscribe(1, [f"{bench.PLAN.prefix}/+/aggregate/#"])[:-1] + b"\0"
    opened = []
    for _ in range(_READERS):
        transport, _ = await loop.create_connection(asyncio.Protocol, HOST, port)
        transport.write(hello)
        opened.append(transport)
    return opened


def _report(runner: asyncio.Runner, load: "ConnectionLoad", each: int, folder: Path, counts: bool) -> None:
    """Send ``each`` reports per device and, if the server counts, wait until it has counted all of them."""
    runner.run(load.report(each))
    if counts:
        _wait_counted(folder, load.sent)


def _wait_counted(folder: Path, total: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with open_store(folder / "s.sqlite", read_only=True) as store:
        while (counted := store.outcomes()["counted"]) < total:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server has counted {counted} of {total} reports: {store.outcomes()}")
            time.sleep(0.02)


class ConnectionLoad:
    """The simulated devices, in this process: (user name, topic, campaign) of each.

    ``waits``: seconds from a device's newest report to the next PUBACK. ``pause``: seconds from an acknowledgement to
    the next report. ``in_flight``: reports of a device that are unacknowledged at a time.
    """

    def __init__(self, port: int, devices: Sequence[tuple[str, str, Campaign]]) -> None:
        self.waits: list[float] = []
        self.pause = 0.0
        self.in_flight = 1
        self._port = port
        self._devices = {name: (topic, campaign) for name, topic, campaign in devices}
        # How many reports each device will have sent when the round is over; how many sequences of reports (`in_flight`
        # for each device) have not ended.
        self._until = 0
        self._left = 0
        # Connection -> (device's name, number of reports that it has sent, time of the last one).
        self._connections: dict[DeviceConnection, tuple[str, int, float]] = {}
        self._done = asyncio.Event()

    @property
    def sent(self) -> int:
        """Number of reports that all devices have sent so far."""
        return len(self._devices) * self._until

    async def connect(self) -> float:
        """Connect all devices; return the seconds that it took."""
        began, names = time.perf_counter(), list(self._devices)
        for first in range(0, len(names), _ABREAST):
            abreast = names[first : first + _ABREAST]
            self._done.clear()
            self._left = len(abreast)
            await asyncio.gather(*(self._open(name) for name in abreast))
            # Devices connect in groups: the endpoint ends connections of one address if too many of them are
            # unanswered.
            await asyncio.wait_for(self._done.wait(), _PATIENCE_SECONDS)
        return time.perf_counter() - began

    async def report(self, each: int) -> None:
        """Send ``each`` more reports from each device, the next one when an earlier one is acknowledged."""
        self._until += each
        self._done.clear()
        self._left = self.in_flight * len(self._connections)
        for connection in list(self._connections):
            for _ in range(self.in_flight):
                self._next(connection)
        await asyncio.wait_for(self._done.wait(), _PATIENCE_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0.2)

    async def _open(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: DeviceConnection(name, bench.PASSWORD, 600, self), HOST, self._port
        )
        self._connections[connection] = (name, 0, 0.0)

    def _next(self, connection: DeviceConnection) -> None:
        name, number, _ = self._connections[connection]
        topic, campaign = self._devices[name]
        if number == self._until:
            self._finish()
            return
        symbols = campaign.rule.mechanisms[0][1].symbols
        slot = campaign.first_slot + number
        payload = report.pack(report.COHORT, campaign.fingerprint, slot, (number * 31 % symbols,), number + 1)
        self._connections[connection] = (name, number + 1, time.perf_counter())
        connection.publish(topic, payload)
        connection.flush()

    def _finish(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    # Methods that a connection calls.

    def connected(self, connection: DeviceConnection) -> None:
        self._finish()

    def message(self, connection: DeviceConnection, topic: str, payload: bytes) -> None:
        pass

    def acked(self, connection: DeviceConnection, payload: bytes) -> None:
        self.waits.append(time.perf_counter() - self._connections[connection][2])
        if self.pause:
            asyncio.get_running_loop().call_later(self.pause, self._next, connection)
        else:
            self._next(connection)

    def lost(self, connection: DeviceConnection) -> None:
        pass
