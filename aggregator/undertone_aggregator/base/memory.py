"""The memory that this process may use: the machine's, or less if its control group (a container) has a limit."""

import os
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
# Line of version 2 in /proc/self/cgroup.
_VERSION_2 = "0::"


def usable_memory(groups: Path = _GROUPS, own: Path = _OWN_GROUP) -> int:
    """Return the bytes of memory that this process may use.

    ``groups``: where control groups of version 2 are mounted; ``own``: the file that names this process's group.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> list[int]:
    """Return the limits of this process's group and of all groups around it."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        # Not Linux.
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
