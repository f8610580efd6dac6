"""The processes of demonstrations, load tests and soaks: server, broker, fleet, MicroPython devices, and their logs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from undertone_aggregator.base.uninterrupted import uninterrupted
from undertone_aggregator.store.store import open_store
from undertone_device.mqtt.knocks import PERIOD
from undertone_device.tools.shipped import shipped
from undertone_simulator.mosquitto import Mosquitto
from undertone_simulator.site import LocalHome
from undertone_simulator.wire.fleet_process import CONNECTED, MISSING, READY, FleetJob
from undertone_simulator.wire.ledger import read_ledgers
from undertone_simulator.wire.verify import Accounts, reconcile

# Time limit in seconds for all devices to connect once they begin; they must begin within both limits together.
CONNECT_SECONDS = 60.0
START_SECONDS = 60.0
# Time limit in seconds for the server to count what devices have sent.
DRAIN_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.1
NO_MICROPYTHON = (
    "MicroPython was not found. In a clone, `make test` installs it on x86-64 Linux and on Apple silicon; elsewhere"
    " name MicroPython's unix port in UNDERTONE_MICROPYTHON."
)


class Failed(Exception):
    """A process ended early, or makes no progress."""


class Log:
    """A file to which a child process appends; `new` returns the lines that were added since the last call."""

    def __init__(self, path: Path):
        self.path = path
        self._position = 0
        self._rest = b""

    def new(self) -> list[str]:
        """Return the complete lines that were added to the file since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]


