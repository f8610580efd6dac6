"""TCP ports for servers that a test starts itself and may start again. No other program gets these ports meanwhile."""

import itertools
import os
import socket
from pathlib import Path

# The range of ports that the kernel uses for outgoing connections, and for sockets that ask for port 0.
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST, _MOST = 20_000, 32_768
# Each worker of pytest-xdist uses its own share of the ports. This is the number of shares.
_WORKERS = 16


def _share() -> range:
    """The ports of this worker's share."""
    try:
        top = min(_MOST, int(_RANGE.read_text(encoding="utf-8").split()[0]))
    except OSError:
        top = _MOST
    # If the kernel also uses the low ports, there is no better choice.
    least = _LEAST if top > _LEAST + 100 * _WORKERS else 1024
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    size = (max(top, least + 100 * _WORKERS) - least) // _WORKERS
    return range(least + worker * size, least + (worker + 1) * size)


_SHARE = _share()
# Two test runs on one machine begin at different ports.
_next = itertools.cycle([*_SHARE[os.getpid() % len(_SHARE) :], *_SHARE[: os.getpid() % len(_SHARE)]])


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no program listens.

    This process gets the port again only after all others of its share. The kernel is not asked for a free port,
    because another process might get the same port before the test's server has started.
    """
    for port in itertools.islice(_next, len(_SHARE)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port of {_SHARE} is free")
