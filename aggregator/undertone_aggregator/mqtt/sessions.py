"""The workers' sessions at a broker: their owners, and their move when the number of workers changes."""

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain

from undertone_aggregator.base.plural import many
from undertone_aggregator.counts.device_states import DeviceStates
from undertone_aggregator.ingest.admission import topic_filters
from undertone_aggregator.ingest.ingest import Ingest, IngestPlan, Say, Sessions, Share
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.ingest.shared_plan import SECRET
from undertone_aggregator.mqtt.inbox import Inbox
from undertone_aggregator.mqtt.link import Address, forget_session
from undertone_aggregator.store.leases import COORDINATOR
from undertone_aggregator.store.store import LOCK_SECONDS, CampaignEntries, Store, WorkerStore
from undertone_shared.errors import Invalid

DRAINED_SECONDS = 1.0
# The name of the entry in the store that lists the slots (numbers of broker users) of the campaign's sessions.
_SESSIONS = "broker_sessions"
# Length in bytes of the secret in the sessions' client ids.
_SECRET_BYTES = 16
# Number of broker users for ingest workers, for all campaigns together.
WORKER_USERS = 64


def broker_of(addresses: Sequence[Address], plan: IngestPlan) -> Address:
    """Return the address of the broker that has a worker's shards, with the worker's user.

    Of n brokers, the broker with the number s mod n has shard s.
    """
    return addresses[plan.share.worker % len(addresses)].of_worker(plan.slot)


