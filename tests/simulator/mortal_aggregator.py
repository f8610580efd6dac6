"""``mortal_aggregator.py HOME DEATHS``: a server that kill -9 ends at one failpoint after another.

Each life is a forked child that runs `serve` until it has passed its failpoint a few times. The program prints one line
for each death. Then it lives on until SIGTERM.
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
    """Run `serve`. Die when ``place`` is passed for the `passes`-th time, or at SIGTERM if there is no place."""
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
    """Die so many times, and then live on."""
    # The modules are imported once for all lives.
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
