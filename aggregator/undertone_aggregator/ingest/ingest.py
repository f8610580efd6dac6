"""Ingest: deliveries in batches, each batch one transaction, acknowledged to the broker only after its commit."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from undertone_aggregator.base.background import Ready
from undertone_aggregator.base.interpreter import TURNS, Turns, collect_rarely
from undertone_aggregator.base.timing import COMMITS
from undertone_aggregator.counts.chains import Chains
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.seen import RECORD_BYTES, Seen
from undertone_aggregator.counts.sequences import MissingReports, Sequences
from undertone_aggregator.ingest.admission import Admission, worker_shards
from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.fast_path import Lane
from undertone_aggregator.ingest.intake import Delivery, Intake
from undertone_aggregator.ingest.landing import Landing, rows_of
from undertone_aggregator.settings.landing_plan import SERVER, LandingPlan
from undertone_aggregator.store.inventory import refused_keys
from undertone_aggregator.store.store import GROUPED, Batch, Store, StoreError
from undertone_shared.topics import SHARDS

IDLE_SECONDS = 0.1
RETRY_SECONDS = 1.0
# Records between two snapshots of the deduplication state, at least.
COMPACT_RECORDS = 100_000
# Devices that one alarm names.
_MOST_NAMES = 5

Say = Callable[[str], None]
Failpoint = Callable[[str], None]


@dataclass(frozen=True)
class IngestPlan:
    """What one worker needs to know; it can be sent to another process.

    ``cells``: what a counted report of a rule's kind adds; a function that another process can import.
    ``slots``: the broker users of all workers, by worker, see `undertone_aggregator.mqtt.link.worker_user`.
    ``lease_seconds``: 0: this server's own workers. Else ``workers`` is the number of partitions that workers on any
    machine share out (`undertone_aggregator.ingest.shared_workers`), and one that is silent so long loses its own.
    ``secret``: random digits in the sessions' names.
    ``draining``: take what is queued for the session of every shard, and subscribe no more.
    ``landing``: where deliveries are kept as files, and whether they are counted here.
    """

    prefix: str
    campaign: str
    slot_seconds: int
    cells: Callable[[str], Cells]
    worker: int = 0
    workers: int = 1
    batch: int = 8000
    batch_seconds: float = 0.05
    audit: bool = False
    groups: Mapping[str, str] | None = None
    draining: bool = False
    slots: tuple[int, ...] = ()
    secret: str = ""
    lease_seconds: float = 0
    landing: LandingPlan | None = None

    @property
    def name(self) -> str:
        """The worker's key in the store, and the end of its session's name at the broker."""
        return f"{self.worker}of{self.workers}"

    @property
    def slot(self) -> int:
        """Which of the broker's worker users holds its session."""
        return self.slots[self.worker] if self.slots else self.worker

    @property
    def client_id(self) -> str:
        """The persistent session's name at the broker: secret, where the broker does not put the user's in its place.

        A device that knew it could take the session, and the reports that wait in it.
        """
        return f"undertone-{self.secret or self.campaign}-{self.slot}"


def nowhere(_: str) -> None:
    """The failpoint of production."""


