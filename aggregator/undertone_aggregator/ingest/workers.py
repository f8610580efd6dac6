"""A server's ingest workers: a single one is a thread; several are processes, each for its own shards of the store."""

import contextlib
import multiprocessing
import multiprocessing.connection
import threading
import time
from dataclasses import replace
from typing import Protocol

from undertone_aggregator.base.background import Background, Ready
from undertone_aggregator.ingest.ingest import IngestPlan
from undertone_aggregator.ingest.shared_workers import WorkerContext, work_on_partitions
from undertone_aggregator.store.disk_space import retry_while_full
from undertone_aggregator.store.store import LOCK_SECONDS, open_store

RESTART_SECONDS = 1.0
_STOP_SECONDS = 30.0


class Worker(Protocol):
    """A running worker."""

    @property
    def ready(self) -> bool:
        """True if the broker queues reports for the worker, and the store takes them."""

    def check(self) -> None:
        """Raise the exception that ended a worker's thread, or restart a worker's process that has died."""

    def stop(self) -> None:
        """Let the worker commit and acknowledge the reports that it has read, then end it."""


def thread_worker(plan: IngestPlan, context: WorkerContext) -> Background:
    """Start the only worker, in a thread with its own connection to the store."""
    return Background("ingest", lambda stop, ready: work(plan, context, stop, ready))


class ProcessWorker:
    """One of several workers, in its own process. The process stops when this process ends, however it ends.

    The functions in ``context``, except ``say``, must be functions that another process can import.
    """

    def __init__(self, plan: IngestPlan, context: WorkerContext) -> None:
        self._plan = plan
        self._say = context.say
        # The worker's process sends its log lines through a pipe, because it cannot call this process's function.
        self._context = replace(context, say=_unheard)
        self._stopped = False
        self._start()

    @property
    def ready(self) -> bool:
        """True if the broker queues reports for the worker, and the store takes them."""
        return self._ready and self._process.is_alive()

    @property
    def pid(self) -> int | None:
        """Process id of the worker's process."""
        return self._process.pid

    def check(self) -> None:
        """Log the process's messages; start it again if it has died."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = self._pipe.recv()
                if isinstance(message, bool):
                    self._ready = message
                else:
                    self._say(f"worker {self._plan.share.name}: {message}")
        if self._stopped:
            return
        if not self._process.is_alive() and time.monotonic() >= self._start_at:
            self._say(f"worker {self._plan.share.name} ended with code {self._process.exitcode}: starting it again")
            self._start()

    def stop(self) -> None:
        """Have the process commit and acknowledge what it has read, and wait for its end."""
        self._stopped = True
        self._pipe.close()
        self._process.join(_STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        arguments = (theirs, self._plan, self._context)
        self._process = spawning.Process(target=_work, args=arguments, name=self._plan.client_id)
        self._process.start()
        theirs.close()
        self._ready = False
        self._start_at = time.monotonic() + RESTART_SECONDS


def _unheard(_: str) -> None:
    """Drop a log line. The process of a worker replaces this function by one that sends the line to its parent."""


def _work(pipe: multiprocessing.connection.Connection, plan: IngestPlan, context: WorkerContext) -> None:
    """Main function of a worker's process, which stops when its parent closes the pipe or dies."""
    import signal

    # Ctrl-C sends a signal to the whole process group. It is ignored here, because the parent decides when its workers
    # stop.
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
    work(plan, replace(context, say=send), stop, send)


def work(plan: IngestPlan, context: WorkerContext, stop: threading.Event, ready: Ready) -> None:
    """Work until ``stop`` is set: on the worker's own shards, or on its part of partitions that workers share."""
    if plan.lease_seconds:
        work_on_partitions(plan.campaign, context, stop, ready)
        return

    def run() -> None:
        with open_store(context.url, campaign=plan.campaign) as store, store.shared(LOCK_SECONDS):
            context.ingest(plan, store).run(stop, ready)

    retry_while_full(run, context.say, stop)
