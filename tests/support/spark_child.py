"""`undertone spark run` as a child process that may end itself by SIGKILL at a failpoint.

Only the tests use it. Arguments: a job as JSON, the name of a failpoint, and at which passage of it the process ends (a
negative number for never).
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from undertone_aggregator.spark.job import CountingJob


def main() -> None:
    fields, place, left = json.loads(sys.argv[1]), sys.argv[2], [int(sys.argv[3])]
    began = time.monotonic()

    def failpoint(here: str) -> None:
        print(f"{time.monotonic() - began:.2f} {here}", flush=True)
        if here == place:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    paths = {name: Path(fields.pop(name)) for name in ("folder", "checkpoint")}
    CountingJob(**fields, **paths).run(stop, lambda sentence: print(sentence, flush=True), failpoint)


if __name__ == "__main__":
    main()
