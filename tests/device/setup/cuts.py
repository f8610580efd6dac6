"""Lives of a board on a real file system whose power fails in the middle of a write.

MicroPython runs this program. The one argument, JOB, is a file of JSON. It has the file system, whether a cut tears its
sector, the kind of life, the first seed, the number of cuts, and the messages of campaigns. The program prints counts
as JSON, and ends with a traceback if a slot was drawn twice or a limit was exceeded.
"""

import json
import os
import random
import struct
import sys

import vfs

from undertone_device.core import handover
from undertone_device.core.reporter import Reporter
from undertone_device.setup.storage import FileStorage
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import parse_policy

BLOCK = 512
BLOCKS = 256
SLOT = 60
# A cut comes within this number of writes of blocks after the start. LittleFS writes more often, because it erases a
# block first.
WRITES = {"fat": 60, "littlefs": 200}
BOOTS = 12
TICKS_MASK = (1 << 30) - 1


class PowerCut(BaseException):
    """Stands for a power cut. No code of the device catches this exception."""


# The exception is made in advance. The garbage collector closes files after a cut, which makes them write, and then no
# memory can be allocated.
CUT = PowerCut()


class Disk:
    """A disk in memory.

    It keeps ``cut`` further writes of blocks, and raises `PowerCut` at the next one. With ``torn``, it keeps a part of
    that one, too.
    """

    def __init__(self, data, torn):
        self.data = data
        self.torn = torn
        self.cut = None
        self.dead = False

    def readblocks(self, number, buffer, offset=0):
        place = number * BLOCK + offset
        buffer[:] = self.data[place : place + len(buffer)]

    def writeblocks(self, number, buffer, offset=None):
        if self.dead:
            raise CUT
        size = len(buffer)
        for start in range(0, size, BLOCK):
            part = buffer[start : min(start + BLOCK, size)]
            self.write(number * BLOCK + (offset or 0) + start, part)

    def write(self, place, part):
        if self.dead:
            raise CUT
        if self.cut is not None:
            self.cut -= 1
            if self.cut < 0:
                self.dead = True
                if self.torn:
                    half = random.getrandbits(9) % (len(part) + 1)
                    self.data[place : place + half] = part[:half]
                raise CUT
        self.data[place : place + len(part)] = part

    def ioctl(self, operation, argument):
        if operation == 4:
            return BLOCKS
        if operation == 5:
            return BLOCK
        if operation == 6:
            # LittleFS erases a block before it writes into it.
            self.write(argument * BLOCK, b"\xff" * BLOCK)
        return 0


class Clock:
    def __init__(self):
        self.ticks = 0

    def __call__(self):
        return self.ticks & TICKS_MASK


class Forgetful(FileStorage):
    """A bad storage: it reports each write of the ledger as done, but does only every other one, at random."""

    def write(self, name, data):
        if name != "ledger" or random.getrandbits(1):
            super().write(name, data)


