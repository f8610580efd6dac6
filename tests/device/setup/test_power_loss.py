"""Power fails at every single step of every write, on a disk that loses, tears and reorders what was not synced.

Whatever the disk keeps, no interval is released twice with different bytes, and no reading is on the disk.
"""

import errno
import random
from contextlib import suppress
from types import SimpleNamespace

import pytest
from rig import DAY, SLOT, START, Ticks, hybrid, make_campaign, make_policy

from undertone_device.core.reporter import Reporter
from undertone_device.setup import durable_folder, storage
from undertone_shared.entropy import Entropy
from undertone_shared.errors import Refused
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import ReportRule

# Large enough that its bytes cannot appear by chance in a file of a few kilobytes.
READING = 0x3ADEBEEF
SECTOR = 64


class PowerLoss(BaseException):
    """Stands for a power failure. No code of the device can catch this exception."""


class Disk:
    """A POSIX file system: content is safe after fsync of the file, and names are safe after fsync of the directory."""

    def __init__(self, names=None, contents=None):
        self.names = names or {}  # name -> inode, as the running system sees it
        self.contents = contents or {}  # inode -> bytes
        self.safe_names = dict(self.names)
        self.safe_contents = dict(self.contents)
        self.pending = []  # changes of names since the directory was synced
        self.steps = 0
        self.cut_at = None
        self.seen = b""

    def step(self):
        self.steps += 1
        if self.steps == self.cut_at:
            raise PowerLoss

    def open(self, path, mode):
        if mode == "rb":
            if path not in self.names:
                raise OSError(errno.ENOENT, "no such file")
            return Handle(self, self.names[path], self.contents[self.names[path]])
        self.step()
        inode = len(self.contents)
        self.contents[inode] = b""
        self.safe_contents[inode] = b""
        self.names[path] = inode
        self.pending.append((path, inode))
        return Handle(self, inode, b"")

    def replace(self, old, new):
        self.step()
        inode = self.names.pop(old)
        self.names[new] = inode
        self.pending += [(new, inode), (old, None)]

    def listdir(self, folder):
        return [path.removeprefix(folder + "/") for path in self.names]

    def remove(self, path):
        if path not in self.names:
            raise OSError(errno.ENOENT, "no such file")
        self.step()
        del self.names[path]
        self.pending.append((path, None))

    def fsync(self, handle):
        self.step()
        if handle == "directory":
            self.safe_names = dict(self.names)
            self.pending = []
        else:
            self.safe_contents[handle] = self.contents[handle]

    def after_power_loss(self, rng):
        """What a reboot finds: some of the unsynced changes of names, in any order, and some unsynced sectors."""
        names = dict(self.safe_names)
        for path, inode in rng.sample(self.pending, rng.randint(0, len(self.pending))):
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
        contents = {}
        for inode, data in self.contents.items():
            safe = self.safe_contents[inode]
            if data != safe:
                length = rng.randint(0, len(data))
                sectors = [data[i : i + SECTOR] for i in range(0, length, SECTOR)]
                data = b"".join(s if rng.random() < 0.7 else bytes(len(s)) for s in sectors)
            contents[inode] = data
        return Disk(names, contents)


class Fat(Disk):
    """A disk like FAT: names are on the disk at once and in order, and a rename over a file removes the file first."""

    def replace(self, old, new):
        if new in self.names:
            self.remove(new)
        self.step()
        self.names[new] = self.names.pop(old)
        self.safe_names = dict(self.names)

    def open(self, path, mode):
        handle = super().open(path, mode)
        self.safe_names = dict(self.names)
        return handle

    def remove(self, path):
        super().remove(path)
        self.safe_names = dict(self.names)

    def after_power_loss(self, rng):
        self.pending = []
        return super().after_power_loss(rng)


class Handle:
    def __init__(self, disk, inode, data):
        self.disk, self.inode, self.data = disk, inode, data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self):
        return self.data

    def write(self, data):
        self.disk.seen += bytes(data)
        for i in range(0, len(data), SECTOR):
            self.disk.step()
            self.disk.contents[self.inode] += bytes(data[i : i + SECTOR])

    def flush(self):
        self.disk.step()

    def fileno(self):
        return self.inode


