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
36-    16 B  each report in the outbox, oldest first
last 8 8 B   the first 8 bytes of the sha256 of all before
====== ===== ==================================================================================

No reading and no noise is in it. Losing it costs data, never privacy: see `Ledger.start`.
"""

import hashlib
import struct

from undertone_shared.report import LENGTH

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
_HEADER = ">4sIIIIIHH4s4s"
_HEADER_BYTES = 36
_CHECK_BYTES = 8


class Outbox:
    """Reports that no broker has acknowledged, oldest first, in one preallocated buffer."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._buffer = bytearray(capacity * LENGTH)
        self._head = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _at(self, index: int) -> int:
        return (self._head + index) % self.capacity * LENGTH

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < self._count:
            raise IndexError("outbox index")
        i = self._at(index)
        return bytes(self._buffer[i : i + LENGTH])

    def append(self, report: bytes) -> bool:
        """Add the newest report; True if the oldest was dropped for it."""
        dropped = self._count == self.capacity
        if dropped:
            self._head = (self._head + 1) % self.capacity
            self._count -= 1
        i = self._at(self._count)
        self._buffer[i : i + LENGTH] = report
        self._count += 1
        return dropped

    def remove_newest(self) -> None:
        """Take back the newest report."""
        self._count -= 1

    def remove(self, report: bytes) -> bool:
        """Remove the report with these bytes; False if it is not there."""
        for index in range(self._count):
            if self[index] == report:
                while index:
                    i = self._at(index)
                    self._buffer[i : i + LENGTH] = self[index - 1]
                    index -= 1
                self._head = (self._head + 1) % self.capacity
                self._count -= 1
                return True
        return False


class Ledger:
    """The state in the file and its outbox. ``lost`` is True until a ledger without a file was started."""

    def __init__(self, storage: "Storage", capacity: int):
        self._storage = storage
        self.outbox = Outbox(capacity)
        self.lost = True
        self.spent_until = 0
        self.last_epoch = 0
        self.period = 0
        self.used = 0
        self.day = 0
        self.boots = 0
        self.current = NO_CAMPAIGN
        self.next = NO_CAMPAIGN
        self._encoded = bytearray(_HEADER_BYTES + capacity * LENGTH + _CHECK_BYTES)
        data = storage.read(FILE)
        if data is not None:
            self._decode(data)

    def _decode(self, data: bytes) -> None:
        end = len(data) - _CHECK_BYTES
        if end < _HEADER_BYTES or (end - _HEADER_BYTES) % LENGTH or data[:4] != _MAGIC:
            return
        if hashlib.sha256(data[:end]).digest()[:_CHECK_BYTES] != data[end:]:
            return
        fields = struct.unpack(_HEADER, data[:_HEADER_BYTES])
        if fields[7] != (end - _HEADER_BYTES) // LENGTH:
            return
        self.spent_until, self.last_epoch, self.period, self.used, self.day, self.boots = fields[1:7]
        self.current, self.next = fields[8:]
        for i in range(_HEADER_BYTES, end, LENGTH):
            self.outbox.append(data[i : i + LENGTH])
        self.lost = False

    def start(self, now: int, period: int, used: int) -> None:
        """Begin a ledger whose file is new or lost: up to ``now`` all is spent, ``used`` in ``period``."""
        self.lost = False
        self.spent_until = now
        self.period = period
        self.used = used

    def write(self, spent_until: int, used: int) -> None:
        """Make the state durable, with at least this much spent. Raises OSError, the old file kept."""
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
        )
        end = _HEADER_BYTES
        for index in range(len(outbox)):
            encoded[end : end + LENGTH] = outbox[index]
            end += LENGTH
        view = memoryview(encoded)
        encoded[end : end + _CHECK_BYTES] = hashlib.sha256(view[:end]).digest()[:_CHECK_BYTES]
        self._storage.write(FILE, view[: end + _CHECK_BYTES])
