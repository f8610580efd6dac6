"""Ingest worker: takes deliveries in batches, commits each batch in one transaction, then acknowledges it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from undertone_aggregator.base.background import Ready
from undertone_aggregator.base.interpreter import INGEST_THREADS, ThreadLimit, collect_rarely
from undertone_aggregator.base.timing import COMMITS
from undertone_aggregator.counts.device_states import DeviceStates
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.counts.seen import RECORD_BYTES
from undertone_aggregator.counts.sequences import MissingReports
from undertone_aggregator.ingest.admission import Admission, worker_shards
from undertone_aggregator.ingest.cells import Cells
from undertone_aggregator.ingest.fast_path import FastPath
from undertone_aggregator.ingest.intake import Delivery, Intake
from undertone_aggregator.ingest.landing import Landing, rows_of
from undertone_aggregator.settings.landing_plan import SERVER, LandingPlan
from undertone_aggregator.store.inventory import refused_keys
from undertone_aggregator.store.store import GROUPED, Batch, Store, StoreError
from undertone_shared.topics import SHARDS

IDLE_SECONDS = 0.1
RETRY_SECONDS = 1.0
# A snapshot replaces the records of counted reports once there are more of them than devices, and more than this
# number. Until then, the store holds a digest and the slot of each of these reports.
COMPACT_RECORDS = 20
# Largest number of devices that one line of the log names.
_MOST_NAMES = 5

Say = Callable[[str], None]
Failpoint = Callable[[str], None]


@dataclass(frozen=True)
class Share:
    """A worker's part of the shards.

    ``worker``: its number among all ``workers``, or its partition's number among all partitions.
    """

    worker: int = 0
    workers: int = 1

    @property
    def name(self) -> str:
        """The worker's key in the store."""
        return f"{self.worker}of{self.workers}"

    @property
    def shards(self) -> range:
        """The shards whose reports the worker counts."""
        return worker_shards(self.worker, self.workers)


@dataclass(frozen=True)
class Sessions:
    """The sessions of a campaign's workers at the broker.

    ``slots``: the number of each worker's user at the broker (not a time slot), see
    `undertone_aggregator.mqtt.link.worker_user`. Empty: each worker's own number. ``secret``: random digits in the
    names of the sessions.
    """

    slots: tuple[int, ...] = ()
    secret: str = ""


@dataclass(frozen=True)
class IngestPlan:
    """A worker's share of the reports and its settings for counting. The plan can be sent to another process."""

    # Prefix of all topics.
    prefix: str
    campaign: str
    slot_seconds: int
    # A function: kind of a campaign's rule -> the object that adds reports to a batch. Another process can import it.
    cells: Callable[[str], Cells]
    share: Share = Share()
    sessions: Sessions = Sessions()
    # A batch ends at this number of deliveries, or this many seconds after its first delivery.
    batch: int = 8000
    batch_seconds: float = 0.05
    # True if the store gets an audit row for each distinct report.
    audit: bool = False
    # Device -> group; None: every device is in the group `EVERYBODY`.
    groups: Mapping[str, str] | None = None
    # If workers on several machines share the partitions (`undertone_aggregator.ingest.shared_workers`), a worker that
    # is silent for this number of seconds loses its partitions to others. 0: the workers belong to one server.
    lease_seconds: float = 0
    # How deliveries are written to files, and whether this worker also counts them; None: no files are written.
    landing: LandingPlan | None = None

    def of_worker(self, worker: int) -> "IngestPlan":
        """Return the same plan for another worker."""
        return replace(self, share=replace(self.share, worker=worker))

    @property
    def slot(self) -> int:
        """Number of the broker user that owns the worker's session."""
        return self.sessions.slots[self.share.worker] if self.sessions.slots else self.share.worker

    @property
    def client_id(self) -> str:
        """The client id of the worker's persistent session at the broker.

        If the broker does not replace client ids by user names, the client id must be secret. A device that knew it
        could take over the session, and with it the reports that are queued.
        """
        return f"undertone-{self.sessions.secret or self.campaign}-{self.slot}"


def no_failpoint(_: str) -> None:
    """Do nothing. This is the failpoint in production."""


