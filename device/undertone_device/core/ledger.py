"""The ledger of a sensor: what it has spent and what it still has to send, in one file, written before any
transmission.

======= ===== ==================================================================================
byte    field meaning (big-endian)
======= ===== ==================================================================================
0-3     4 B   ``UTL3``
4-7     u32   spent_until: Unix second at which the last spent interval ends
8-11    u32   last_epoch: the newest epoch ever accepted
12-15   u32   uptime: seconds of the tick counter, summed over all boots
16-19   u32   sequence: reports ever drawn
20-23   u32   day: days since 1970 of the last boot that drew
24-25   u16   boots: boots that drew on that day
26-27   u16   number of reports in the outbox
28-35   8 B   fingerprint of the current campaign, 0 if none
36-43   8 B   fingerprint of the next campaign, 0 if none
44-47   u32   rho_period: index of the last period of the stream policy to which anything is charged
48-51   u32   rho: the most that is charged to any period up to that one, in multiples of 2^-20
52-55   u32   rho_since: uptime at which that sum began from nothing
56-59   u32   window: number of the current stream's window; the next three fields belong to it
60-63   u32   window_until: uptime up to which windows were used up
64-65   u16   reports: stream reports drawn in that window
66-67   u16   chains: chains begun in it
68-75   u64   ever: epsilon of all reports ever drawn, in multiples of 2^-20
76-83   u64   ever_rho: rho of all streams ever charged, in multiples of 2^-20
84-87   u32   began: Unix second from which both sums count
88-91   u32   handover: number of the newest hand-over that was obeyed
92-623  532 B what `Sums` counts: the sliding cap's last draws, and epsilon by day (in the table below)
624-    24 B  each report in the outbox, oldest first (d-dimensional streams: 24 + 4(d - 1) bytes)
last 8  8 B   the first 8 bytes of the sha256 of all before
======= ===== ==================================================================================

Sums, from its own byte 0:

====== ===== ==================================================================================
byte   field meaning (big-endian)
====== ===== ==================================================================================
0-1    u16   groups that the cap is counted in, at most 48
2-3    u16   index of the newest group
4-7    u32   draws that fill a group
8-11   u32   draws in the newest group
12-15  u32   reserved: draws that this file counts before they are made
16-19  u32   units of each reserved draw, multiples of 2^-20 of epsilon
20-23  u32   day: days since 1970 of the newest sum
24-147 u32   units of each of 31 days, by day modulo 31
148-   u32×2 each group's last draw: the second at which its slot starts, and the uptime of the draw
====== ===== ==================================================================================

The file contains no reading and no noise. Losing it loses data, never privacy: see `Guard.start`.
"""

import hashlib
import struct

from undertone_shared.report import FINGERPRINT_BYTES, LENGTH, STREAM

# Name of the file with the household's pause, "FROM UNTIL" in Unix seconds: see `pauses`.
PAUSE = "pause"
# A correct clock never shows a time before this code existed (2026-11-01).
BUILT = 1793491200
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Storage(Protocol):
        """Storage of named byte strings; ``write`` is atomic and durable and raises OSError with the old content kept.

        ``read`` returns None only if the entry is absent, and raises OSError if that is not certain. A storage that two
        processes could use has ``claim()``, which raises Invalid if another one uses it.
        """

        def read(self, name: str) -> bytes | None: ...
        def write(self, name: str, data: bytes | memoryview) -> None: ...
        def delete(self, name: str) -> None: ...


FILE = "ledger"
# Default and largest number of unacknowledged reports that a device stores: 24 bytes each, in RAM and on file.
DEFAULT_OUTBOX = 96
LARGEST_OUTBOX = 4096
NO_CAMPAIGN = bytes(FINGERPRINT_BYTES)
_MAGIC = b"UTL3"
_HEADER = ">4sIIIIIHH8s8sIIIIIHHQQII"
_HEADER_BYTES = 92
# Layout of `Sums`: the number of groups in which the cap is counted, the number of days with a sum of epsilon, and the
# offsets in bytes at which the days' sums and the groups begin.
GROUPS = 48
DAYS = 31
MONTH = 24
RING = MONTH + 4 * DAYS
_OUTBOX = _HEADER_BYTES + RING + 8 * GROUPS
_CHECK_BYTES = 8