class Ingest:
    """One worker: an intake, its shards' deduplication state, a connection to the store.

    ``failpoint(place)`` is called at after_landing, before_commit, after_commit, during_acknowledgement and
    after_acknowledgement: a test may end the process there. ``clock`` gives Unix seconds. ``still_ours`` is called
    between batches: it raises when the shards are another worker's. ``turns``: it takes one to
    judge and keep a batch.
    """

    def __init__(
        self,
        plan: IngestPlan,
        store: Store,
        intake: Intake,
        *,
        say: Say = lambda _: None,
        clock: Callable[[], float] = time.time,
        failpoint: Failpoint = nowhere,
        still_ours: Callable[[], None] = lambda: None,
        turns: Turns = TURNS,
    ) -> None:
        self._plan = plan
        self._still_ours = still_ours
        self._turns = turns
        self._store = store
        self._say = say
        self._clock = clock
        self._failpoint = failpoint
        self._intake = intake
        self._landing = None if plan.landing is None else Landing(plan.landing, plan.name)
        self._counts = plan.landing is None or plan.landing.counts == SERVER
        # Which edition of the groups the admission knows.
        self._grouped: str | None = None
        self._admission = self._resume()
        # Whether the admission counted what the store does not hold.
        self._stale = False
        self._records = 0
        self._stop = threading.Event()
        self._ready: Ready = lambda _: None
        self._told = False

    def run(self, stop: threading.Event, ready: Ready) -> None:
        """Take in reports until ``stop`` is set; what was read by then is committed and acknowledged.

        ``ready`` is called with True when the broker keeps reports for this worker's session and the store takes them,
        and with False when one of both is no longer so.
        """
        self._stop, self._ready = stop, ready
        collect_rarely()
        try:
            while not stop.is_set():
                self.step()
                self._tell(self._intake.ready)
        finally:
            self._intake.close()
            self._gather(Landing.gather)

    def step(self) -> int:
        """Wait a moment for deliveries, then commit and acknowledge them; how many there were."""
        # Before the intake connects again: the session would be taken from its new owner.
        self._still_ours()
        deliveries = self._intake.take(IDLE_SECONDS)
        self._gather(Landing.step)
        if not deliveries:
            return 0
        if not self.commit(deliveries):
            return 0
        self._failpoint("after_commit")
        half = len(deliveries) // 2
        self._intake.acknowledge(deliveries[:half])
        self._failpoint("during_acknowledgement")
        self._intake.acknowledge(deliveries[half:])
        self._failpoint("after_acknowledgement")
        return len(deliveries)

    def commit(self, deliveries: Sequence[Delivery]) -> bool:
        """Judge and store them; False when the store failed until it was time to stop."""
        landed = self._landing is None
        batch = Batch()
        # What is landed and what is counted judge a report by the same second.
        now = int(self._clock())
        while True:
            try:
                if self._stale:
                    self._admission = self._resume()
                    self._stale = False
                with self._turns.turn():
                    self._refresh()
                    if not landed and self._landing is not None:
                        self._landing.land(rows_of(self._admission, deliveries, now))
                        landed = True
                        self._failpoint("after_landing")
                    if self._counts:
                        batch = self._count(deliveries, now)
                break
            except StoreError as wrong:
                # Nothing is acknowledged, so the broker keeps what we cannot store.
                self._say(f"the store cannot be written, trying again: {wrong}")
                self._stale = True
                self._tell(False)
                if self._stop.wait(RETRY_SECONDS):
                    return False
        if batch.conflicting:
            names = ", ".join(sorted(batch.conflicting)[:_MOST_NAMES])
            self._say(f"alarm: other reports for intervals that were counted, from {names}")
        self._records += len(batch.seen) // RECORD_BYTES
        if self._records > max(COMPACT_RECORDS, len(self._admission.seen)):
            # It only saves room: if it fails, the next batch tries again.
            with contextlib.suppress(StoreError):
                self._compact()
        return True

    def _tell(self, ready: bool) -> None:
        if ready != self._told:
            self._told = ready
            self._ready(ready)

    def _count(self, deliveries: Sequence[Delivery], now: int) -> Batch:
        batch = Batch()
        Lane(self._admission, self._say).judge(deliveries, now, batch)
        self._failpoint("before_commit")
        with COMMITS.timed(self._plan.campaign):
            self._store.commit(self._plan.name, batch)
        return batch

    def _compact(self) -> None:
        admission = self._admission
        self._store.compact_seen(self._plan.name, admission.seen.snapshot())
        if len(admission.chains):
            self._store.compact_chains(self._plan.name, admission.chains.records())
        if len(admission.sequences):
            self._store.compact_sequences(self._plan.name, admission.sequences.snapshot())
        self._records = 0

    def _gather(self, how: Callable[[Landing], None]) -> None:
        if self._landing is not None:
            try:
                how(self._landing)
            except StoreError as wrong:
                # What waits is durable, and is gathered another time.
                self._say(f"landed reports cannot be gathered, trying again: {wrong}")

    def _refresh(self) -> None:
        """Take note of epochs, revocations and groups that the store has heard of since."""
        # A new epoch is in the store before it is broadcast, hence before any report that follows it.
        if self._store.epoch_count() != len(self._admission.timeline):
            self._admission.timeline = Timeline(self._store.epochs())
        # Revoked, then refused: a count costs nothing beside a commit.
        if self._store.revoked_count() != len(self._admission.revoked):
            self._admission.revoke(refused_keys(self._store.devices().values()))
        if self._plan.groups is not None:
            edition = self._store.meta(GROUPED).get(GROUPED)
            if edition != self._grouped:
                self._grouped = edition
                self._admission.regroup(self._store.groups())

    def _resume(self) -> Admission:
        """The admission as the store left it."""
        plan = self._plan
        self._grouped = None
        seen = Seen()
        shards = range(SHARDS) if plan.draining else worker_shards(plan.worker, plan.workers)
        seen.load(self._store.seen(), shards)
        chains = Chains()
        chains.load(self._store.chains(), shards)
        sequences = Sequences()
        sequences.load(self._store.sequences(), shards)
        return Admission(
            plan.prefix,
            plan.campaign,
            plan.slot_seconds,
            seen,
            cells=plan.cells,
            chains=chains,
            sequences=sequences,
            losses=MissingReports(self._store.losses()),
            groups=plan.groups,
            audit=plan.audit,
        )
