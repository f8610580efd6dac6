"""Ingest: handles deliveries in batches; each batch is one transaction, acknowledged to the broker after its commit."""

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
# Least number of records between two snapshots of the deduplication state.
COMPACT_RECORDS = 100_000
# Largest number of devices that an alarm names.
_MOST_NAMES = 5

Say = Callable[[str], None]
Failpoint = Callable[[str], None]


@dataclass(frozen=True)
class IngestPlan:
    """Settings of one worker; they can be sent to another process.

    ``cells``: returns the cells for a rule's kind; a function that another process can import. ``slots``: the broker
    users of all workers, by worker, see `undertone_aggregator.mqtt.link.worker_user`. ``lease_seconds``: 0 for this
    server's own workers. Otherwise ``workers`` is the number of partitions that workers on any machine share
    (`undertone_aggregator.ingest.shared_workers`), and a worker that is silent for this time loses its partitions.
    ``secret``: random digits in the sessions' names. ``draining``: take what is queued for the session of every shard,
    and then unsubscribe. ``landing``: where deliveries are saved as files, and whether they are counted here.
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
        """The number of the broker's worker user to which its session belongs."""
        return self.slots[self.worker] if self.slots else self.worker

    @property
    def client_id(self) -> str:
        """The persistent session's client id at the broker.

        It is secret unless the broker replaces it by the user's name.

        A device that knew it could take over the session, and the reports that are queued in it.
        """
        return f"undertone-{self.secret or self.campaign}-{self.slot}"


def nowhere(_: str) -> None:
    """The failpoint of production, which does nothing."""


class Ingest:
    """One worker: an intake, its shards' deduplication state, a connection to the store.

    ``failpoint(place)`` is called at after_landing, before_commit, after_commit, during_acknowledgement and
    after_acknowledgement: a test may end the process there. ``clock`` gives Unix seconds. ``still_ours`` is called
    between batches and raises if the shards belong to another worker. ``turns``: the worker takes a turn to judge and
    store a batch.
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
        # The edition of the groups that the admission uses.
        self._grouped: str | None = None
        self._admission = self._resume()
        # True if the admission has counted reports that are not in the store.
        self._stale = False
        self._records = 0
        self._stop = threading.Event()
        self._ready: Ready = lambda _: None
        self._told = False

    def run(self, stop: threading.Event, ready: Ready) -> None:
        """Take in reports until ``stop`` is set; everything read by then is committed and acknowledged.

        ``ready`` is called with True when the broker stores reports for this worker's session and the store can be
        written, and with False when one of these is no longer true.
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
        """Wait briefly for deliveries, then commit and acknowledge them; return their number."""
        # This is checked before the intake reconnects, which would take the session from its new owner.
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
        """Judge and store the deliveries; return False if the store failed until ``stop`` was set."""
        landed = self._landing is None
        batch = Batch()
        # Landing and counting judge a report by the same second.
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
                # Nothing is acknowledged, so the broker keeps the reports that cannot be stored.
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
            # Compaction only saves space: if it fails, the next batch tries again.
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
                # The waiting files are durable, and are gathered later.
                self._say(f"landed reports cannot be gathered, trying again: {wrong}")

    def _refresh(self) -> None:
        """Load epochs, revocations and groups that were added to the store."""
        # A new epoch is in the store before it is broadcast, and so before any report under it.
        if self._store.epoch_count() != len(self._admission.timeline):
            self._admission.timeline = Timeline(self._store.epochs())
        # Counting the revoked devices is cheap compared with a commit.
        if self._store.revoked_count() != len(self._admission.revoked):
            self._admission.revoke(refused_keys(self._store.devices().values()))
        if self._plan.groups is not None:
            edition = self._store.meta(GROUPED).get(GROUPED)
            if edition != self._grouped:
                self._grouped = edition
                self._admission.regroup(self._store.groups())

    def _resume(self) -> Admission:
        """Return the admission with the state from the store."""
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