class Outbox:
    """Reports that no broker has acknowledged, oldest first from the start of ``buffer``.

    ``width``: bytes of a stream report; the other kinds have 24.
    """

    def __init__(self, buffer: memoryview, width: int = LENGTH):
        self.capacity = len(buffer) // width
        self.width = width
        self.buffer = buffer
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < self._count:
            raise IndexError("outbox index")
        i = index * self.width
        return bytes(self.buffer[i : i + (self.width if self.buffer[i + 1] == STREAM else LENGTH)])

    def append(self, report: bytes) -> bool:
        """Add the newest report; return True if the oldest was dropped for it."""
        dropped = self._count == self.capacity
        if dropped:
            self._remove(0)
        i = self._count * self.width
        self.buffer[i : i + len(report)] = report
        self._count += 1
        return dropped

    def remove_newest(self) -> None:
        """Remove the newest report."""
        self._count -= 1

    def remove(self, report: bytes) -> bool:
        """Remove the report with these bytes; return False if it is not there."""
        for index in range(self._count):
            if self[index] == report:
                self._remove(index)
                return True
        return False

    def _remove(self, index: int) -> None:
        buffer = self.buffer
        self._count -= 1
        for i in range(index * self.width, self._count * self.width):
            buffer[i] = buffer[i + self.width]


