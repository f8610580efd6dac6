"""The test ledger of a simulated fleet: one line for each event of a report, each fault, and each part of a campaign.

    <unix ms> sent <device> <report in hex>         before these bytes go to the transport
    <unix ms> acked <device> <report in hex>        the broker's PUBACK arrived
    <unix ms> lost <device> <report in hex> <fault> nobody will send this report any more
    <unix ms> fault <name> <device, or ->           a fault was made to happen
    <unix ms> play <first slot> <column> <stride> <phase>  from this slot on, see `Play`

A report is *sent* once its line is on disk; `flush` comes before the hand-over. Nothing was sent for a line that a
kill cut short. The output of `device/examples/unix_device.py` serves as the ledger of that device.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

Key = tuple[str, bytes]
THRESHOLD = "threshold"
REPORT = "report"
# Seconds before a broker's kill in which messages that it acknowledged may be lost: a mosquitto here saves its queues
# every two seconds.
BROKER_WINDOW_SECONDS = 3.0
# Word in the ledger for an empty message, which only an attacker sends.
_EMPTY = "-"


class Play(NamedTuple):
    """A part of a campaign: in slot first + i the devices measure column + i·stride of the readings.

    `phase`: see `undertone_simulator.wire.playback.phase_of`.
    """

    first: int
    column: int
    stride: int
    phase: str


def _hex(report: bytes) -> str:
    return report.hex() or _EMPTY


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class FleetLedger:
    """Appends to the ledger in `path`; `flush` writes the lines to disk together. Raises OSError.

    `durable`: True if each flush waits for the disk; False saves this wait where the machine cannot lose its power.
    """

    def __init__(self, path: Path, milliseconds: Callable[[], int] = _milliseconds, durable: bool = True):
        self._milliseconds = milliseconds
        self._durable = durable
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        self._lines = ["\n"] if torn else []

    def _add(self, *words: object) -> None:
        self._lines.append(" ".join(str(word) for word in (self._milliseconds(), *words)) + "\n")

    def sent(self, device: str, report: bytes) -> None:
        """Record that `report` is about to be handed to the transport; call `flush` before the hand-over."""
        self._add("sent", device, _hex(report))

    def acked(self, device: str, report: bytes) -> None:
        """Record that the broker has acknowledged `report`."""
        self._add("acked", device, _hex(report))

    def lost(self, device: str, report: bytes, fault: str) -> None:
        """Record that the device has lost `report` by the named fault."""
        self._add("lost", device, _hex(report), fault)

    def fault(self, name: str, device: str = "-") -> None:
        """Record the named fault of a device, or of something that all devices share."""
        self._add("fault", name, device)

    def play(self, play: Play) -> None:
        """Record the columns that the fleet measures from now on."""
        self._add("play", *play)

    def flush(self) -> None:
        """Write everything added so far to disk. Raises OSError."""
        if self._lines:
            data = "".join(self._lines).encode()
            self._lines.clear()
            while data:
                data = data[os.write(self._file, data) :]
            if self._durable:
                os.fsync(self._file)

    def close(self) -> None:
        """Flush and close. Raises OSError."""
        self.flush()
        os.close(self._file)


@dataclass
class Sent:
    """Content of ledgers: the distinct reports that were sent, acknowledged or lost, and the faults.

    Sent and acknowledged reports have their time in ms, lost reports their fault. `faults` are (ms, name, device).
    `plays` say, in order, from which slot on the devices measured which readings. `lines` counts the lines
    that could be read, `torn` those that could not.
    """

    sent: dict[Key, int] = field(default_factory=dict)
    acked: dict[Key, int] = field(default_factory=dict)
    lost: dict[Key, str] = field(default_factory=dict)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    plays: list[Play] = field(default_factory=list)
    lines: int = 0
    torn: int = 0

    def unacked(self) -> dict[str, list[bytes]]:
        """Return by device the reports that were sent, and neither acknowledged nor lost."""
        reports: dict[str, list[bytes]] = {}
        for key in self.sent:
            if key not in self.acked and key not in self.lost:
                reports.setdefault(key[0], []).append(key[1])
        return reports

    def fault_counts(self) -> Counter[str]:
        """Return how often each fault happened."""
        return Counter(name for _, name, _ in self.faults)

    def column(self, slot: int) -> int | None:
        """Return which column of the readings the devices measured in `slot`; None before the first reading."""
        for play in reversed(self.plays):
            if slot >= play.first:
                return play.column + (slot - play.first) * play.stride
        return None

    def take_device_line(self, device: str, words: list[str]) -> None:
        """Add a line that a device printed: `sent` or `acked`, seconds, report; other lines are ignored."""
        if words[0] in ("sent", "acked"):
            self.take(f"{words[1]}000 {words[0]} {device} {words[2]}")

    def take(self, line: str) -> None:
        """Add a line. Raises Invalid if the line is of none of the five kinds, or incomplete."""
        words = line.split()
        try:
            moment, kind, arguments = int(words[0]), words[1], words[2:]
            if kind in ("sent", "acked", "lost"):
                key = (arguments[0], bytes.fromhex(arguments[1].removeprefix(_EMPTY)))
                if kind == "lost":
                    self.lost[key] = arguments[2]
                else:
                    (self.sent if kind == "sent" else self.acked).setdefault(key, moment)
            elif kind == "fault":
                self.faults.append((moment, arguments[0], arguments[1]))
            elif kind == "play":
                first, column, stride = map(int, arguments[:3])
                self.plays.append(Play(first, column, stride, arguments[3]))
            else:
                raise ValueError
        except (ValueError, IndexError):
            raise Invalid(f"{line[:80]!r} is not a line of a ledger") from None


class LedgerTail:
    """Follows a growing ledger and adds it to `sent`."""

    def __init__(self, path: Path, sent: Sent | None = None):
        self._path = path
        self._position = 0
        self._rest = b""
        self._device = ""
        self.sent = Sent() if sent is None else sent

    def poll(self) -> Sent:
        """Read all lines that are on disk and not yet read. Raises OSError."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        # A line without a newline is incomplete, even if it can be parsed.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line:
                self._take(line.decode("utf-8", "replace"))
        return self.sent

    def _take(self, line: str) -> None:
        words = line.split()
        try:
            if words[:1] == ["start"] and len(words) == 2:
                self._device = words[1]
            elif self._device and not words[0].isdecimal():
                self.sent.take_device_line(self._device, words)
            else:
                self.sent.take(line)
            self.sent.lines += 1
        except (Invalid, IndexError):
            self.sent.torn += 1


def read_ledgers(paths: Iterable[Path]) -> Sent:
    """Read these ledgers together. Raises OSError, and Invalid for a file with more unreadable lines than others.

    An unreadable line, such as one that a kill cut short before a restart, counts as torn. A last line without a
    newline is ignored.
    """
    result = Sent()
    for path in paths:
        lines, torn = result.lines, result.torn
        LedgerTail(path, result).poll()
        if result.torn - torn > result.lines - lines:
            raise Invalid(f"{path} is not a ledger: {many(result.torn - torn, 'line is', 'lines are')} unreadable")
    return result
