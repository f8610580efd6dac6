"""How many devices may be connected at once, and why no more: open files, memory, or the operator's setting."""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from undertone_aggregator.base.open_files import RESERVE
from undertone_aggregator.base.plural import many

# Name of the log's event for the alarm that devices are turned away.
CROWD = "crowd"
# Memory of the machine for one connection: 18 KB in the process, with all that it keeps of the device (measured by
# `undertone bench storm`), 4 KB in the kernel for the socket and its file (/proc/slabinfo), and a tenth more.
CONNECTION_BYTES = 24 << 10
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
# How the line for control groups of version 2 begins in /proc/self/cgroup.
_VERSION_2 = "0::"


@dataclass(frozen=True)
class Room:
    """How many devices have room. ``connections``: devices that may be connected at once. ``why``: what limits this
    number.

    ``fix``: what makes room for more devices. In it, ``{devices}`` stands for their number, and ``{files}`` for the
    number of open files that they need.
    """

    connections: int
    why: str
    fix: str

    def fix_for(self, devices: int) -> str:
        """Return what makes room for this number of devices."""
        return self.fix.format(devices=devices, files=devices + RESERVE)

    def crowd(self, devices: int) -> str:
        """Return a sentence that says how many devices were turned away after their login, and why."""
        return (
            f"{many(devices, 'device')} cannot connect: the server has room for only {self.connections} at once,"
            f" because of {self.why}"
        )


def room(chosen: int | None, files: int, memory: int | None = None) -> Room:
    """Return the room of a server that may have ``files`` open files and use ``memory`` bytes (None: `usable_memory`).

    ``chosen``: the setting ``connections``, which replaces the number that follows from the memory. A connection needs
    one open file, and ``RESERVE`` files are kept for everything else.
    """
    other = (
        by_memory(usable_memory() if memory is None else memory)
        if chosen is None
        else Room(chosen, f"connections = {chosen} in [broker]", "connections = {devices} in [broker]")
    )
    return min(by_files(files), other, key=lambda each: each.connections)


def by_files(files: int) -> Room:
    """Return the room that the limit of open files gives."""
    return Room(
        max(files - RESERVE, 1),
        f"the limit of {files} open files",
        "LimitNOFILE={files} in the systemd unit, or ulimit -Hn {files} as root before the start",
    )


def by_memory(memory: int) -> Room:
    """Return the room that this number of bytes of memory gives."""
    return Room(
        max(memory // CONNECTION_BYTES, 1),
        f"the memory of {memory >> 20} MB",
        "more memory, or connections = {devices} in [broker]",
    )


def usable_memory(groups: Path = _GROUPS, own: Path = _OWN_GROUP) -> int:
    """Return the bytes of memory that this process may use.

    They are the machine's, or less if the process's control group (a container) has a limit. ``groups``: where control
    groups of version 2 are mounted. ``own``: the file that names this process's group.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> list[int]:
    """Return the limits of this process's group and of all groups around it."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        # The system is not Linux.
        return []
    found = []
    for line in lines:
        if line.startswith(_VERSION_2):
            group = PurePosixPath(line.removeprefix(_VERSION_2))
            for each in (group, *group.parents):
                file = groups / each.relative_to("/") / "memory.max"
                # A group without a limit says "max"; the outermost group has no such file.
                if file.is_file() and (limit := file.read_text(encoding="utf-8").strip()).isdecimal():
                    found.append(int(limit))
    return found
