"""The limit of open files: each connection needs one, and so does each file of a store.

A process starts with the soft limit, often 1024 (256 on macOS), and may raise it to the hard limit by itself. Processes
that it starts inherit its limit.
"""

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from typing import Any

from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

# Name of the log's event for the alarm that the process can open no more files.
FILES = "files"
# Error numbers that say that this process, or the whole machine, can open no more files.
EXHAUSTED = (errno.EMFILE, errno.ENFILE)
# Open files of a server besides those of connections: stores, logs, listening sockets, databases.
RESERVE = 256
# Linux gives a process at most this many, unless somebody raises fs.nr_open.
_MOST = 1 << 20
# Some versions of macOS say that their hard limit is unlimited, but refuse more than this number (OPEN_MAX).
_LEAST_OF_MACOS = 10_240


def limit() -> tuple[int, int]:
    """Return the soft and the hard limit of open files. A limit that is "unlimited" counts as 2^20."""
    soft, hard = (_MOST if each == resource.RLIM_INFINITY else each for each in _limits())
    return soft, hard


def raise_limit() -> int:
    """Raise the soft limit to the hard one as far as the system permits; return the soft limit."""
    soft, hard = limit()
    for wanted in (min(hard, _MOST), min(hard, _LEAST_OF_MACOS)):
        if wanted > soft:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, _limits()[1]))
                return wanted
            except (OSError, ValueError):
                continue
    return soft


def allow_connections(count: int) -> None:
    """Raise the limit, and check that it suffices for `count` connections and `RESERVE` other files.

    Raises Invalid if it does not.
    """
    need = count + RESERVE
    if (most := raise_limit()) < need:
        raise Invalid(
            f"with {many(count, 'connection')} this process needs {need} open files, but may have only {most}: raise"
            f" the limit with `ulimit -Hn {need}` as root in this shell, a line `* hard nofile {need}` in"
            f" /etc/security/limits.conf, or LimitNOFILE={need} in a systemd unit"
        )


def ran_out() -> str:
    """Return the sentence of the alarm that the process can open no more files."""
    return (
        f"alarm: this process can open no further file (its limit is {limit()[0]}): it accepts no new connection, and a"
        " store may fail. Raise the limit by LimitNOFILE in the systemd unit, or by ulimit -Hn as root before the start"
    )


def none_left() -> bool:
    """Return True if this process can open no further file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as wrong:
        return wrong.errno in EXHAUSTED
    return False


def heed(loop: asyncio.AbstractEventLoop, say: Callable[[str], None]) -> None:
    """Raise an alarm when an event loop has no file left for a new connection. The loop itself tries again."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        wrong = context.get("exception")
        if isinstance(wrong, OSError) and wrong.errno in EXHAUSTED:
            say(ran_out())
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)