class Ingest:
    """One worker: an intake, the deduplication state of its shards, a connection to the store.

    ``failpoint(place)`` is called at the places after_landing, before_commit, after_commit, during_acknowledgement and
    after_acknowledgement; a test may end the process there. ``clock`` gives Unix seconds. ``check_lease`` is called
    between batches, and raises when another worker has these shards. ``threads`` limits how many workers of this
    process judge, store or acknowledge a batch at the same time. ``all_shards``: use the deduplication state of all
    shards, to count what waits in a session from before the number of workers changed.
    """

    def __init__(
        self,
        plan: IngestPlan,
        store: Store,
        intake: Intake,
        *,
        say: Say = lambda _: None,
        clock: Callable[[], float] = time.time,
        failpoint: Failpoint = no_failpoint,
        check_lease: Callable[[], None] = lambda: None,
        threads: ThreadLimit = INGEST_THREADS,
        all_shards: bool = False,
    ) -> None:
        self._plan = plan
        self._all_shards = all_shards
        self._check_lease = check_lease
        self._threads = threads
        self._store = store
        self._say = say
        self._clock = clock
        self._failpoint = failpoint
        self._intake = intake
        self._landing = None if plan.landing is None else Landing(plan.landing, plan.share.name)
        self._counts = plan.landing is None or plan.landing.counts == SERVER
        # The version of the groups of devices that the admission uses.
        self._groups_edition: str | None = None
        self._admission = self._resume()
        # True if the admission has counted reports that the store does not hold, because a commit failed.
        self._stale = False
        self._records = 0
        self._stop = threading.Event()
        self._ready: Ready = lambda _: None
        self._was_ready = False

    def run(self, stop: threading.Event, ready: Ready) -> None:
        """Count deliveries until ``stop`` is set; then commit and acknowledge those that were read.

        ``ready`` is called with True once the broker queues reports for this worker's session and the store takes them.
        It is called with False when one of the two is no longer true.
        """
        self._stop, self._ready = stop, ready
        collect_rarely()
        try:
            while not stop.is_set():
                self.step()
                self._report_ready(self._intake.ready)
        finally:
            self._intake.close()
            self._gather(Landing.gather)

    def step(self) -> int:
        """Wait a moment for deliveries, commit and acknowledge them, and return their number."""
        # Check the lease before the intake can connect again, because a connection would take the session from its new
        # owner.
        self._check_lease()
        deliveries = self._intake.take(IDLE_SECONDS)
        self._gather(Landing.step)
        if not deliveries:
            return 0
        if not self.commit(deliveries):
            return 0
        self._failpoint("after_commit")
        half = len(deliveries) // 2
        with self._threads.limited(first=True):
            self._intake.acknowledge(deliveries[:half])
            self._failpoint("during_acknowledgement")
            self._intake.acknowledge(deliveries[half:])
        self._failpoint("after_acknowledgement")
        return len(deliveries)

    def commit(self, deliveries: Sequence[Delivery]) -> bool:
        """Judge and store deliveries. Return False if the store failed until it was time to stop."""
        landed = self._landing is None
        batch = Batch()
        # The same time is used for the files and for the counts, so that a report has the same outcome in both.
        now = int(self._clock())
        while True:
            try:
                if self._stale:
                    self._admission = self._resume()
                    self._stale = False
                with self._threads.limited():
                    self._refresh()
                    if not landed and self._landing is not None:
                        self._landing.land(rows_of(self._admission, deliveries, now))
                        landed = True
                        self._failpoint("after_landing")
                    if self._counts:
                        batch = self._count(deliveries, now)
                break
            except StoreError as wrong:
                # While the store fails, nothing is acknowledged, so the broker keeps the reports that cannot be stored.
                where = "the store" if self._landing is None else "the store or the landing folder"
                self._say(f"{where} cannot be written, trying again: {wrong}")
                self._stale = True
                self._report_ready(False)
                if self._stop.wait(RETRY_SECONDS):
                    return False
        if batch.conflicting:
            names = ", ".join(sorted(batch.conflicting)[:_MOST_NAMES])
            if len(batch.conflicting) > _MOST_NAMES:
                names += f" and {len(batch.conflicting) - _MOST_NAMES} more"
            # This is no alarm, because the public page shows alarms, and the names of devices are not public. `Watch`
            # raises the alarm ``conflict``, which has no names.
            self._say(f"devices sent a second, different report for a slot that was already counted: {names}")
        return True

    def _report_ready(self, ready: bool) -> None:
        if ready != self._was_ready:
            self._was_ready = ready
            self._ready(ready)

    def _count(self, deliveries: Sequence[Delivery], now: int) -> Batch:
        batch = Batch()
        FastPath(self._admission, self._say).judge(deliveries, now, batch)
        self._failpoint("before_commit")
        records = self._records + len(batch.seen) // RECORD_BYTES
        compacts = records > max(COMPACT_RECORDS, len(self._admission.seen))
        snapshots = dict(self._admission.states.snapshots()) if compacts else None
        with COMMITS.timed(self._plan.campaign):
            self._store.commit(self._plan.share.name, batch, snapshots)
        self._records = 0 if compacts else records
        return batch

    def _gather(self, how: Callable[[Landing], None]) -> None:
        if self._landing is not None:
            try:
                how(self._landing)
            except StoreError as wrong:
                # The small files are already on the disk, so nothing is lost. Merging them is tried again later.
                self._say(f"the small files of landed reports cannot be merged; nothing is lost, trying again: {wrong}")

    def _refresh(self) -> None:
        """Read new epochs, revocations and groups from the store."""
        # An epoch is in the store before it is broadcast, and therefore before any of its reports.
        if self._store.epoch_count() != len(self._admission.timeline):
            self._admission.timeline = Timeline(self._store.epochs())
        # Counting the revoked devices is cheap compared with a commit. So all of them are read only when their number
        # has changed.
        if self._store.revoked_count() != len(self._admission.revoked):
            self._admission.revoke(refused_keys(self._store.devices().values()))
        if self._plan.groups is not None:
            edition = self._store.meta(GROUPED).get(GROUPED)
            if edition != self._groups_edition:
                self._groups_edition = edition
                self._admission.regroup(self._store.groups())

    def _resume(self) -> Admission:
        """Return the admission in the state that the store holds."""
        plan = self._plan
        self._groups_edition = None
        states = DeviceStates()
        states.load(self._store.segments, range(SHARDS) if self._all_shards else plan.share.shards)
        return Admission(
            plan.prefix,
            plan.campaign,
            plan.slot_seconds,
            states.seen,
            cells=plan.cells,
            chains=states.chains,
            sequences=states.sequences,
            losses=MissingReports(self._store.losses()),
            groups=plan.groups,
            audit=plan.audit,
        )
