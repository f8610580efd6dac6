"""The workers' sessions at a broker: whose they are, and how they move when the number of workers changes."""

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain

from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.seen import Seen
from undertone_aggregator.counts.sequences import Sequences
from undertone_aggregator.ingest.admission import topic_filters
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan, Say
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.ingest.shared_plan import SECRET
from undertone_aggregator.mqtt.inbox import Inbox
from undertone_aggregator.mqtt.link import Address, forget_session
from undertone_aggregator.store.leases import COORDINATOR
from undertone_aggregator.store.store import LOCK_SECONDS, Store
from undertone_shared.errors import Invalid

DRAINED_SECONDS = 1.0
# Names of the store's facts about its sessions at the broker.
_SESSIONS = "broker_sessions"
_SECRET_BYTES = 16
# Broker users that are provisioned for ingest workers, of all campaigns together.
WORKER_USERS = 64


def broker_of(addresses: Sequence[Address], plan: IngestPlan) -> Address:
    """The broker of a worker's shards, and its user there: shard s is at broker s mod their number."""
    return addresses[plan.worker % len(addresses)].of_worker(plan.slot)


def open_intake(addresses: Sequence[Address], plan: IngestPlan, say: Say) -> Intake:
    """The intake of one worker; the number of workers is a multiple of that of brokers."""
    filters = topic_filters(plan.prefix, plan.campaign, plan.worker, plan.workers)
    return Inbox(
        broker_of(addresses, plan),
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
    addresses: Sequence[Address],
    say: Say,
    clock: Callable[[], float],
    stop: threading.Event,
    taken: Collection[int] = (),
) -> IngestPlan:
    """The plan with its sessions at the broker, once they are this number of workers'; no worker runs meanwhile.

    One snapshot replaces all deduplication segments. When the number of workers has changed, the new sessions begin,
    then the old ones are emptied and forgotten: a report that reached both is a duplicate. Gives up when ``stop`` is
    set. ``taken``: slots that other campaigns of this server hold. Where workers share partitions and some are at it,
    their sessions are the plan's. Raises Invalid without enough slots, or for another number than theirs.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.exclusive(LOCK_SECONDS))
        except Invalid:
            if not plan.lease_seconds:
                raise
            return _join(store, plan)
        return _move(store, plan, addresses, say, clock, stop, taken)


def _join(store: Store, plan: IngestPlan) -> IngestPlan:
    meta = store.meta()
    known = [tuple(slots) for slots in json.loads(meta.get(_SESSIONS, "[]"))]
    if len(known) != 1 or len(known[0]) != plan.workers:
        partitions = " and ".join(str(len(slots)) for slots in known) or "no"
        raise Invalid(
            f"server.partitions is {plan.workers}, but workers of {store.name} run with {partitions}: stop them all to"
            " change it"
        )
    return replace(plan, secret=meta[SECRET], slots=known[0])


def _move(
    store: Store,
    plan: IngestPlan,
    addresses: Sequence[Address],
    say: Say,
    clock: Callable[[], float],
    stop: threading.Event,
    taken: Collection[int],
) -> IngestPlan:
    meta = store.meta()
    plan = replace(plan, secret=meta.get(SECRET) or secrets.token_hex(_SECRET_BYTES))
    # The slots of every number of workers whose sessions the broker may hold, this one last: a take-over may be
    # interrupted.
    known: list[tuple[int, ...]] = [tuple(slots) for slots in json.loads(meta.get(_SESSIONS, "[]"))]
    strange = [slots for slots in known if not set(taken).isdisjoint(slots)]
    if strange:
        say("alarm: another campaign has sessions that were this one's: what waited there was refused, it takes others")
        known = [slots for slots in known if slots not in strange]
    old = [slots for slots in known if len(slots) != plan.workers]
    mine = next((slots for slots in known if len(slots) == plan.workers), None)
    plan = replace(plan, slots=mine or _free(plan.workers, {*taken, *chain(*known)}))
    store.set_meta({SECRET: plan.secret, _SESSIONS: json.dumps([*old, plan.slots])})
    if old:
        say(f"{plan.workers} workers take over from {', '.join(str(len(slots)) for slots in old)}")
        _dispossess(store, plan)
        for worker in range(plan.workers):
            _begin_session(replace(plan, worker=worker), addresses, say, stop)
        for slots in old:
            for worker in range(len(slots)):
                before = replace(plan, worker=worker, workers=len(slots), slots=slots)
                _empty_session(store, before, addresses, say, clock, stop)
    if stop.is_set():
        return plan
    store.set_meta({_SESSIONS: json.dumps([plan.slots])})
    # A worker whose hold on the store is lost, as when the database restarted, commits nothing in between.
    with store.transaction():
        _dispossess(store, plan)
        _consolidate(store)
    return plan


def _dispossess(store: Store, plan: IngestPlan) -> None:
    """Whoever held a partition, or the coordinator's part, is refused from now on."""
    if plan.lease_seconds and store.leases is not None:
        partitions = [replace(plan, worker=worker).name for worker in range(plan.workers)]
        store.leases.reset([COORDINATOR, *partitions])


def take_over_direct(store: Store, plan: IngestPlan, say: Say) -> IngestPlan:
    """The plan of the lone worker of a direct endpoint; nothing else uses the store meanwhile."""
    with store.exclusive(LOCK_SECONDS):
        if slots_of(store):
            say(
                "warning: reports may wait at the broker that this campaign used before: nobody takes them from there"
                " while devices connect to this server"
            )
        _consolidate(store)
    return replace(plan, slots=(0,))


def _consolidate(store: Store) -> None:
    """One snapshot in the place of all deduplication segments."""
    seen = Seen()
    seen.load(store.seen())
    if len(seen):
        store.compact_seen("", seen.snapshot(), everyone=True)
    chains = Chains()
    chains.load(store.chains())
    if len(chains):
        store.compact_chains("", chains.records(), everyone=True)
    sequences = Sequences()
    sequences.load(store.sequences())
    if len(sequences):
        store.compact_sequences("", sequences.snapshot(), everyone=True)


def slots_of(store: Store) -> set[int]:
    """The broker users' slots that a campaign's sessions hold."""
    return set(chain(*json.loads(store.meta().get(_SESSIONS, "[]"))))


def _free(workers: int, taken: set[int]) -> tuple[int, ...]:
    free = [slot for slot in range(WORKER_USERS) if slot not in taken][:workers]
    if len(free) < workers:
        raise Invalid(f"{workers} workers need as many broker users, but {len(taken)} of {WORKER_USERS} are in use")
    return tuple(free)


def _begin_session(plan: IngestPlan, addresses: Sequence[Address], say: Say, stop: threading.Event) -> None:
    intake = open_intake(addresses, plan, say)
    while not intake.ready and not stop.is_set():
        # What is read meanwhile is not acknowledged: it comes again.
        intake.take(0.1)
    intake.close()


def _empty_session(
    store: Store,
    plan: IngestPlan,
    addresses: Sequence[Address],
    say: Say,
    clock: Callable[[], float],
    stop: threading.Event,
) -> None:
    draining = replace(plan, draining=True)
    intake = open_intake(addresses, draining, say)
    ingest = Ingest(draining, store, intake, say=say, clock=clock)
    last = time.monotonic()
    while time.monotonic() < last + DRAINED_SECONDS and not stop.is_set():
        if ingest.step() or not intake.ready:
            last = time.monotonic()
    intake.close()
    if not stop.is_set():
        forget_session(broker_of(addresses, plan), plan.client_id)