class Processes:
    """Starts the processes of a run, and ends all that still run on exit. Their logs and ledgers are in ``folder``.

    ``site``: the server's folder; None for a server that this program did not set up. ``log_messages``: True if the
    broker logs every message. The caller starts ``broker``.
    """

    def __init__(self, folder: Path, site: LocalHome | None = None, *, log_messages: bool = False):
        self.folder = folder
        self.site = site
        self._broker = None if site is None or site.direct else site.mosquitto(log_messages=log_messages)
        self.aggregator: subprocess.Popen[bytes] | None = None
        self.fleet: subprocess.Popen[bytes] | None = None
        self.micropython: subprocess.Popen[bytes] | None = None
        self.micropythons: list[subprocess.Popen[bytes]] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self._aggregator_log = Log(folder / "aggregator.log")
        self._failures = Log(folder / "aggregator.log")

    @property
    def broker(self) -> Mosquitto:
        """The broker. There is none if devices connect to the server itself."""
        assert self._broker is not None
        return self._broker

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        # Without this, a second Ctrl-C, or one for the process group, could end the loop and leave children running.
        with uninterrupted():
            for child in (*self._children, self.aggregator):
                end(child, signal.SIGKILL)
            if self._broker is not None:
                self._broker.stop()

    def start_aggregator(self) -> None:
        """Start `undertone serve` with its log as JSON lines."""
        assert self.site is not None
        command = [sys.executable, "-m", "undertone", "serve", str(self.site.folder), "--log-format", "json"]
        self.aggregator = self._start(command, self._aggregator_log.path)

    def aggregator_events(self) -> list[dict[str, Any]]:
        """Return the aggregator's log entries since the last call."""
        return _events(self._aggregator_log)

    def start_fleet(self, job: FleetJob) -> None:
        """Start the fleet's process."""
        path = self.folder / "fleet.json"
        job.save(path)
        self.fleet = self._start(
            [sys.executable, "-m", "undertone_simulator.wire.fleet_process", str(path)], self.folder / "fleet.log"
        )

    def fleet_ready(self) -> bool:
        """Return True if all devices of the fleet are connected."""
        return READY in self.words("fleet.log")

    def check(self) -> None:
        """Raise Failed if a process has ended with an error, or if the server logged that its campaign does not run."""
        for child, name, log in (
            (self.aggregator, "the server", "aggregator.log"),
            (self.fleet, "the fleet", "fleet.log"),
            *((child, "MicroPython", "micropython.log") for child in self.micropythons),
        ):
            check_alive(child, name, self.words(log))
        for event in _events(self._failures):
            if event.get("event") == "failed":
                raise Failed(f"the server failed: {event.get('message')}")

    def wait_until_connected(
        self, clients: int, seconds: float = CONNECT_SECONDS, show: Callable[[str], None] | None = None
    ) -> None:
        """Wait until the fleet's ``clients`` are connected; ``show`` gets a line of progress.

        Raises Failed if a process ends with an error, if devices are missing ``seconds`` after the fleet has begun to
        connect, or if it does not begin within `START_SECONDS` + ``seconds``.
        """
        deadline = time.monotonic() + START_SECONDS + seconds
        begun = False
        while not self.fleet_ready():
            self.check()
            connected = self.last_number("fleet.log", CONNECTED)
            if connected is not None and not begun:
                # The time limit starts anew when the fleet's process begins to connect its clients.
                begun, deadline = True, time.monotonic() + seconds
            if show is not None:
                show(f"{connected or 0} of {clients} devices connected")
            if time.monotonic() > deadline:
                within = seconds if begun else START_SECONDS + seconds
                missing = self.last_line("fleet.log", MISSING)
                raise Failed(
                    f"only {connected or 0} of {clients} devices connected within {within:g} s"
                    + (f"; some that did not: {missing}" if missing else "")
                )
            time.sleep(_POLL_SECONDS)

    def ledgers(self) -> list[Path]:
        """Return the files of all ledgers: of the fleet, of other devices, and of the faults of this run."""
        return [*sorted(self.folder.glob("*.ledger")), *sorted(self.folder.glob("micropython*.log"))]

    def drain(self, hostile: frozenset[str] = frozenset(), show: Callable[[Accounts], None] | None = None) -> Accounts:
        """Return the accounts once every report is accounted for, or after `DRAIN_SECONDS`.

        ``hostile``: devices that send what they like. ``show`` gets the accounts meanwhile.
        """
        assert self.site is not None
        deadline = time.monotonic() + DRAIN_SECONDS
        while True:
            with open_store(self.site.config.store_url, read_only=True) as store:
                accounts = reconcile(read_ledgers(self.ledgers()), store, hostile=hostile)
            if accounts.holds or time.monotonic() > deadline:
                return accounts
            if show is not None:
                show(accounts)
            time.sleep(0.3)

    def last_number(self, log: str, what: str) -> int | None:
        """Return the number on the last line of a child's log that begins with ``what``, None without one."""
        line = self.last_line(log, what)
        return int(line) if line else None

    def last_line(self, log: str, what: str) -> str:
        """Return the rest of the last line of a child's log that begins with ``what``, '' without one."""
        lines = [line.partition(" ")[2] for line in self.words(log).splitlines() if line.startswith(f"{what} ")]
        return lines[-1] if lines else ""

    def start_micropython(
        self,
        device: str,
        readings: Sequence[int | tuple[int, ...]],
        slots: int,
        name: str = "micropython",
        period: int = PERIOD,
    ) -> None:
        """Start one device under MicroPython, from its files; its log is called ``name``. ``period``: see `Knocks`."""
        assert self.site is not None
        program = find_micropython()
        if program is None:
            raise FileNotFoundError("there is no MicroPython to start")
        file = self.folder / f"{name}.readings"
        lines = (" ".join(map(str, (x,) if isinstance(x, int) else x)) for x in readings)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = self.site.device(device) / "device.json"
        command = [program, str(shipped("examples/unix_device.py")), str(config), str(slots), str(file), str(period)]
        self.micropython = self._start(command, self.folder / f"{name}.log")
        self.micropythons.append(self.micropython)

    def words(self, name: str) -> str:
        """Return the last 2,000 characters of a child's log."""
        with contextlib.suppress(OSError):
            return (self.folder / name).read_text(errors="replace", encoding="utf-8")[-2000:].strip()
        return ""

    def _start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file, uninterrupted():
            # Ctrl-C must reach only this program, which ends its children itself.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=_beside(file, log),
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
            self._children.append(child)
        return child


def _events(log: Log) -> list[dict[str, Any]]:
    """Return the entries of a log of JSON lines since the last call."""
    events = []
    for line in log.new():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                events.append(event)
    return events


def _beside(file: IO[bytes], log: Path) -> int | IO[bytes]:
    """Return where standard error goes: to the log, or nowhere for MicroPython, whose log serves as its ledger."""
    return subprocess.DEVNULL if log.name.startswith("micropython") else file


def end(child: subprocess.Popen[bytes] | None, how: signal.Signals = signal.SIGTERM) -> int | None:
    """Signal a child, wait for it, and kill it after a while; return its exit code.

    A child that has already ended gets no signal. Without a child, None is returned.
    """
    if child is None:
        return None
    if child.poll() is None:
        child.send_signal(how)
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def find_micropython() -> str | None:
    """Return MicroPython's unix port: $UNDERTONE_MICROPYTHON, that of this Python environment, or that on the PATH.

    Returns None if there is none.
    """
    return (
        os.environ.get("UNDERTONE_MICROPYTHON")
        or shutil.which("micropython", path=sysconfig.get_path("scripts"))
        or shutil.which("micropython")
    )


def check_alive(child: "subprocess.Popen[bytes] | None", name: str, last_words: str) -> None:
    """Check a child. Raises Failed if it has ended with an error."""
    if child is not None and child.poll():
        raise Failed(f"{name} ended with code {child.returncode}: {last_words[-500:] or 'it printed nothing'}")
