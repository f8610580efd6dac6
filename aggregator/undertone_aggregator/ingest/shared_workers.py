"""Worker that shares a campaign's partitions with workers on any machine, through the database.

A partition is a part of the shards with its own session at the broker, and has one owner at a time (`leases`). Each
partition that this process owns is ingested in a thread, by the same `Ingest` as in a single server.
"""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from undertone_aggregator.base.background import Background, Body, Ready
from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.ingest import Failpoint, Ingest, IngestPlan, Say, nowhere
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.ingest.shared_plan import plan_text, read_plan
from undertone_aggregator.store.leases import COORDINATOR, Fenced, Lease, Leases, fair_shares
from undertone_aggregator.store.store import LOCK_SECONDS, NoStore, Store, StoreError, campaigns_in, open_store
from undertone_aggregator.store.store_address import shared_examples
from undertone_shared.errors import Invalid
from undertone_shared.topics import SHARDS

# Seconds between two checks of the other workers and the free partitions.
LOOK_SECONDS = 1.0
# A lease is renewed after this share of its duration.
RENEW_AFTER = 1 / 4
_WAITING = "no server has begun the campaign yet: waiting for one"

# Makes the intake of one worker; a worker in a process of its own receives the function by pickle.
OpenIntake = Callable[[IngestPlan, Say], Intake]


@dataclass(frozen=True)
class Means:
    """What ingest needs besides its plan."""

    url: str
    cells: Callable[[str], Cells]
    open_intake: OpenIntake
    say: Say = lambda _: None
    clock: Callable[[], float] = time.time
    failpoint: Failpoint = nowhere
    most: int = SHARDS

    def ingest(self, plan: IngestPlan, store: Store, **options: Any) -> Ingest:
        """Make one worker's ingest without running it; ``options``: see `Ingest`."""
        intake = self.open_intake(plan, self.say)
        return Ingest(plan, store, intake, say=self.say, clock=self.clock, failpoint=self.failpoint, **options)


def work_together(campaign: str, means: Means, stop: threading.Event, ready: Ready) -> None:
    """Work until ``stop`` is set; then commit and acknowledge everything that was read, and release the leases.

    The work begins when a server has written the campaign's plan, and again when the plan changes. Raises Invalid.
    """
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    while not stop.is_set():
        try:
            with open_store(means.url, campaign=campaign or None, create=False) as store:
                if plan_text(store) is None:
                    means.say(_WAITING)
                else:
                    _take_part(name, means, store, stop, ready)
        except NoStore:
            # An unknown name is a typing error, unless no server has ever used the database.
            names = campaigns_in(means.url)
            if campaign and names and campaign not in names:
                raise Invalid(f"campaign is {campaign!r}, expected one of {', '.join(names)}") from None
            means.say(_WAITING)
        except StoreError as wrong:
            means.say(f"the store cannot be reached, trying again: {wrong}")
        stop.wait(LOOK_SECONDS)


def _take_part(name: str, means: Means, store: Store, stop: threading.Event, ready: Ready) -> None:
    """Work until ``stop`` is set or the plan has changed."""
    leases = store.leases
    if leases is None:
        raise Invalid(f"the store {store.name} is one machine's, expected {shared_examples()}")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.shared(LOCK_SECONDS))
        except Invalid:
            means.say("a server is taking the campaign over: waiting for it")
            return
        text = plan_text(store)
        crew = Crew(name, read_plan(store, means.cells), means, leases)
        held.callback(crew.close)
        begun = told = False
        while not stop.is_set():
            try:
                if plan_text(store) != text:
                    return
                crew.look()
                begun = begun or leases.begun()
                works = begun
            except StoreError as wrong:
                # Our partitions stay ours until their leases expire, and work continues when the database is back.
                means.say(f"the store cannot be reached, trying again: {wrong}")
                works = False
            if works != told:
                told = works
                ready(told)
            stop.wait(LOOK_SECONDS)


class Crew:
    """The partitions of one worker. Call ``look`` about every second, from one thread."""

    def __init__(self, name: str, plan: IngestPlan, means: Means, leases: Leases) -> None:
        self._name = name
        self._plan = plan
        self._means = means
        self._leases = leases
        self._threads: dict[str, Background] = {}
        self._partitions = {replace(plan, worker=worker).name: worker for worker in range(plan.workers)}
        self._told = -1

    def look(self) -> None:
        """Register this worker; release partitions above its share, take free ones up to its share.

        Raises StoreError.
        """
        plan, leases = self._plan, self._leases
        leases.join(self._name, self._means.most, plan.lease_seconds)
        self._sweep()
        shares = fair_shares(plan.workers, leases.members())
        mine = shares.get(self._name, 0)
        self._stop(sorted(self._threads, key=self._partitions.__getitem__)[mine:])
        for role in leases.free():
            if len(self._threads) < mine and role != COORDINATOR and role in self._partitions:
                lease = leases.take(role, self._name, plan.lease_seconds)
                if lease is not None:
                    # If a thread of ours hangs, it has lost the lease to this new one.
                    self._threads[role] = Background(f"partition {role}", self._body(lease))
        if len(self._threads) != self._told:
            self._told = len(self._threads)
            self._means.say(f"{self._name} has {self._told} of {plan.workers} partitions, {len(shares)} workers")

    def close(self) -> None:
        """Commit and acknowledge everything that was read, and release the leases."""
        self._stop(list(self._threads))
        with contextlib.suppress(StoreError):
            self._leases.leave(self._name)

    def _stop(self, roles: list[str]) -> None:
        for role in roles:
            self._threads[role].ask_to_stop()
        for role in roles:
            self._threads.pop(role).stop()

    def _sweep(self) -> None:
        """Remove threads that have ended because another worker has their partition, or the database was
        unavailable.
        """
        for role in [role for role, thread in self._threads.items() if thread.ended]:
            try:
                self._threads.pop(role).check()
            except Fenced as wrong:
                self._means.say(f"partition {wrong}")
            except StoreError as wrong:
                self._means.say(f"partition {role}: {wrong}")

    def _body(self, lease: Lease) -> Body:
        plan, means = replace(self._plan, worker=self._partitions[lease.role]), self._means

        def body(stop: threading.Event, _: Ready) -> None:
            with open_store(means.url, campaign=plan.campaign) as store:
                leases = store.leases
                assert leases is not None
                store.fence(lambda: leases.renew(lease))
                try:
                    ingest = means.ingest(plan, store, still_ours=Tenure(leases, lease))
                    ingest.run(stop, lambda ready: leases.begin(lease) if ready else None)
                finally:
                    with contextlib.suppress(StoreError):
                        leases.release(lease)

        return body


class Tenure:
    """Renews a lease in time. It is called often, and raises Fenced if the lease is lost."""

    def __init__(self, leases: Leases, lease: Lease) -> None:
        self._leases = leases
        self._lease = lease
        self._due = time.monotonic() + lease.seconds * RENEW_AFTER

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        with contextlib.suppress(StoreError):
            # Without the database nothing is committed either; the next call tries again.
            self._leases.renew(self._lease)
            self._due = now + self._lease.seconds * RENEW_AFTER
