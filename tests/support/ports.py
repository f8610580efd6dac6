"""TCP ports for servers that a test starts itself, and may start again: nobody else is given them meanwhile."""

import itertools
import os
import socket
from pathlib import Path

# The range of ports that the kernel gives to outgoing connections, and to sockets that ask for port 0.
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST, _MOST = 20_000, 32_768
# As many workers of pytest-xdist draw from a share of their own.
_WORKERS = 16


def _share() -> range:
    """This worker's ports."""
    try:
        top = min(_MOST, int(_RANGE.read_text(encoding="utf-8").split()[0]))
    except OSError:
        top = _MOST
    # A kernel that gives away the low ones, too, leaves no better choice.
    least = _LEAST if top > _LEAST + 100 * _WORKERS else 1024
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    size = (max(top, least + 100 * _WORKERS) - least) // _WORKERS
    return range(least + worker * size, least + (worker + 1) * size)


_SHARE = _share()
# Two runs on one machine begin at different places.
_next = itertools.cycle([*_SHARE[os.getpid() % len(_SHARE) :], *_SHARE[: os.getpid() % len(_SHARE)]])


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on; this process gets it again only after all others of its share.

    A port that the kernel chose and that was let go may be another process's by the time that a server has started:
    one in 14,000 for each that is opened meanwhile, and servers start a hundred times in a run.
    """
    for port in itertools.islice(_next, len(_SHARE)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port of {_SHARE} is free")
