"""The processes of a demonstration, and their logs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from undertone_aggregator.base.uninterrupted import uninterrupted
from undertone_device.tools.shipped import shipped
from undertone_simulator.mosquitto import Mosquitto
from undertone_simulator.wire.fleet_process import READY, FleetJob

_STOP_SECONDS = 15.0
NO_MICROPYTHON = (
    "MicroPython is not here, so all devices run under CPython. In a clone, `make test` installs it on x86-64 Linux and"
    " on Apple silicon; elsewhere name MicroPython's unix port in UNDERTONE_MICROPYTHON."
)


class Failed(Exception):
    """A process ended early, or makes no progress; the message has the end of its log."""


class Log:
    """A file to which a child appends; `new` gives its lines since the last call."""

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
    """Starts the processes of a demonstration, and ends all that still run on exit. The caller starts ``broker``.

    ``log_messages``: log every message at the broker.
    """

    def __init__(self, folder: Path, port: int, *, log_messages: bool = False):
        self.folder = folder
        passwords, access = folder / "passwords", folder / "access"
        self.broker = Mosquitto(folder / "broker", port, passwords=passwords, access=access, log_messages=log_messages)
        self.aggregator: subprocess.Popen[bytes] | None = None
        self.fleet: subprocess.Popen[bytes] | None = None
        self.micropython: subprocess.Popen[bytes] | None = None
        self.micropythons: list[subprocess.Popen[bytes]] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self.micropython_log = folder / "micropython.log"
        self._aggregator_log = Log(folder / "aggregator.log")

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C, or one for the process group, would end this loop and leave children running.
        with uninterrupted():
            for child in (*self._children, self.aggregator):
                end(child, signal.SIGKILL)
            self.broker.stop()

    def start_aggregator(self, config: Path) -> None:
        """Start `undertone serve` with its log as JSON lines."""
        command = [sys.executable, "-m", "undertone", "serve", str(config), "--log-format", "json"]
        self.aggregator = self._start(command, self._aggregator_log.path)

    def aggregator_events(self) -> list[dict[str, Any]]:
        """Return the aggregator's log entries since the last call."""
        events = []
        for line in self._aggregator_log.new():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        return events

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

    def start_micropython(
        self, device: str, readings: Sequence[int | tuple[int, ...]], slots: int, name: str = "micropython"
    ) -> None:
        """Start one device under MicroPython, from its provisioned files; its log is called ``name``."""
        program = find_micropython()
        if program is None:
            raise FileNotFoundError("there is no MicroPython to start")
        file = self.folder / f"{name}.readings"
        lines = (" ".join(map(str, (x,) if isinstance(x, int) else x)) for x in readings)
        file.write_text("\n".join(lines) + "\n")
        config = self.folder / "devices" / device / "device.json"
        command = [program, str(shipped("examples/unix_device.py")), str(config), str(slots), str(file)]
        self.micropython = self._start(command, self.folder / f"{name}.log")
        self.micropythons.append(self.micropython)

    def words(self, name: str) -> str:
        """Return the last 2,000 characters of a child's log."""
        with contextlib.suppress(OSError):
            return (self.folder / name).read_text(errors="replace")[-2000:].strip()
        return ""

    def _start(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file, uninterrupted():
            # Ctrl-C must reach only the demo, which ends its children in order.
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


def _beside(file: IO[bytes], log: Path) -> int | IO[bytes]:
    """Return where standard error goes: into the same log, except for MicroPython, whose log is its ledger."""
    return subprocess.DEVNULL if log.name.startswith("micropython") else file


def end(child: subprocess.Popen[bytes] | None, how: signal.Signals = signal.SIGTERM) -> int | None:
    """Signal a child, wait for it, and kill it after a while; return its exit code.

    It has no effect on a child that has already ended.
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
        raise Failed(f"{name} ended with code {child.returncode}: {last_words[-500:] or 'it said nothing'}")
