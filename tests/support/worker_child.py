"""`undertone worker` as a child process that may stop itself at a failpoint: for the fault tests only.

Arguments: store, password file, place, how often the place is passed before it stops (a negative number: never).
"""

import os
import signal
import sys
import threading
from pathlib import Path

from support.aggregate_child import now
from undertone_aggregator.joining import Joining
from undertone_aggregator.journal import Journal


def main() -> None:
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    store, password_file, place, passages = sys.argv[1:]
    left = int(passages)
    journal = Journal()

    def failpoint(where: str) -> None:
        nonlocal left
        if where == place:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)

    joining = Joining(store, None, Path(password_file))
    joining.run(stop, lambda said: journal.say("worker", said), clock=now, failpoint=failpoint)


if __name__ == "__main__":
    main()
