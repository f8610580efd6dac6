"""`undertone worker` with a fixed clock, for benchmarks; it ends when its standard input ends.

    python -m undertone_studies.joined STORE PASSWORD_FILE MOST

MOST is the largest number of partitions that the worker takes.
"""

import sys
import threading
from pathlib import Path

from undertone_aggregator.ingest import shared_workers
from undertone_aggregator.server.worker import SharedWorkerOptions
from undertone_studies.bench import ingest as bench


def main() -> None:
    """Run the worker until the end of standard input."""
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    # The worker looks for its partitions more often than usual, because benchmarks do not measure how soon it begins.
    shared_workers.LOOK_SECONDS = 0.05
    store, password_file, most = sys.argv[1:]
    options = SharedWorkerOptions(store, bench.CAMPAIGN, Path(password_file), shards=int(most))
    options.run(stop, lambda said: print(said, file=sys.stderr), clock=lambda: bench.NOW)


if __name__ == "__main__":
    main()
