"""Ingest workers: one is a thread of the server, several are processes on disjoint shards of one store."""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import chain
from typing import Protocol

from undertone_aggregator.collect.admission import topic_filters
from undertone_aggregator.collect.chains import Chains
from undertone_aggregator.collect.inbox import Inbox
from undertone_aggregator.collect.ingest import Failpoint, Ingest, IngestPlan, Say
from undertone_aggregator.collect.intake import Intake
from undertone_aggregator.collect.link import Address, forget_session
from undertone_aggregator.collect.seen import Seen
from undertone_aggregator.collect.store import Store, open_store
from undertone_shared.errors import Invalid

RESTART_SECONDS = 1.0
# How long a store may still be in use by the workers of a server that was killed.
LOCK_SECONDS = 5.0
DRAINED_SECONDS = 1.0
_STOP_SECONDS = 30.0
# Names of the store's facts about its sessions at the broker.
_SESSIONS = "broker_sessions"
_SECRET = "broker_secret"
_SECRET_BYTES = 16
# Broker users that are provisioned for ingest workers, of all campaigns together.
WORKER_USERS = 64


class Worker(Protocol):
    """A running worker."""

    @property
    def ready(self) -> bool:
        """Whether the broker keeps reports for it."""

    def check(self) -> None:
        """Raises what ended a thread; starts a process again that has died, unless it was stopped."""

    def stop(self) -> None:
        """Let it commit and acknowledge what it has read, then end it."""


