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
from pathlib import Path
from typing import Any

from undertone_device.core.ledger import FILE as LEDGER
from undertone_device.host import household
from undertone_device.host.gateway import HostedDevice
from undertone_device.host.sources.source import SensorSource
from undertone_device.setup import assembly, clock
from undertone_device.setup.config import DeviceConfig, read_config
from undertone_device.setup.storage import FileStorage
from undertone_shared.errors import Invalid

from .units import sample

_LOGGER = logging.getLogger(__name__)
_STEP_MILLISECONDS = 250
_STOP_SECONDS = 10
# A file in the state folder while Home Assistant writes a backup: a ledger that is restored with it is old.
BACKUP_MARK = "in-a-backup"
_WAITING = 1000


class StateSource(SensorSource):
    """Turns the states of an entity into samples in the campaign's ``unit``.

    ``cumulative``: the entity is a meter that only counts up.

    A state that is unavailable, unknown or no number is no sample. If a meter was reset or replaced, its new readings
    continue the old ones, as Home Assistant's statistics do.
    """

    polled = False

    def __init__(self, unit: str, cumulative: bool) -> None:
        self._unit = unit
        self._cumulative = cumulative
        self._newest: int | None = None
        self._before_reset = 0
        self._samples: deque[int] = deque(maxlen=_WAITING)

    def offer(self, state: str | None, unit: str | None) -> None:
        """Take a state of the entity; called in the event loop. It never raises for what a state says."""
        if state in (None, "unavailable", "unknown", ""):
            self.trouble = "no sample: the entity is unavailable"
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
        return samples


class Participation:
    """A device in ``folder`` that runs in a thread from ``start`` to ``stop``. ``changed`` is called in that thread."""

    def __init__(self, folder: Path, unit: str, cumulative: bool, changed: Callable[[], None]) -> None:
        self.source = StateSource(unit, cumulative)
        self.state: dict[str, Any] | None = None
        self.error = ""
        self._folder = folder
        self._log = folder / "reports.log"
        self._changed = changed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._config: DeviceConfig | None = None

    @property
    def config(self) -> DeviceConfig:
        """The device's configuration. Raises Invalid."""
        self._config = self._config or read_config(str(self._folder / "device.json"))
        return self._config

    def start(self) -> None:
        """Open the device's files, lock them, and start its thread; it may block. Raises Invalid, OSError."""
        config = self.config
        forget_restored(Path(config.state))
        policy = assembly.read_policy(config)
        transport = assembly.board_transport(config, policy, clock.ticks)
        # The text is not kept, because a sentence of the device may name files; what matters is in its status.
        device = HostedDevice(config, _LOGGER.debug, self._note, self.source, transport)
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, args=(device,), name=f"undertone {config.name}", daemon=True)
        self._thread.start()

    def _run(self, device: HostedDevice) -> None:
        shown: Any = None
        try:
            while not self._stopped.is_set():
                device.step(_STEP_MILLISECONDS)
                self.state = device.state
                # As text, because the status holds counters that the device goes on changing.
                important = device.state and json.dumps({**device.state, "time": 0})
                if important != shown:
                    shown = important
                    self._changed()
            device.finish()
        except Exception as error:
            # Whatever ends the thread must be visible; its text could quote a reading, its type cannot.
            self.error = type(error).__name__
            _LOGGER.error("The participation of %s has ended: %s", device.name, self.error)
            self._changed()
        finally:
            device.close()

    def _note(self, word: str, device: str, report: bytes) -> None:
        """Append a report that is sent or acknowledged to the file ``reports.log``, if the owner has made one."""
        if self._log.exists():
            with self._log.open("a", encoding="ascii") as file:
                file.write(f"{time.time_ns() // 1_000_000} {word} {device} {report.hex()}\n")

    def stop(self) -> None:
        """End the thread after its current step; it may block for some seconds."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def pause(self, on: bool) -> None:
        """Begin or end the household's pause by the device's own rules; it may block. Raises Invalid, OSError."""
        if on:
            household.begin_pause(self.config, clock.unix_time())
        else:
            household.resume(self.config, clock.unix_time())

    def set_password(self, password: str) -> None:
        """Store the new password of a device whose old one was replaced; it may block. Raises Invalid, OSError."""
        name = self.config.broker.password_file
        if name is None:
            raise Invalid("the device has no password, expected one that authenticates by password")
        path = Path(name)
        FileStorage(str(path.parent)).write(path.name, password.encode())


def store_files(folder: Path, files: dict[str, str]) -> None:
    """Write the files of a new device durably, readable by this user only. Raises Invalid, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    storage = FileStorage(str(folder))
    for name, text in files.items():
        if not name or "/" in name or name.startswith("."):
            raise Invalid(f"a file's name is {name!r}, expected one without / and without . at its beginning")
        storage.write(name, text.encode())
    check_device(folder)


def check_device(folder: Path) -> None:
    """Check the files of a device. Raises Invalid."""
    config = read_config(str(folder / "device.json"))
    assembly.tls_context(config.broker, assembly.read_policy(config))


def mark_backup(folder: Path, on: bool) -> None:
    """Mark the state folder for the time in which a backup copies it, or remove the mark. Raises OSError."""
    state = Path(read_config(str(folder / "device.json")).state)
    if state.is_dir():
        storage = FileStorage(str(state))
        if on:
            storage.write(BACKUP_MARK, b"")
        else:
            storage.delete(BACKUP_MARK)


def forget_restored(state: Path) -> None:
    """Delete a ledger that came from a backup: the device then counts all that it may ever spend as spent.

    An old ledger could allow an interval to be reported twice. Raises OSError.
    """
    if (state / BACKUP_MARK).exists():
        storage = FileStorage(str(state))
        storage.delete(LEDGER)
        storage.delete(BACKUP_MARK)


__all__ = ["Invalid", "Participation", "StateSource", "check_device", "mark_backup", "store_files"]
