"""Benchmark: what a connection costs with TLS and a password, at the server's own endpoint and at mosquitto.

A third server, our own endpoint without TLS, shows how much of the memory TLS takes.

All servers are set up by the commands that an operator types (`undertone init`, with and without ``--broker``), with
the same number of devices, the same kind of key (P-256) and the same password hash (PBKDF2, 101 rounds). They run at
the same time, so that other work on the machine affects all of them alike. Devices log in to each server in turn and
stay connected, without a report. The rate of logins is that of one core: the logins of a round divided by the processor
time that the server used beyond its idle time, so that the client's work on the same machine does not count. Memory is
the growth of the server's resident set, divided by the connections. Both numbers are medians of the rounds.
"""

import asyncio
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from undertone_aggregator.base.open_files import allow_connections
from undertone_operate.fleet.read_devices import ProvisionedDevice, read_provisioned
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import find_mosquitto, free_port
from undertone_simulator.wire.connection import DeviceConnection
from undertone_studies.own_server import running, undertone
from undertone_studies.processor import check_proc, processor_seconds, resident
from undertone_studies.registry import StudyOptions
from undertone_studies.row import Measured, duration, rate

TITLE = "Logins and memory with TLS and passwords, beside mosquitto"

_OWN, _MOSQUITTO, _PLAIN = "endpoint", "mosquitto", "endpoint without TLS"
# Goals: at most 1.2 times mosquitto's memory, and at least .9 of its logins.
MEMORY, LOGINS = 1 / 1.2, 0.9
_ABREAST = 100
_ROUNDS = 5
# Each server is first watched without logins for this long. The processor time that it uses then is subtracted later.
_IDLE_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0
_KEEPALIVE = 600


def run(options: StudyOptions) -> list[Measured]:
    """Measure 500 or 5,000 connections. Raises Invalid without mosquitto, without /proc, or with too few open files."""
    check_proc()
    connections = 500 if options.quick else 5000
    allow_connections(3 * (connections + _ABREAST))
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened, asyncio.Runner() as runner:
        sides = [
            _Side(Path(name) / way, way, connections + _ABREAST, opened, runner) for way in (_OWN, _MOSQUITTO, _PLAIN)
        ]
        for _ in range(_ROUNDS):
            for side in sides:
                side.log_in(connections // _ROUNDS)
        (memory, logins), (their_memory, their_logins), (plain, _) = (side.medians() for side in sides)
        for side in sides:
            side.close()
    what = f"{connections:,} connections with TLS"
    return [
        duration(what, memory, "KB a connection", _MOSQUITTO, their_memory, MEMORY),
        rate(what, logins, "logins a second of a core", _MOSQUITTO, their_logins, LOGINS),
        Measured(f"{connections:,} connections without TLS", plain, "KB a connection"),
    ]


class _Side:
    """A server with its devices.

    A few devices log in first, because the server then loads code that it needs only once.
    """

    def __init__(self, home: Path, way: str, devices: int, opened: ExitStack, runner: asyncio.Runner) -> None:
        port = free_port()
        where = ["--port", str(port), "--websocket-port", "0"]
        if way == _OWN:
            where += ["--host", "localhost", "--tls"]
        if way == _MOSQUITTO:
            where = ["--broker", f"mqtts://localhost:{port}"]
        undertone("init", str(home), *where, "--health", f"127.0.0.1:{free_port()}")
        plan = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")
        undertone("campaign", "create", str(home), "load", *plan)
        undertone("devices", "add", str(devices), "--home", str(home))
        command = [sys.executable, "-m", "undertone", "serve", str(home)]
        if way == _MOSQUITTO:
            command = [find_mosquitto(), "-c", str(home / "broker/mosquitto.conf")]
        self._pid = opened.enter_context(running(command, port)).pid
        self._devices = read_provisioned(home / "fleets/load")
        context = None if way == _PLAIN else ssl.create_default_context(cafile=str(home / "tls/ca.crt"))
        self._logins = Logins(port, context)
        self._runner = runner
        # For each round: KB of memory for a connection, and logins per second of processor time.
        self._rounds: list[tuple[float, float]] = []
        runner.run(self._logins.log_in(self._devices[:_ABREAST]))
        self._next = _ABREAST
        self._idle = _used(self._pid, lambda: time.sleep(_IDLE_SECONDS))[0] / _IDLE_SECONDS

    def log_in(self, count: int) -> None:
        """Log the next devices in, and record memory and logins of this round."""
        devices = self._devices[self._next : self._next + count]
        self._next += count
        memory = resident(self._pid)
        used, wall = _used(self._pid, lambda: self._runner.run(self._logins.log_in(devices)))
        self._rounds.append(((resident(self._pid) - memory) / count, count / (used - self._idle * wall)))

    def medians(self) -> tuple[float, float]:
        """Return the medians of the rounds."""
        memory, logins = zip(*self._rounds, strict=True)
        return median(memory), median(logins)

    def close(self) -> None:
        """Close all connections."""
        self._runner.run(self._logins.close())


def _used(pid: int, work: Callable[[], object]) -> tuple[float, float]:
    """Return (processor time that process ``pid`` uses while ``work`` runs, time that passes), in seconds."""
    used, began = processor_seconds([pid]), time.perf_counter()
    work()
    return processor_seconds([pid]) - used, time.perf_counter() - began


class Logins:
    """Devices that log in, several at a time, and stay connected."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self._port = port
        self._context = context
        self._connections: list[DeviceConnection] = []
        self._left = 0
        self._done = asyncio.Event()

    async def log_in(self, devices: list[ProvisionedDevice]) -> None:
        """Log these devices in; return when the server has accepted all of them.

        Raises Invalid if the server ends a connection.
        """
        try:
            await self._all_in(devices)
        except OSError as wrong:
            why = str(wrong) or type(wrong).__name__
            raise Invalid(
                f"a device could not log in ({why}). The server waits 10 s for each login: if the machine was too busy,"
                " measure again with less other work"
            ) from None

    async def _all_in(self, devices: list[ProvisionedDevice]) -> None:
        for first in range(0, len(devices), _ABREAST):
            abreast = devices[first : first + _ABREAST]
            self._left = len(abreast)
            self._done.clear()
            await asyncio.gather(*map(self._open, abreast))
            await asyncio.wait_for(self._done.wait(), _PATIENCE_SECONDS)

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.abort()
        await asyncio.sleep(0.2)

    async def _open(self, device: ProvisionedDevice) -> None:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: DeviceConnection(device.name, device.password(), _KEEPALIVE, self),
            "localhost",
            self._port,
            ssl=self._context,
        )
        self._connections.append(connection)

    # Methods that a connection calls.

    def connected(self, connection: DeviceConnection) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()

    def message(self, connection: DeviceConnection, topic: str, payload: bytes) -> None:
        pass

    def acked(self, connection: DeviceConnection, payload: bytes) -> None:
        pass

    def lost(self, connection: DeviceConnection) -> None:
        pass
