"""A server in its own process, for benchmarks. It is set up by the commands that an operator types."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS = 300.0


def undertone(*words: str) -> None:
    """Run a command of `undertone`. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "undertone", *words], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the context ends; yield it when it accepts connections. Raises RuntimeError."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not _listens(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not listen on port {port}")
            time.sleep(0.02)
        yield server
    finally:
        server.terminate()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
