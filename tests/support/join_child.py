"""Parts of the tests of joining that run in a process of their own."""

import os
import random
import signal
import time
from pathlib import Path

from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.folder import Home
from undertone_operate.join import server as join_server
from undertone_operate.join.joining import Joining, Redemption


def serve(folder: str, header_seconds: float = 60.0) -> None:
    """Serve the listener of a server's folder; it looks for a new certificate twenty times a second."""
    join_server._HEADER_SECONDS, join_server._WATCH_SECONDS = header_seconds, 0.05
    join_server.serve_join(Home(Path(folder)), Journal())


def redeem(folder: str, asked: list[tuple[str, str]]) -> None:
    """Redeem codes, each with its key, in one batch."""
    Joining(Home(Path(folder))).redeem([Redemption.parse(*each) for each in asked])


def redeem_and_kill(folder: str, batches: list[list[tuple[str, str]]], seed: int) -> None:
    """Redeem each batch in a process of its own, and kill this process at a random point; print how many were killed.

    The first two batches are redeemed completely. The second shows how long a batch takes. Kills come within this time,
    which is shortened whenever a batch ends before its kill.
    """
    rng, seconds, killed = random.Random(seed), 0.0, 0
    for number, batch in enumerate(batches):
        began = time.monotonic()
        # This process has only one thread, so a fork of it works.
        child = os.fork()
        if child == 0:
            redeem(folder, batch)
            os._exit(0)
        if number >= 2:
            time.sleep(rng.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        took = time.monotonic() - began
        if number < 2:
            seconds = took
        elif not os.WIFSIGNALED(status):
            seconds = min(seconds, took) / 2
    print(killed, flush=True)
