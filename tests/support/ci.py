"""If a tool is missing, its tests are skipped and say how to get the tool.

Under CI, each skip except those of `absent` is a failure.
"""

import os
from typing import NoReturn

import pytest

from undertone_aggregator.base.open_files import RESERVE, limit

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


# Skips with a reason that begins in this way are allowed under CI: no script of the project installs what is missing.
ABSENT = "not on this machine: "


def absent(reason: str) -> NoReturn:
    """Skip because something is missing that CI need not have, such as a data set, an optional interpreter or IPv6."""
    pytest.skip(ABSENT + reason)


def unavailable(reason: str) -> NoReturn:
    """Skip because a tool is missing that `make tools`, `make services` or pip installs. Under CI, fail."""
    if CI:
        pytest.fail(f"{reason} (CI=true: a skip here would hide what was not tested)", pytrace=False)
    pytest.skip(reason)


def pseudo_terminal() -> tuple[int, int]:
    """Return a pair as `os.openpty` does. Skip if the machine has none, for instance in a chroot without /dev/pts."""
    try:
        return os.openpty()
    except OSError as wrong:
        absent(f"no pseudo-terminal: {wrong}")


def need_connections(count: int) -> None:
    """Skip if this process, which runs a server, may not open so many connections besides the server's files."""
    if (most := limit()[0]) < count + RESERVE:
        absent(f"{count + RESERVE} open files: this process may have {most}; as root, `ulimit -Hn` raises it")