class ThreadWorker:
    """The lone worker, in a thread with its own connection to the store."""

    def __init__(
        self,
        plan: IngestPlan,
        store: str,
        address: Address,
        say: Say,
        clock: Callable[[], float],
        failpoint: Failpoint,
    ) -> None:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop = threading.Event()

        def work() -> None:
            try:
                _ingest(plan, store, address, say, clock, failpoint, self._stop, self._ready.set)
            except BaseException as failure:
                self._failure = failure

        self._thread = threading.Thread(target=work, name="ingest", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether the broker keeps reports for it."""
        return self._ready.is_set()

    def check(self) -> None:
        """Raises what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let it commit and acknowledge what it has read, then end it."""
        self._stop.set()
        self._thread.join()


class ProcessWorker:
    """One of several workers, in its own process, which ends with ours however that ends.

    ``failpoint`` must be a function that another process can import.
    """

    def __init__(
        self,
        plan: IngestPlan,
        store: str,
        address: Address,
        say: Say,
        clock: Callable[[], float],
        failpoint: Failpoint,
    ) -> None:
        self._plan = plan
        self._say = say
        self._arguments = (plan, store, address, clock, failpoint)
        self._stopped = False
        self._start()

    @property
    def ready(self) -> bool:
        """Whether the broker keeps reports for it."""
        return self._ready

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Take its messages; start it again if it has died."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = self._pipe.recv()
                if message is None:
                    self._ready = True
                else:
                    self._say(f"worker {self._plan.name}: {message}")
        if self._stopped:
            return
        if not self._process.is_alive() and time.monotonic() >= self._start_at:
            self._say(f"worker {self._plan.name} ended with code {self._process.exitcode}: starting it again")
            self._start()

    def stop(self) -> None:
        """Let it commit and acknowledge what it has read, then end it."""
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
    address: Address,
    clock: Callable[[], float],
    failpoint: Failpoint,
) -> None:
    """The process of a worker: its parent closes the pipe, or dies, and it stops."""
    import signal

    # Ctrl-C reaches the whole group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        stop.set()

    def send(message: str | None) -> None:
        with contextlib.suppress(OSError):
            pipe.send(message)

    threading.Thread(target=watch, daemon=True).start()
    _ingest(plan, url, address, send, clock, failpoint, stop, lambda: send(None))


def _ingest(
    plan: IngestPlan,
    url: str,
    address: Address,
    say: Say,
    clock: Callable[[], float],
    failpoint: Failpoint,
    stop: threading.Event,
    ready: Callable[[], None],
) -> None:
    with open_store(url, campaign=plan.campaign) as store, store.shared(LOCK_SECONDS):
        ingest = Ingest(plan, store, open_intake(plan, address, say), say=say, clock=clock, failpoint=failpoint)
        ingest.run(stop, ready)


def open_intake(plan: IngestPlan, address: Address, say: Say) -> Intake:
    """The intake of one worker."""
    filters = topic_filters(plan.prefix, plan.campaign, plan.worker, plan.workers)
    return Inbox(
        address.of_worker(plan.slot),
        plan.client_id,
        filters,
        plan.batch,
        say,
        batch_seconds=plan.batch_seconds,
        unsubscribe=plan.draining,
    )


def take_over(
    store: Store,
    plan: IngestPlan,
    address: Address,
    say: Say,
    clock: Callable[[], float],
    stop: threading.Event,
    taken: Collection[int] = (),
) -> IngestPlan:
    """The plan with its sessions at the broker, once they are this number of workers'; no worker runs meanwhile.

    One snapshot replaces all deduplication segments. When the number of workers has changed, the new sessions begin,
    then the old ones are emptied and forgotten: a report that reached both is a duplicate. Gives up when ``stop`` is
    set. ``taken``: slots that other campaigns of this server hold. Raises Invalid without enough slots.
    """
    with store.exclusive(LOCK_SECONDS):
        meta = store.meta()
        plan = replace(plan, secret=meta.get(_SECRET) or secrets.token_hex(_SECRET_BYTES))
        # The slots of every number of workers whose sessions the broker may hold, this one last: a take-over may be
        # interrupted.
        known: list[tuple[int, ...]] = [tuple(slots) for slots in json.loads(meta.get(_SESSIONS, "[]"))]
        old = [slots for slots in known if len(slots) != plan.workers]
        mine = next((slots for slots in known if len(slots) == plan.workers), None)
        plan = replace(plan, slots=mine or _free(plan.workers, {*taken, *chain(*known)}))
        store.set_meta({_SECRET: plan.secret, _SESSIONS: json.dumps([*old, plan.slots])})
        if old:
            say(f"{plan.workers} workers take over from {', '.join(str(len(slots)) for slots in old)}")
            for worker in range(plan.workers):
                _begin_session(replace(plan, worker=worker), address, say, stop)
            for slots in old:
                for worker in range(len(slots)):
                    before = replace(plan, worker=worker, workers=len(slots), slots=slots)
                    _empty_session(store, before, address, say, clock, stop)
        if stop.is_set():
            return plan
        store.set_meta({_SESSIONS: json.dumps([plan.slots])})
        seen = Seen()
        seen.load(store.seen())
        if len(seen):
            store.compact_seen("", seen.snapshot(), everyone=True)
        chains = Chains()
        chains.load(store.chains())
        if len(chains):
            store.compact_chains("", chains.records(), everyone=True)
    return plan


def slots_of(store: Store) -> set[int]:
    """The broker users' slots that a campaign's sessions hold."""
    return set(chain(*json.loads(store.meta().get(_SESSIONS, "[]"))))


def _free(workers: int, taken: set[int]) -> tuple[int, ...]:
    free = [slot for slot in range(WORKER_USERS) if slot not in taken][:workers]
    if len(free) < workers:
        raise Invalid(f"{workers} workers need as many broker users, but {len(taken)} of {WORKER_USERS} are in use")
    return tuple(free)


def _begin_session(plan: IngestPlan, address: Address, say: Say, stop: threading.Event) -> None:
    intake = open_intake(plan, address, say)
    while not intake.ready and not stop.is_set():
        # What is read meanwhile is not acknowledged: it comes again.
        intake.take(0.1)
    intake.close()


def _empty_session(
    store: Store, plan: IngestPlan, address: Address, say: Say, clock: Callable[[], float], stop: threading.Event
) -> None:
    draining = replace(plan, draining=True)
    intake = open_intake(draining, address, say)
    ingest = Ingest(draining, store, intake, say=say, clock=clock)
    last = time.monotonic()
    while time.monotonic() < last + DRAINED_SECONDS and not stop.is_set():
        if ingest.step() or not intake.ready:
            last = time.monotonic()
    intake.close()
    if not stop.is_set():
        forget_session(address.of_worker(plan.slot), plan.client_id)
