"""A worker that shares a campaign's partitions with workers on other machines, through the database.

A partition is a part of the shards, with a session of its own at the broker. Its lease has one holder at a time
(`undertone_aggregator.store.leases`). This process ingests each partition that it holds in a thread of its own, with
the same `Ingest` as a server's own worker.
"""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from undertone_aggregator.base.background import Background, Body, Ready
from undertone_aggregator.base.plural import many
from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.ingest import Failpoint, Ingest, IngestPlan, Say, Share, no_failpoint
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.ingest.shared_plan import plan_text, read_plan
from undertone_aggregator.store.leases import COORDINATOR, Fenced, Lease, Leases, fair_shares
from undertone_aggregator.store.store import LOCK_SECONDS, NoStore, Store, StoreError, campaigns_in, open_store
from undertone_aggregator.store.store_address import shared_examples
from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS

# Seconds between two reads of the list of workers and of the free partitions.
LOOK_SECONDS = 1.0
# A lease is renewed after this share of its duration.
RENEW_AFTER = 1 / 4
_WAITING = "no server has begun the campaign yet: waiting for one"

# The type of functions that open a worker's intake. They must be picklable, for workers in processes of their own.
OpenIntake = Callable[[IngestPlan, Say], Intake]


@dataclass(frozen=True)
class WorkerContext:
    """The store's address and the functions that ingest needs besides its plan.

    ``most``: the largest number of partitions that a worker takes.
    """

    url: str
    cells: Callable[[str], Cells]
    open_intake: OpenIntake
    say: Say = lambda _: None
    clock: Callable[[], float] = time.time
    failpoint: Failpoint = no_failpoint
    most: int = SHARDS

    def ingest(self, plan: IngestPlan, store: Store, **options: Any) -> Ingest:
        """Return the `Ingest` of one worker, not yet running; ``options``: see `Ingest`."""
        intake = self.open_intake(plan, self.say)
        return Ingest(plan, store, intake, say=self.say, clock=self.clock, failpoint=self.failpoint, **options)


def work_on_partitions(campaign: str, context: WorkerContext, stop: threading.Event, ready: Ready) -> None:
    """Ingest partitions until ``stop`` is set; then commit and acknowledge what was read, and release the leases.

    Waits until a server has written the campaign's plan, and starts anew if the plan changes. Raises Invalid.
    """
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    while not stop.is_set():
        try:
            with open_store(context.url, campaign=campaign or None, create=False) as store:
                if plan_text(store) is None:
                    context.say(_WAITING)
                else:
                    _take_part(name, context, store, stop, ready)
        except NoStore:
            # If the database has other campaigns but not this one, its name is mistyped. If it has none, no server has
            # written to the database yet.
            names = campaigns_in(context.url)
            if campaign and names and campaign not in names:
                raise Invalid(f"campaign is {campaign!r}, expected one of {', '.join(names)}") from None
            context.say(_WAITING)
        except StoreError as wrong:
            context.say(f"the store cannot be used, trying again: {wrong}")
        stop.wait(LOOK_SECONDS)


def _take_part(name: str, context: WorkerContext, store: Store, stop: threading.Event, ready: Ready) -> None:
    """Ingest partitions until ``stop`` is set or the plan changes."""
    leases = store.leases
    if leases is None:
        raise Invalid(f"the store {store.name} is for one machine only, expected {shared_examples()}")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.shared(LOCK_SECONDS))
        except Invalid:
            context.say("a server is taking the campaign over: waiting for it")
            return
        text = plan_text(store)
        partitions = Partitions(name, read_plan(store, context.cells), context, leases)
        held.callback(partitions.close)
        begun = reported = False
        while not stop.is_set():
            try:
                if plan_text(store) != text:
                    return
                partitions.update()
                begun = begun or leases.begun()
                works = begun
            except StoreError as wrong:
                # This worker holds its leases until they expire. So ingest of their partitions continues once the
                # database is back.
                context.say(f"the store cannot be used, trying again: {wrong}")
                works = False
            if works != reported:
                reported = works
                ready(reported)
            stop.wait(LOOK_SECONDS)


class Partitions:
    """The partitions that one worker holds. Call ``update`` about every second, from one thread."""

    def __init__(self, name: str, plan: IngestPlan, context: WorkerContext, leases: Leases) -> None:
        self._name = name
        self._plan = plan
        self._context = context
        self._leases = leases
        self._threads: dict[str, Background] = {}
        self._partitions = {Share(number, plan.share.workers).name: number for number in range(plan.share.workers)}
        self._logged = -1

    def update(self) -> None:
        """Renew the membership; release partitions above this worker's fair share, or take free ones up to it.

        Raises StoreError.
        """
        plan, leases = self._plan, self._leases
        leases.join(self._name, self._context.most, plan.lease_seconds)
        self._sweep()
        partitions = plan.share.workers
        shares = fair_shares(partitions, leases.members())
        share = shares.get(self._name, 0)
        self._stop(sorted(self._threads, key=self._partitions.__getitem__)[share:])
        for role in leases.free():
            if len(self._threads) < share and role != COORDINATOR and role in self._partitions:
                lease = leases.take(role, self._name, plan.lease_seconds)
                if lease is not None:
                    # An older thread of this process may still hang on the same partition. Then the new thread takes
                    # the lease from it.
                    self._threads[role] = Background(f"partition {role}", self._body(lease))
        if len(self._threads) != self._logged:
            self._logged = len(self._threads)
            has = f"worker {self._name} has {self._logged} of {many(partitions, 'partition')}"
            self._context.say(f"{has}; workers in all: {len(shares)}")

    def close(self) -> None:
        """Commit and acknowledge what was read, release the leases, leave the list of members."""
        self._stop(list(self._threads))
        with contextlib.suppress(StoreError):
            self._leases.leave(self._name)

    def _stop(self, roles: list[str]) -> None:
        for role in roles:
            self._threads[role].ask_to_stop()
        for role in roles:
            self._threads.pop(role).stop()

    def _sweep(self) -> None:
        """Drop threads that have ended because another worker has their partition, or because the database was away."""
        for role in [role for role, thread in self._threads.items() if thread.ended]:
            try:
                self._threads.pop(role).check()
            except Fenced as wrong:
                self._context.say(f"partition {wrong}")
            except StoreError as wrong:
                self._context.say(f"partition {role}: {wrong}")

    def _body(self, lease: Lease) -> Body:
        plan, context = self._plan.of_worker(self._partitions[lease.role]), self._context

        def body(stop: threading.Event, _: Ready) -> None:
            with open_store(context.url, campaign=plan.campaign) as store:
                leases = store.leases
                assert leases is not None
                store.fence(lambda: leases.renew(lease))
                try:
                    ingest = context.ingest(plan, store, check_lease=LeaseRenewal(leases, lease))
                    ingest.run(stop, lambda ready: leases.begin(lease) if ready else None)
                finally:
                    with contextlib.suppress(StoreError):
                        leases.release(lease)

        return body


class LeaseRenewal:
    """Renews a lease in time. Call it often. It raises Fenced if the lease is lost."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        self._lease = lease
        self._due = time.monotonic() + lease.seconds * RENEW_AFTER

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        with contextlib.suppress(StoreError):
            # While the database is away, nothing can be committed either. So a failed renewal is simply tried again.
            self._leases.renew(self._lease)
            self._due = now + self._lease.seconds * RENEW_AFTER