@pytest.fixture
def mount(monkeypatch):
    def onto(disk):
        monkeypatch.setattr(storage, "open", disk.open, raising=False)
        monkeypatch.setattr(durable_folder, "open", disk.open, raising=False)
        monkeypatch.setattr(storage.FileStorage, "claim", lambda self: None)
        system = SimpleNamespace(
            open=lambda path, flags: "directory",
            close=lambda fd: None,
            O_RDONLY=0,
            listdir=disk.listdir,
            remove=disk.remove,
            rename=disk.replace,
            fsync=disk.fsync,
            chmod=lambda path, mode: None,
        )
        monkeypatch.setattr(storage, "os", system)
        monkeypatch.setattr(durable_folder, "os", system)
        return storage.FileStorage("state")

    return onto


class Life:
    """A device that wakes up, reads and reports until the power fails, and then again with what the disk kept."""

    def __init__(self, mount, slots):
        self.mount = mount
        self.slots = slots
        self.released = {}

    def release(self, report):
        slot = intake.unpack(report).slot
        assert self.released.setdefault(slot, report) == report, f"slot {slot} was drawn twice"

    def live(self, disk, now):
        """Run to the end, or until the power fails. Returns the second of the end."""
        try:
            reporter = Reporter(
                "meter-1",
                make_policy(boots_per_day=1000, reports_per_period=1000),
                self.mount(disk),
                Entropy(),
                Ticks(),
            )
            for i in range(len(reporter.outbox)):
                self.release(reporter.outbox[i])
            while now < START + self.slots * SLOT:
                following = make_campaign(epoch=START + DAY, report=ReportRule(0, 500, hybrid()))
                for campaign in (make_campaign(), following):
                    if reporter.following is None and now < campaign.end:
                        with suppress(Refused):  # the campaign's epoch is too early, or over
                            reporter.accept(issue.pack(campaign, now), now)
                reporter.ticks.now += SLOT * 1000
                report = reporter.run_once(READING, now)
                if report is not None:
                    self.release(report)
                    if now // SLOT % 3 == 0:
                        reporter.acked(report)
                now += SLOT
        except PowerLoss:
            pass
        return now


def run(mount, slots, cut_at, seed, make_disk=Disk):
    life = Life(mount, slots)
    disk = make_disk()
    disk.cut_at = cut_at
    now = life.live(disk, START - 4 * SLOT)
    for trace in (READING.to_bytes(4, "big"), READING.to_bytes(4, "little"), b"%d" % READING, b"%x" % READING):
        assert trace not in disk.seen
    rebooted = disk.after_power_loss(random.Random(seed))
    # After the failure, the clock is two slots behind. The device may not report these slots again.
    life.live(rebooted, now - 2 * SLOT)
    return disk.steps, len(life.released)


# What a reboot finds of unsynced data is random, so for each step, several seeds are tried.
SEEDS = pytest.mark.parametrize("seeds", [2, pytest.param(4, marks=pytest.mark.exhaustive)])


def cut_everywhere(mount, seeds, make_disk=Disk):
    steps, _ = run(mount, slots=8, cut_at=None, seed=0, make_disk=make_disk)
    for seed in range(seeds):
        for cut_at in range(1, steps + 1):
            run(mount, slots=8, cut_at=cut_at, seed=seed, make_disk=make_disk)


@pytest.mark.slow
@pytest.mark.waits
@SEEDS
def test_every_step_of_the_writes_may_be_the_last(mount, seeds):
    steps, released = run(mount, slots=8, cut_at=None, seed=0)
    assert released >= 7
    assert steps > 80
    cut_everywhere(mount, seeds)


@pytest.mark.slow
@pytest.mark.waits
@SEEDS
def test_a_rename_that_is_no_single_step_costs_nothing_either(mount, seeds):
    cut_everywhere(mount, seeds, Fat)


def test_the_model_finds_a_ledger_that_is_written_in_place(mount, monkeypatch):
    """`Disk` does lose what is not synced.

    If the ledger is overwritten in place, instead of by write and rename, an interval is drawn twice.
    """

    def write_in_place(self, name, data):
        with storage.open(self._path(name), "wb") as file:
            file.write(data)

    monkeypatch.setattr(storage.FileStorage, "write", write_in_place)
    with pytest.raises(AssertionError, match="drawn twice"):
        cut_everywhere(mount, 4)
