"""The server as a child process that may end itself by SIGKILL at a failpoint. Only tests use it."""

import os
import signal
import sys
import threading
from pathlib import Path

from support.serving import serve
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign import runner
from undertone_aggregator.settings.config import read_config
from undertone_aggregator.store.store import LOCK_SECONDS


class Bomb:
    """Kills this process when it passes the failpoint ``place`` for the ``passages``-th time."""

    def __init__(self, place: str, passages: int) -> None:
        self.place = place
        self.passages = passages

    def __call__(self, place: str) -> None:
        if place == self.place:
            self.passages -= 1
            if self.passages == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main(path: Path, place: str, passages: int, lock_seconds: float = LOCK_SECONDS) -> None:
    """Serve the campaign of the configuration ``path``.

    ``passages``: at which passage of ``place`` the process is killed, a negative number for never. ``lock_seconds``:
    how long the process waits for another server of the same store to end.
    """
    runner.LOCK_SECONDS = lock_seconds
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    # The campaign began long ago and has slots of a second. The clock is given, so that nobody waits for slots.
    serve(read_config(path), stop, Journal(), clock=now, failpoint=Bomb(place, passages))


def now() -> float:
    """A clock that stands still at the Unix second UNDERTONE_TEST_NOW."""
    return float(os.environ["UNDERTONE_TEST_NOW"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
