"""The ingest workers of a server: a single one is a thread, several are processes on disjoint shards of one store."""

import contextlib
import multiprocessing
import multiprocessing.connection
import threading
import time
from collections.abc import Callable
from typing import Protocol

from undertone_aggregator.base.background import Background, Ready
from undertone_aggregator.ingest.ingest import Failpoint, IngestPlan, Say
from undertone_aggregator.ingest.shared_workers import Means, OpenIntake, work_together
from undertone_aggregator.store.disk_space import until_room
from undertone_aggregator.store.store import LOCK_SECONDS, open_store

RESTART_SECONDS = 1.0
_STOP_SECONDS = 30.0


class Worker(Protocol):
    """A running worker."""

    @property
    def ready(self) -> bool:
        """True if the broker stores reports for the worker, and the store can be written."""

    def check(self) -> None:
        """Raise the error that ended a thread; restart a process that has died, unless it was stopped."""

    def stop(self) -> None:
        """Stop the worker after it has committed and acknowledged what it has read."""


def thread_worker(
    plan: IngestPlan,
    store: str,
    open_intake: OpenIntake,
    say: Say,
    clock: Callable[[], float],
    failpoint: Failpoint,
) -> Background:
    """Start the single worker, in a thread with its own connection to the store."""
    return Background("ingest", lambda stop, ready: work(plan, store, open_intake, say, clock, failpoint, stop, ready))


class ProcessWorker:
    """One of several workers, in its own process, which ends when ours ends, even if killed.

    ``failpoint`` must be a function that another process can import.
    """

    def __init__(
        self,
        plan: IngestPlan,
        store: str,
        open_intake: OpenIntake,
        say: Say,
        clock: Callable[[], float],
        failpoint: Failpoint,
    ) -> None:
        self._plan = plan
        self._say = say
        self._arguments = (plan, store, open_intake, clock, failpoint)
        self._stopped = False
        self._start()

    @property
    def ready(self) -> bool:
        """True if the broker stores reports for the worker, and the store can be written."""
        return self._ready and self._process.is_alive()

    @property
    def pid(self) -> int | None:
        """The worker's process id."""
        return self._process.pid

    def check(self) -> None:
        """Read the worker's messages; restart it if it has died."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = self._pipe.recv()
                if isinstance(message, bool):
                    self._ready = message
                else:
                    self._say(f"worker {self._plan.name}: {message}")
        if self._stopped:
            return
        if not self._process.is_alive() and time.monotonic() >= self._start_at:
            self._say(f"worker {self._plan.name} ended with code {self._process.exitcode}: starting it again")
            self._start()

    def stop(self) -> None:
        """Stop the worker after it has committed and acknowledged what it has read."""
        self._stopped = True
        self._pipe.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, *self._arguments), name=self._plan.client_id)
        self._process.start()
        theirs.close()
        self._ready = False
        self._start_at = time.monotonic() + RESTART_SECONDS


def _work(
    pipe: multiprocessing.connection.Connection,
    plan: IngestPlan,
    url: str,
    open_intake: OpenIntake,
    clock: Callable[[], float],
    failpoint: Failpoint,
) -> None:
    """Run a worker in this process; it stops when its parent closes the pipe, or dies."""
    import signal

    # Ctrl-C reaches the whole process group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        stop.set()

    def send(message: str | bool) -> None:
        with contextlib.suppress(OSError):
            pipe.send(message)

    threading.Thread(target=watch, daemon=True).start()
    work(plan, url, open_intake, send, clock, failpoint, stop, send)


def work(
    plan: IngestPlan,
    url: str,
    open_intake: OpenIntake,
    say: Say,
    clock: Callable[[], float],
    failpoint: Failpoint,
    stop: threading.Event,
    ready: Ready,
) -> None:
    """Run one worker until ``stop`` is set: on the shards of its number, or on its share of the shared partitions."""
    own = Means(url, plan.cells, open_intake, say, clock, failpoint)
    if plan.lease_seconds:
        work_together(plan.campaign, own, stop, ready)
        return

    def run() -> None:
        with open_store(url, campaign=plan.campaign) as store, store.shared(LOCK_SECONDS):
            own.ingest(plan, store).run(stop, ready)

    until_room(run, say, stop)