class Sums:
    """The sums as views of one buffer, so that the ledger's file is written without a copy.

    The cap of k draws in any P seconds is counted in n groups of m draws, with n m <= k. A group may begin only P
    seconds after the last draw of the n-th group before it, so that no P seconds contain more than n groups' draws.
    """

    def __init__(self, buffer: memoryview):
        self.buffer = buffer
        self._groups = 0
        self._newest = 0
        self._size = 1
        self._count = 0

    def limit(self, most: int, start: int, uptime: int) -> int:
        """Set the cap to ``most`` draws, and return the uptime of the last draw.

        If the file's draws were counted for another cap, the whole new cap counts as used. Draws that the file reserved
        count as drawn at Unix second ``start`` and ``uptime``.
        """
        size = (most + GROUPS - 1) // GROUPS
        groups = most // size
        had = struct.unpack_from(">HHIIII", self.buffer)
        self._groups, self._newest, self._size, self._count = had[:4]
        if (self._groups, self._size) != (groups, size):
            self._groups, self._newest, self._size, self._count = groups, 0, size, 0
            if had[0]:
                self.fill(start, uptime, 0)
        for _ in range(had[4]):
            self.add(start, uptime)
        self.spend(start // 86400, had[4] * had[5])
        return self._last(self._newest)[1]

    def fill(self, start: int, uptime: int, seconds: int) -> None:
        """Count the whole cap as drawn: a draw every ``seconds`` before ``start``, by uptime every 9/10 of that."""
        self._newest = self._groups - 1
        self._count = self._size
        for group in range(self._groups):
            back = ((self._groups - 1 - group) * self._size + 1) * seconds
            self._put(group, max(start - back, 1), max(uptime - back * 9 // 10, 0))

    def _put(self, group: int, start: int, uptime: int) -> None:
        struct.pack_into(">II", self.buffer, RING + 8 * group, start, uptime)

    def _last(self, group: int) -> "tuple[int, int]":
        return struct.unpack_from(">II", self.buffer, RING + 8 * group)

    def permits(self, start: int, uptime: int, seconds: int, ticks: int) -> bool:
        """Return True if a draw for the slot at ``start``, at ``uptime``, keeps the cap.

        ``seconds``, ``ticks``: the cap's period by the clock and by the uptime.
        """
        if self._count < self._size and self._count:
            return True
        group = self._newest if not self._count else (self._newest + 1) % self._groups
        last, drew = self._last(group)
        return not last or (start - last >= seconds and uptime - drew >= ticks)

    def add(self, start: int, uptime: int) -> None:
        """Count a draw."""
        if self._count >= self._size:
            self._newest = (self._newest + 1) % self._groups
            self._count = 0
        self._count += 1
        self._put(self._newest, start, uptime)

    def spend(self, day: int, units: int) -> None:
        """Add ``units`` to the sum of ``day``; the sums of days between the newest one and ``day`` become 0."""
        if day > struct.unpack_from(">I", self.buffer, 20)[0]:
            self._begin(day)
        i = MONTH + 4 * (day % DAYS)
        units = min(units + struct.unpack_from(">I", self.buffer, i)[0], 0xFFFFFFFF)
        struct.pack_into(">I", self.buffer, i, units)

    def _begin(self, day: int) -> None:
        newest = struct.unpack_from(">I", self.buffer, 20)[0]
        for old in range(max(newest + 1, day - DAYS + 1), day + 1):
            struct.pack_into(">I", self.buffer, MONTH + 4 * (old % DAYS), 0)
        struct.pack_into(">I", self.buffer, 20, day)

    def pack(self, reserved: int, units: int) -> None:
        """Write the counts into the buffer; ``reserved`` draws of ``units`` each are counted in advance."""
        struct.pack_into(
            ">HHIIII", self.buffer, 0, self._groups, self._newest, self._size, self._count, reserved, units
        )


class Ledger:
    """The state in the file, its sums and its outbox.

    ``lost``: True if there was no valid file, until `Guard.start` begins a new ledger. ``urgent``: a chain of a stream
    has begun that the file does not count yet. ``width``: see `Outbox`. Raises OSError; and Invalid if another process
    uses the storage.
    """

    def __init__(self, storage: "Storage", capacity: int, width: int = LENGTH):
        claim = getattr(storage, "claim", None)
        if claim is not None:
            claim()
        self.storage = storage
        view = self._view = memoryview(bytearray(_OUTBOX + capacity * width + _CHECK_BYTES))
        self.outbox = Outbox(view[_OUTBOX : _OUTBOX + capacity * width], width)
        self.sums = Sums(view[_HEADER_BYTES:_OUTBOX])
        self.lost = True
        self.spent_until = self.last_epoch = self.began = self.uptime = self.sequence = 0
        self.day = self.boots = 0
        self.current = self.next = NO_CAMPAIGN
        self.rho_period = self.rho = self.rho_since = 0
        self.window = self.window_until = self.reports = self.chains = 0
        self.ever = self.ever_rho = self.handover = 0
        self.urgent = False
        data = storage.read(FILE)
        if data is not None:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        end = len(data) - _CHECK_BYTES
        width = self.outbox.width
        if end < _OUTBOX or (end - _OUTBOX) % width or data[:4] != _MAGIC:
            return
        if hashlib.sha256(data[:end]).digest()[:_CHECK_BYTES] != data[end:]:
            return
        fields = struct.unpack(_HEADER, data[:_HEADER_BYTES])
        if fields[7] != (end - _OUTBOX) // width:
            return
        self.spent_until, self.last_epoch, self.uptime, self.sequence, self.day, self.boots = fields[1:7]
        self.current, self.next, self.rho_period, self.rho, self.rho_since = fields[8:13]
        self.window, self.window_until, self.reports, self.chains = fields[13:17]
        self.ever, self.ever_rho, self.began, self.handover = fields[17:]
        self._view[_HEADER_BYTES:_OUTBOX] = data[_HEADER_BYTES:_OUTBOX]
        for i in range(_OUTBOX, end, width):
            self.outbox.append(data[i : i + width])
        self.lost = False

    def write(self, until: int, reserved: int, units: int) -> None:
        """Make the state durable. Raises OSError, and keeps the old file then.

        ``reserved`` further reports of ``units`` each, whose intervals end by ``until``, count as drawn already.
        """
        outbox = self.outbox
        view = self._view
        self.sums.pack(reserved, units)
        struct.pack_into(
            _HEADER,
            view,
            0,
            _MAGIC,
            max(self.spent_until, until),
            self.last_epoch,
            self.uptime,
            self.sequence + reserved,
            self.day,
            self.boots,
            len(outbox),
            self.current,
            self.next,
            self.rho_period,
            self.rho,
            self.rho_since,
            self.window,
            self.window_until,
            min(self.reports + reserved, 0xFFFF),
            self.chains,
            self.ever + reserved * units,
            self.ever_rho,
            self.began,
            self.handover,
        )
        end = _OUTBOX + len(outbox) * outbox.width
        view[end : end + _CHECK_BYTES] = hashlib.sha256(view[:end]).digest()[:_CHECK_BYTES]
        self.storage.write(FILE, view[: end + _CHECK_BYTES])
        self.urgent = False


def in_ticks(seconds: int) -> int:
    """Return 31/32 of an interval, rounded up.

    The tick counter must show this time before the interval counts as over, because its oscillator is not exact.
    """
    return seconds - seconds // 32
