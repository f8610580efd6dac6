"""`undertone worker` as a child process that stops itself between judging a batch and committing it.

Only tests use it. Arguments: the store, the password file, and a file. When this last file exists, it is deleted and
the process stops (SIGSTOP).
"""

import os
import signal
import sys
import threading
from pathlib import Path

from support.aggregate_child import now
from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.worker import SharedWorkerOptions


def main() -> None:
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    store, password_file, asked = sys.argv[1:]
    journal = Journal()

    def failpoint(where: str) -> None:
        if where == "before_commit" and os.path.exists(asked):
            os.remove(asked)
            os.kill(os.getpid(), signal.SIGSTOP)

    options = SharedWorkerOptions(store, None, Path(password_file))
    options.run(stop, lambda said: journal.say("worker", said), clock=now, failpoint=failpoint)


if __name__ == "__main__":
    main()
