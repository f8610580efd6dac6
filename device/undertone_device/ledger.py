"""What a sensor has spent and what it still has to send, in one file that is written before the radio is used.

====== ===== ==================================================================================
byte   field meaning (big-endian)
====== ===== ==================================================================================
0-3    4 B   ``UTL1``
4-7    u32   spent_until: Unix second at which the last spent interval ends
8-11   u32   last_epoch: the newest epoch ever accepted
12-15  u32   period: index of the policy's period that ``used`` counts
16-19  u32   used: reports drawn in that period
20-23  u32   day: days since 1970 of the last boot that drew
24-25  u16   boots: boots that drew on that day
26-27  u16   number of reports in the outbox
28-31  4 B   fingerprint of the current campaign, 0 if none
32-35  4 B   fingerprint of the next campaign, 0 if none
36-39  u32   rho_period: index of the last period of the stream policy that anything is charged to
40-43  u32   rho: what a period up to that one is charged at most, in multiples of 2^-20
44-47  u32   window: number of the current stream's window that the next two count
48-49  u16   reports: stream reports drawn in that window
50-51  u16   chains: chains begun in it
52-    16 B  each report in the outbox, oldest first (d-dimensional streams: 16 + 4(d - 1) bytes)
last 8 8 B   the first 8 bytes of the sha256 of all before
====== ===== ==================================================================================

No reading and no noise is in it. Losing it costs data, never privacy: see `Ledger.start`.
"""

import hashlib
import struct

from undertone_shared.report import LENGTH, STREAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Storage(Protocol):
        """Named byte strings; ``write`` is atomic and durable and raises OSError with the old content kept."""

        def read(self, name: str) -> bytes | None: ...
        def write(self, name: str, data: bytes | memoryview) -> None: ...
        def delete(self, name: str) -> None: ...


FILE = "ledger"
NO_CAMPAIGN = b"\0\0\0\0"
_MAGIC = b"UTL1"
_HEADER = ">4sIIIIIHH4s4sIIIHH"
_HEADER_BYTES = 52
_CHECK_BYTES = 8


class Outbox:
    """Reports that no broker has acknowledged, oldest first from the start of ``buffer``.

    ``width``: bytes of a stream report; the other kinds have 16.
    """

    def __init__(self, buffer: memoryview, width: int = LENGTH):
        self.capacity = len(buffer) // width
        self.width = width
        self._buffer = buffer
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < self._count:
            raise IndexError("outbox index")
        i = index * self.width
        return bytes(self._buffer[i : i + (self.width if self._buffer[i + 1] == STREAM else LENGTH)])

    def append(self, report: bytes) -> bool:
        """Add the newest report; True if the oldest was dropped for it."""
        dropped = self._count == self.capacity
        if dropped:
            self._remove(0)
        i = self._count * self.width
        self._buffer[i : i + len(report)] = report
        self._count += 1
        return dropped

    def remove_newest(self) -> None:
        """Take back the newest report."""
        self._count -= 1

    def remove(self, report: bytes) -> bool:
        """Remove the report with these bytes; False if it is not there."""
        for index in range(self._count):
            if self[index] == report:
                self._remove(index)
                return True
        return False

    def _remove(self, index: int) -> None:
        buffer = self._buffer
        self._count -= 1
        for i in range(index * self.width, self._count * self.width):
            buffer[i] = buffer[i + self.width]


class Ledger:
    """The state in the file and its outbox. ``lost`` is True until a ledger without a file was started.

    ``urgent``: a chain has begun that the file does not count yet. ``width``: see `Outbox`.
    """

    def __init__(self, storage: "Storage", capacity: int, width: int = LENGTH):
        self._storage = storage
        self._encoded = bytearray(_HEADER_BYTES + capacity * width + _CHECK_BYTES)
        self.outbox = Outbox(memoryview(self._encoded)[_HEADER_BYTES : _HEADER_BYTES + capacity * width], width)
        self.lost = True
        self.spent_until = 0
        self.last_epoch = 0
        self.period = 0
        self.used = 0
        self.day = 0
        self.boots = 0
        self.current = NO_CAMPAIGN
        self.next = NO_CAMPAIGN
        self.rho_period = 0
        self.rho = 0
        self.window = 0
        self.reports = 0
        self.chains = 0
        self.urgent = False
        data = storage.read(FILE)
        if data is not None:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        end = len(data) - _CHECK_BYTES
        width = self.outbox.width
        if end < _HEADER_BYTES or (end - _HEADER_BYTES) % width or data[:4] != _MAGIC:
            return
        if hashlib.sha256(data[:end]).digest()[:_CHECK_BYTES] != data[end:]:
            return
        fields = struct.unpack(_HEADER, data[:_HEADER_BYTES])
        if fields[7] != (end - _HEADER_BYTES) // width:
            return
        self.spent_until, self.last_epoch, self.period, self.used, self.day, self.boots = fields[1:7]
        self.current, self.next, self.rho_period, self.rho, self.window, self.reports, self.chains = fields[8:]
        for i in range(_HEADER_BYTES, end, width):
            self.outbox.append(data[i : i + width])
        self.lost = False

    def start(self, now: int, period: int, used: int) -> None:
        """Begin a ledger whose file is new or lost: up to ``now`` all is spent, ``used`` in ``period``."""
        self.lost = False
        self.spent_until = now
        self.period = period
        self.used = used

    def write(self, spent_until: int, used: int) -> None:
        """Make the state durable, with at least this much spent. Raises OSError, the old file kept.

        Reports that ``used`` reserves count as drawn in the stream's window, too.
        """
        outbox = self.outbox
        encoded = self._encoded
        struct.pack_into(
            _HEADER,
            encoded,
            0,
            _MAGIC,
            spent_until,
            self.last_epoch,
            self.period,
            used,
            self.day,
            self.boots,
            len(outbox),
            self.current,
            self.next,
            self.rho_period,
            self.rho,
            self.window,
            min(self.reports + max(used - self.used, 0), 0xFFFF),
            self.chains,
        )
        end = _HEADER_BYTES + len(outbox) * outbox.width
        view = memoryview(encoded)
        encoded[end : end + _CHECK_BYTES] = hashlib.sha256(view[:end]).digest()[:_CHECK_BYTES]
        self._storage.write(FILE, view[: end + _CHECK_BYTES])
        self.urgent = False