class Life:
    """One device, what it has released, and what the policy of its owner allows."""

    def __init__(self, job, seed):
        random.seed(seed)
        self.job = job
        self.kind = job["kind"]
        self.policy = parse_policy(json.dumps(job["policies"][self.kind]).encode())
        self.make = vfs.VfsFat if job["system"] == "fat" else vfs.VfsLfs2
        self.data = bytearray(BLOCK * BLOCKS)
        self.make.mkfs(Disk(self.data, False))
        self.now = job["start"] - SLOT
        self.released = {}
        self.sequences = {}
        self.number = 0
        self.counts = {"cuts": 0, "reports": 0, "handovers": 0, "losses": 0, "repeated": 0, "unreadable": 0}

    def run(self):
        """Return the counts of this life."""
        disk = Disk(self.data, False)
        vfs.mount(self.make(disk), "/flash")
        os.mkdir("/flash/state")
        vfs.umount("/flash")
        for _ in range(BOOTS):
            # The disk of the last boot no longer exists. Files that are closed late must not write to the new one.
            disk = Disk(bytearray(self.data), self.job["torn"])
            disk.cut = random.getrandbits(16) % WRITES[self.job["system"]]
            try:
                vfs.mount(self.make(disk), "/flash")
            except (OSError, PowerCut):
                self.counts["unreadable"] += 1
                break
            try:
                self.boot()
            except PowerCut:
                self.counts["cuts"] += 1
            except OSError:
                # The file system is damaged, so the device does not start and draws nothing.
                self.counts["unreadable"] += 1
            self.data = disk.data
            disk.dead = True
            vfs.umount("/flash")
            # At the next start, the clock is late or early. No slot may be drawn again.
            self.now += random.choice((-2, -1, 0, 0, 1, 3)) * SLOT + random.getrandbits(5)
        self.check()
        return self.counts

    def boot(self):
        storage = (Forgetful if self.job["forgetful"] else FileStorage)("/flash/state")
        clock = Clock()
        reporter = Reporter("meter-1", self.policy, storage, Entropy(), clock)
        if reporter.ledger.lost and (self.released or storage.read("begun") is not None):
            self.counts["losses"] += 1
        for i in range(len(reporter.outbox)):
            self.release(reporter.outbox[i])
        for _ in range(40):
            self.hear(reporter)
            if self.kind == "handovers":
                self.follow(reporter, storage)
            reporter.observe(random.getrandbits(10), self.now)
            report = reporter.close_slot(self.now)
            if report is not None:
                self.release(report)
                if random.getrandbits(1):
                    reporter.acked(report)
            clock.ticks += 1000 * SLOT
            self.now += SLOT

    def hear(self, reporter):
        body = bytes.fromhex(self.job["bodies"][self.kind])
        signature = bytes.fromhex(self.job["signatures"][self.kind])
        message = struct.pack(">4sII", b"UTC2", self.now, len(body)) + body + signature
        try:
            reporter.accept(message, self.now)
        except Refused:
            return  # the ledger was lost, so the whole budget of streams counts as spent

    def follow(self, reporter, storage):
        """Follow a hand-over now and then.

        Whatever was cut, the device never follows one that is older than the last.
        """
        trailers = self.job["trailers"]
        number = random.getrandbits(8) % len(trailers) + 1
        try:
            entry = handover.take(
                bytes.fromhex(trailers[number - 1]), "load", "meter-1", reporter.guard, self.now, None
            )
        except (Refused, Invalid):
            return
        if entry is not None:
            # If the file of the last hand-over was lost, the ledger still has its number. Then the device obeys the
            # same hand-over again, but no older one.
            assert number >= self.number, ("an older hand-over was obeyed", number, self.number)
            assert entry["port"] == number
            self.number = number
            self.counts["handovers"] += 1

    def release(self, report):
        slot = struct.unpack(">I", report[10:14])[0]
        sequence = struct.unpack(">I", report[20:24])[0]
        had = self.released.setdefault(slot, report)
        assert had == report, ("a slot was drawn twice", slot)
        if self.sequences.setdefault(sequence, report) != report:
            self.counts["repeated"] += 1

    def check(self):
        """Check that everything released is within the limits of the policy."""
        limits = self.job["limits"][self.kind]
        slots = sorted(self.released)
        self.counts["reports"] = len(slots)
        assert len(slots) <= limits["lifetime"], ("the lifetime was passed", len(slots))
        most = limits["reports"]
        for i in range(len(slots) - most):
            assert slots[i + most] - slots[i] >= limits["window"], ("a window was passed", slots[i])
        if self.kind == "streams":
            self.check_windows(slots, limits)

    def check_windows(self, slots, limits):
        first = self.job["start"] // SLOT
        windows = {}
        for slot in slots:
            chain = struct.unpack(">H", self.released[slot][18:20])[0]
            window = windows.setdefault((slot - first) // limits["renewal"], [0, 0])
            window[0] += 1
            window[1] += chain == 1
        for window in windows.values():
            assert window[0] <= limits["reports"], ("a window was passed", window)
            assert window[1] <= limits["chains"], ("a window was passed", window)


def main(path):
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    totals = {}
    seed = job["seed"]
    while totals.get("cuts", 0) < job["cuts"]:
        counts = Life(job, seed).run()
        for name in counts:
            totals[name] = totals.get(name, 0) + counts[name]
        seed += 1
    print(json.dumps(totals))


if __name__ == "__main__":
    main(sys.argv[1])
