"""``mortal_aggregator.py HOME DEATHS``: a server that SIGKILL ends DEATHS times, at one failpoint after another.

Each time, a forked child runs `serve` until it has passed its failpoint a few times, and then kills itself. The program
prints one line for each killed child. Then it runs `serve` itself until SIGTERM.
"""

import importlib
import os
import random
import signal
import sys
import threading
from pathlib import Path

from support.forked import PRELOADED
from support.serving import serve
from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.folder import Home

PLACES = ("before_commit", "after_commit", "during_acknowledgement", "after_acknowledgement")


def live(home: Home, place: str | None, passes: int) -> None:
    """Run `serve` until ``place`` is passed for the ``passes``-th time, where SIGKILL ends it, or until SIGTERM."""
    stop = threading.Event()
    left = [passes]

    def failpoint(here: str) -> None:
        if here == place:
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with (home.folder / "journal").open("a", encoding="utf-8") as stream:
        serve(home.config(home.only(None)), stop, Journal(stream, as_json=True), failpoint=failpoint)


def main(home: Home, deaths: int) -> None:
    """Run ``deaths`` children, each until it is killed, and then run `serve` until SIGTERM."""
    # The modules are imported once for all children.
    for module in PRELOADED:
        importlib.import_module(module)
    chance = random.Random(1)
    for number in range(deaths):
        place, passes = PLACES[number % len(PLACES)], chance.randint(1, 4)
        child = os.fork()
        if not child:
            live(home, place, passes)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(place, passes, os.WIFSIGNALED(status) and os.WTERMSIG(status), flush=True)
    live(home, None, 0)


main(Home(Path(sys.argv[1])), int(sys.argv[2]))
