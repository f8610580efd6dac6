"""What a missing tool means: a skip that says how to get it. Under CI each skip is a failure, but for `absent`."""

import os
from typing import NoReturn

import pytest

from undertone_aggregator.base.open_files import RESERVE, limit

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


# A reason that begins so may stand under CI: the machine lacks what no script of ours installs.
ABSENT = "not on this machine: "


def absent(reason: str) -> NoReturn:
    """Skip for want of something that CI need not have: a data set, an optional interpreter, IPv6."""
    pytest.skip(ABSENT + reason)


def unavailable(reason: str) -> NoReturn:
    """Skip for want of a tool that `make tools` or `make services` installs, or pip; fail under CI."""
    if CI:
        pytest.fail(f"{reason} (CI=true: a skip here would hide what was not tested)", pytrace=False)
    pytest.skip(reason)


def pseudo_terminal() -> tuple[int, int]:
    """A pair as of `os.openpty`; skip where the machine has none, as in a chroot without /dev/pts."""
    try:
        return os.openpty()
    except OSError as wrong:
        absent(f"no pseudo-terminal: {wrong}")


def need_connections(count: int) -> None:
    """Skip where this process, which runs a server, may not open so many connections beside the server's files."""
    if (most := limit()[0]) < count + RESERVE:
        absent(f"{count + RESERVE} open files: this process may have {most}; as root, `ulimit -Hn` raises it")