def open_intake(addresses: Sequence[Address], plan: IngestPlan, say: Say, *, draining: bool = False) -> Intake:
    """Return the intake of one worker. The number of workers must be a multiple of the number of brokers.

    With ``draining``, the intake returns the reports that still wait in the worker's session, and ends the session's
    subscriptions.
    """
    filters = topic_filters(plan.prefix, plan.campaign, plan.share.worker, plan.share.workers)
    return Inbox(
        broker_of(addresses, plan),
        plan.client_id,
        filters,
        plan.batch,
        say,
        batch_seconds=plan.batch_seconds,
        unsubscribe=draining,
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
    """Move the sessions at the broker to the plan's number of workers; return the plan with its sessions.

    The store is locked exclusively meanwhile. If the number of workers has changed, the new sessions begin first, then
    the old ones are emptied and deleted. A report that reached both is a duplicate. At the end, one snapshot replaces
    all segments of each state of devices. If ``stop`` is set, the function returns before that. ``taken``: slots
    (numbers of broker users) that other campaigns of this server hold.

    If the store is locked by workers that share partitions, nothing is moved, and the plan takes their sessions. Raises
    Invalid if too few slots are free, if such workers run with another number of partitions, or if another server has
    locked the store.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(store.exclusive(LOCK_SECONDS))
        except Invalid:
            if not plan.lease_seconds:
                raise
            return _join(store, plan)
        return _move(store, plan, addresses, say, clock, stop, taken)


def _join(store: CampaignEntries, plan: IngestPlan) -> IngestPlan:
    meta = store.meta()
    sessions = [tuple(slots) for slots in json.loads(meta.get(_SESSIONS, "[]"))]
    if len(sessions) != 1 or len(sessions[0]) != plan.share.workers:
        partitions = " and ".join(str(len(slots)) for slots in sessions) or "no"
        raise Invalid(
            f"server.partitions is {plan.share.workers}, but the workers of {store.name} that run now have"
            f" {partitions} partitions: stop all workers to change the number"
        )
    return replace(plan, sessions=Sessions(sessions[0], meta[SECRET]))


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
    secret, workers = meta.get(SECRET) or secrets.token_hex(_SECRET_BYTES), plan.share.workers
    # For each number of workers whose sessions the broker may still hold: the slots of their broker users. There are
    # several if a take-over was interrupted.
    sessions: list[tuple[int, ...]] = [tuple(slots) for slots in json.loads(meta.get(_SESSIONS, "[]"))]
    strange = [slots for slots in sessions if not set(taken).isdisjoint(slots)]
    if strange:
        say(
            "alarm: another campaign has taken broker sessions of this campaign, and has refused the reports in them;"
            " this campaign now takes other sessions"
        )
        sessions = [slots for slots in sessions if slots not in strange]
    old = [slots for slots in sessions if len(slots) != workers]
    matching = next((slots for slots in sessions if len(slots) == workers), None)
    plan = replace(plan, sessions=Sessions(matching or _free(workers, {*taken, *chain(*sessions)}), secret))
    store.set_meta({SECRET: secret, _SESSIONS: json.dumps([*old, plan.sessions.slots])})
    if old:
        earlier = " and of ".join(many(len(slots), "worker") for slots in old)
        handed = f"the broker's sessions of {earlier} are handed to {many(workers, 'worker')}"
        say(f"the number of workers has changed: {handed}")
        _dispossess(store, plan)
        for worker in range(workers):
            _begin_session(plan.of_worker(worker), addresses, say, stop)
        for slots in old:
            for worker in range(len(slots)):
                before = replace(plan, share=Share(worker, len(slots)), sessions=Sessions(slots, secret))
                _empty_session(store, before, addresses, say, clock, stop)
    if stop.is_set():
        return plan
    store.set_meta({_SESSIONS: json.dumps([plan.sessions.slots])})
    # Both steps are in one transaction. So a worker that lost its lock on the store, for example because the database
    # restarted, cannot commit between them.
    with store.transaction():
        _dispossess(store, plan)
        _consolidate(store)
    return plan


def _dispossess(store: Store, plan: IngestPlan) -> None:
    """Revoke the leases, if the plan uses any, of all partitions and of the coordinator: their holders are refused."""
    if plan.lease_seconds and store.leases is not None:
        partitions = [Share(worker, plan.share.workers).name for worker in range(plan.share.workers)]
        store.leases.reset([COORDINATOR, *partitions])


def take_over_direct(store: Store, plan: IngestPlan, say: Say) -> IngestPlan:
    """Replace the segments of devices' states by snapshots; return the plan of a direct endpoint's only worker.

    The store is locked exclusively meanwhile. Raises Invalid if another server has locked it.
    """
    with store.exclusive(LOCK_SECONDS):
        if slots_of(store):
            say(
                "warning: reports may wait at the broker that this campaign used before; this server does not fetch"
                " them, because devices connect to this server itself"
            )
        _consolidate(store)
    return replace(plan, sessions=Sessions((0,)))


def _consolidate(store: WorkerStore) -> None:
    """Replace all segments of each state of devices by one snapshot."""
    states = DeviceStates()
    states.load(store.segments)
    for name, snapshot in states.snapshots():
        store.compact(name, snapshot)


def slots_of(store: CampaignEntries) -> set[int]:
    """Return the numbers of the broker's users that a campaign's sessions hold."""
    return set(chain(*json.loads(store.meta().get(_SESSIONS, "[]"))))


def _free(workers: int, taken: set[int]) -> tuple[int, ...]:
    free = [slot for slot in range(WORKER_USERS) if slot not in taken][:workers]
    if len(free) < workers:
        raise Invalid(
            f"the campaign needs {many(workers, 'broker user')}, one for each worker, but the server's campaigns use"
            f" {len(taken)} of all {WORKER_USERS}: set a smaller number of workers or partitions in [server]"
        )
    return tuple(free)


def _begin_session(plan: IngestPlan, addresses: Sequence[Address], say: Say, stop: threading.Event) -> None:
    intake = open_intake(addresses, plan, say)
    while not intake.ready and not stop.is_set():
        # Deliveries read here are not acknowledged, so the broker sends them again.
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
    intake = open_intake(addresses, plan, say, draining=True)
    ingest = Ingest(plan, store, intake, say=say, clock=clock, all_shards=True)
    last = time.monotonic()
    while time.monotonic() < last + DRAINED_SECONDS and not stop.is_set():
        if ingest.step() or not intake.ready:
            last = time.monotonic()
    intake.close()
    if not stop.is_set():
        forget_session(broker_of(addresses, plan), plan.client_id)
