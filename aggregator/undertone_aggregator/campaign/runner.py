"""The runner of one campaign: its store, its sessions at the broker, its workers and its coordinator."""

import contextlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undertone_aggregator.base.log import Journal
from undertone_aggregator.base.open_files import FILES, none_left, ran_out
from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import (
    PAUSED,
    RETIRED,
    RUNNING,
    STATE,
    bind_counting,
    open_campaign,
    refusals_of,
)
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.campaign.election import Candidate, Elected, Election, Held, Unopposed
from undertone_aggregator.campaign.preview import end_of
from undertone_aggregator.campaign.state import CHOOSING, OVER, STARTING, CampaignState
from undertone_aggregator.campaign.strays import Strays
from undertone_aggregator.campaign.watch import Look, Watch
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.ingest.ingest import Failpoint, IngestPlan, Share, no_failpoint
from undertone_aggregator.ingest.lag import Lag
from undertone_aggregator.ingest.shared_workers import WorkerContext
from undertone_aggregator.ingest.workers import ProcessWorker, Worker, thread_worker
from undertone_aggregator.mqtt.certificates import certificate_ends
from undertone_aggregator.mqtt.source import Outgoing, Source
from undertone_aggregator.settings.config import Config
from undertone_aggregator.settings.groups import keep_groups, read_groups
from undertone_aggregator.store.disk_space import is_full, retry_while_full
from undertone_aggregator.store.kept import note_kept
from undertone_aggregator.store.leases import Fenced, Lease
from undertone_aggregator.store.store import LOCK_SECONDS, CampaignEntries, Store, StoreError, open_store
from undertone_shared.campaign import header
from undertone_shared.errors import Invalid
from undertone_shared.stream import StreamRule
from undertone_shared.topics import config_topic

if TYPE_CHECKING:
    from undertone_aggregator.campaign.coordinator import Coordinator

_TICK_SECONDS = 0.1
# Seconds between two checks whether an operator has paused the campaign.
_STATE_SECONDS = 1.0
_WATCH_SECONDS = 30.0
# Name of the store's entry that is written only to find out whether the store can be written.
_TRIED = "tried"
# Name of the store's entry which says that the campaign was once broadcast with a signature.
_SIGNED = "signed"


@dataclass
class Slots:
    """Which of the broker users for workers each campaign uses, by number; no two campaigns may use the same.

    Such a number is called a slot here; it has nothing to do with slots of time.

    ``held``: campaign -> its slots. ``taking``: lock for choosing slots, so that one campaign at a time does so.
    """

    held: dict[str, set[int]]
    taking: threading.Lock

    def others(self, name: str) -> set[int]:
        """Return the slots of the other campaigns."""
        return set().union(*(slots for campaign, slots in self.held.items() if campaign != name))


@dataclass
class RunOptions:
    """Options of a campaign's run besides its configuration. ``failpoint``: see `Ingest`.

    ``apply``: apply changes of the plan instead of only showing them. ``take_over``: continue a campaign that is
    already broadcast although the store does not know it. ``slots``: shared by all campaigns of this server.
    """

    clock: Callable[[], float] = time.time
    failpoint: Failpoint = no_failpoint
    apply: bool = False
    take_over: bool = False
    slots: Slots | None = None


class Running:
    """A running campaign. Create it, then call ``run`` in the same thread.

    Raises Invalid for a store of another campaign, a changed plan that was not applied, a campaign of another server,
    bad files, or a broker that does not start.
    """

    def __init__(self, config: Config, source: Source, journal: Journal, options: RunOptions) -> None:
        self.config = config
        self.journal = journal
        self.coordinator: Coordinator | None = None
        self._begun = False
        # The campaign's state, but with the operator's wish as its field ``state``; the property `state` completes it.
        # Other threads read this object, so it is replaced as a whole.
        plan = config.campaign
        ahead = plan.start if plan.start is not None and plan.start > options.clock() else None
        self._known = CampaignState(RUNNING, quiet=(plan.stride - 1) * plan.slot_seconds, due=ahead)
        # The number of epochs in the store, and the last of them, when the store was last read.
        self._epochs = 0
        self._last: Epoch | None = None
        # Time of the last pass of the campaign's loop, by the monotonic clock; None outside the loop.
        self._advanced: float | None = None
        self._lease: Lease | None = None
        self._strays = Strays(plan)
        # Names of the problems that the last check of the counters found, see `watch.Watch.lasting`.
        self.lasting: frozenset[str] = frozenset()
        self._source = source
        self._options = options
        self._lag = Lag(config.landing.plan(config.folder))
        self._workers: list[Worker] = []
        self._groups_file = None if config.campaign.groups is None else config.path(config.campaign.groups)
        self._groups_read: tuple[int, int] | None = None
        self._groups: dict[str, str] | None = None
        self._groups_kept: dict[str, str] | None = None
        self._read_groups()

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.config.campaign.name

    @property
    def ready(self) -> bool:
        """True if the campaign is broadcast, and the devices' reports are stored."""
        return self._begun and all(worker.ready for worker in self._workers)

    @property
    def state(self) -> CampaignState:
        """The campaign's state; any thread may read it."""
        coordinator, known = self.coordinator, self._known
        if not self._begun:
            return CampaignState(STARTING, known.reason, full=known.full)
        state = known.state
        if state == RUNNING and known.end is not None and self._options.clock() > known.end:
            state = OVER
        elif state == RUNNING and coordinator is not None and coordinator.issuing.choosing:
            state = CHOOSING
        return replace(known, state=state, ready=self.ready)

    def _know(self, **fields: Any) -> None:
        """Replace fields of this campaign's state."""
        self._known = replace(self._known, **fields)

    @property
    def idle(self) -> float:
        """The seconds since the campaign's loop or choice of θ made progress; 0 while it starts or stops."""
        coordinator, advanced = self.coordinator, self._advanced
        if advanced is None:
            return 0.0
        if coordinator is not None:
            advanced = max(advanced, coordinator.issuing.advanced)
        return time.monotonic() - advanced

    def run(self, outlet: Outgoing, stop: threading.Event) -> None:
        """Run until ``stop`` is set; then commit and acknowledge everything that was read.

        If the disk is full at the start, the campaign waits for space.
        """

        def wait_for_room(trouble: str) -> None:
            self._know(reason=trouble.removeprefix("alarm: "), full=True)
            self.journal.say_once("room", trouble)

        retry_while_full(lambda: self._run(outlet, stop), wait_for_room, stop)

    def _run(self, outlet: Outgoing, stop: threading.Event) -> None:
        config, clock = self.config, self._options.clock
        self._clear()
        with open_store(config.store_url, campaign=self.name) as store, self._server_lock(store):
            seed = open_campaign(
                store,
                config.campaign,
                config.stream,
                apply=self._options.apply,
                refusing=lambda: str(refusals_of(config, Timeline(store.epochs()), int(clock()))),
            )
            bind_counting(store, config.landing.counts)
            note_kept(store, config.store.audit, config.landing.kept_days)
            if config.landing.folder is not None:
                self.journal.say("warning", config.landing.warning())
            if not isinstance(outlet, Held):
                self.check_broadcast(store, outlet, stop)
            self.note_groups(store)
            plan = self._take_over(store, clock, stop)
            # Close the election in any case: otherwise the lease of a server that has ended would keep other servers
            # from being elected.
            with contextlib.closing(self._election(store)) as election, self._released(outlet):
                try:
                    self._start(plan, store, stop)
                    # Broadcast the campaign only once the brokers queue reports for this server's workers.
                    while not stop.wait(_TICK_SECONDS) and not all(worker.ready for worker in self._workers):
                        self._check()
                    self._begun = True
                    self._tick(election, seed, store, outlet, stop)
                finally:
                    self._advanced = None
                    for worker in self._workers:
                        worker.stop()
                    self._check()
                    with contextlib.suppress(StoreError, Fenced):
                        if self.coordinator is not None:
                            self.coordinator.status(int(clock()))
                    store.fence(None)

    @contextlib.contextmanager
    def _released(self, outlet: Outgoing) -> Iterator[None]:
        """Release the outlet at the end of the block, if servers that share the store take turns with it."""
        try:
            yield
        finally:
            if isinstance(outlet, Held):
                outlet.release(self.name)

    def _server_lock(self, store: Store) -> contextlib.AbstractContextManager[None]:
        """Lock the store as its only server.

        The locks of workers alone would not be enough: they are taken later and do not exclude another server.
        """
        return contextlib.nullcontext() if self.config.shares else store.serving(LOCK_SECONDS)

    def _clear(self) -> None:
        self._workers.clear()
        self._groups_kept = None
        self._begun, self._lease, self.coordinator = False, None, None
        self._advanced, self.lasting = None, frozenset()
        self._know(reason="", full=False, since=None)

    def _election(self, store: Store) -> Election:
        """Return the election: by the database if several servers share the campaign, else without a rival."""
        config = self.config
        if not config.shares:
            return Unopposed()
        return Candidate(store.url, self.name, config.server.lease_seconds, self._say)

    def _elected_coordinator(
        self, election: Election, seed: bytes, store: Store, outlet: Outgoing, stop: threading.Event
    ) -> "Coordinator | None":
        """Return the coordinator while this server is elected, else None.

        Each term of office has a new coordinator, because all state is in the store.
        """
        lease = election.lease()
        if lease is None and isinstance(outlet, Held):
            outlet.release(self.name)
        if lease != self._lease:
            self._lease, self.coordinator = lease, None
            store.fence(None)
            if lease is not None:
                if isinstance(outlet, Held):
                    outlet.hold(self.name)
                    self.check_broadcast(store, outlet, stop)
                # Import the numerical libraries only here, because that takes a while and the workers already take in
                # reports.
                from undertone_aggregator.campaign.coordinator import Coordinator

                leases, clock = store.leases, self._options.clock
                if leases is not None and self.config.shares:
                    store.fence(lambda: leases.renew(lease))
                out = Elected(outlet, election)
                sign = self._sign(store)
                self.coordinator = Coordinator(self.config, seed, store, out, self.journal, clock, sign, self._strays)
        return self.coordinator

    def _sign(self, store: CampaignEntries) -> Callable[[bytes], bytes] | None:
        """Return the function that signs campaigns.

        Return None if there is no key. If there was a key before, its absence raises an alarm.
        """
        path = self.config.secret(self.config.server.signing_key)
        self._know(signed=path.exists())
        if not self._known.signed:
            warning = f"there is no {path}: campaigns are not signed"
            if store.meta().get(_SIGNED):
                refused = "devices that verify signatures refuse them. Put the key back"
                self.journal.alarm("unsigned", f"{warning} any more, and {refused}")
            else:
                self.journal.say("warning", f"warning: {warning}")
            return None
        from undertone_aggregator.mqtt.signing import read_key

        sign = read_key(path).sign
        store.set_meta({_SIGNED: "1"})
        return sign

    def check_broadcast(self, store: CampaignEntries, outlet: Outgoing, stop: threading.Event) -> None:
        """Check the campaign that is broadcast under this name.

        Raises Invalid if the store does not know it, unless the options say to take it over.
        """
        topic = config_topic(self.config.broker.prefix, self.name)
        message = outlet.retained(topic, stop)
        # Forget this message: from now on, one on the campaign's topic that this server has not sent raises an alarm.
        outlet.heard.pop(topic, None)
        if not message:
            return
        try:
            issued_at, fingerprint = header(message)
        except Invalid as wrong:
            self.journal.say(
                "warning", f"warning: {topic} held a message that is no campaign ({wrong}); the server replaces it"
            )
            return
        if fingerprint in {epoch.campaign.fingerprint for epoch in store.epochs()}:
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(issued_at))
        conflict = (
            f"{topic} holds a campaign of {when} UTC that the store {store.name} does not know, so perhaps another"
            " server issued it"
        )
        if not self._options.take_over:
            raise Invalid(
                f"{conflict} and would lose its devices. Check the path in [store]; --take-over replaces that campaign"
            )
        self.journal.alarm("take_over", f"{conflict}: this server replaces that campaign")

    def _take_over(self, store: Store, clock: Callable[[], float], stop: threading.Event) -> IngestPlan:
        slots = self._options.slots
        if slots is None:
            return self._source.take_over(store, self._plan(), self._say, clock, stop)
        with slots.taking:
            taken = slots.others(self.name)
            plan = self._source.take_over(store, self._plan(), self._say, clock, stop, taken)
            slots.held[self.name] = set(plan.sessions.slots)
        return plan

    def _plan(self) -> IngestPlan:
        config = self.config
        return IngestPlan(
            config.broker.prefix,
            self.name,
            config.campaign.slot_seconds,
            cells_of,
            Share(workers=config.sessions),
            lease_seconds=config.server.lease_seconds if config.shares else 0,
            batch=config.server.batch,
            batch_seconds=config.server.batch_milliseconds / 1000,
            audit=config.store.audit,
            groups=self._groups,
            landing=config.landing.plan(config.folder),
        )

    def _start(self, plan: IngestPlan, store: Store, stop: threading.Event) -> None:
        options, workers = self._options, self.config.server.workers
        context = WorkerContext(
            store.url, cells_of, self._source.open_intake, self._say, options.clock, options.failpoint
        )
        start: Callable[[IngestPlan, WorkerContext], Worker] = thread_worker if workers == 1 else ProcessWorker
        # Where workers share partitions with other machines, a worker takes free partitions, whatever its number.
        self._workers += [start(plan.of_worker(number), context) for number in range(workers)]

    def _tick(self, election: Election, seed: bytes, store: Store, outlet: Outgoing, stop: threading.Event) -> None:
        asked = looked = -math.inf
        plan = self.config.campaign
        watch = Watch(plan.slot_seconds, plan.settle_slots)
        while not stop.wait(_TICK_SECONDS):
            self._advanced = time.monotonic()
            self._check()
            if self._known.since is None or self._known.reason or not self.ready:
                self._know(since=int(self._options.clock()))
            try:
                if time.monotonic() > asked + _STATE_SECONDS:
                    asked = time.monotonic()
                    self._note(store)
                    self._try_to_write(store)
                coordinator = self._elected_coordinator(election, seed, store, outlet, stop)
                if coordinator is None:
                    continue
                if time.monotonic() > looked + _WATCH_SECONDS:
                    looked = time.monotonic()
                    look = self._look(store)
                    for event, sentence in watch.look(look):
                        self.journal.alarm(event, sentence)
                    self.lasting = watch.lasting
                    for sentence in watch.over:
                        self.journal.say("over", f"this problem is over: {sentence}")
                    for event, sentence in watch.notices(look):
                        self.journal.say(event, sentence)
                if self._known.state == RETIRED:
                    coordinator.retire(int(self._options.clock()))
                elif self._known.state == PAUSED:
                    coordinator.pause(int(self._options.clock()))
                else:
                    coordinator.note_broker(outlet.dropped, outlet.heard)
                    coordinator.tick(int(self._options.clock()))
                if not self._known.full:
                    self._know(reason="")
            except Fenced:
                # Another server has been elected, which the election logs. A new term gets a new coordinator.
                self._lease, self.coordinator = None, None
            except StoreError as wrong:
                self._know(full=is_full(wrong), reason=f"the store cannot be written: {wrong}")
                self.journal.say_once("store", f"the store cannot be written, trying again: {wrong}")
                if none_left():
                    self.journal.say_once(FILES, ran_out())

    def _read_groups(self) -> None:
        """Read the groups of devices if their file has changed. Raises Invalid, OSError."""
        file = self._groups_file
        if file is None:
            return
        status = file.stat() if file.exists() else None
        read = None if status is None else (status.st_mtime_ns, status.st_size)
        if self._groups is None or read != self._groups_read:
            self._groups = read_groups(file)
            self._groups_read = read

    def note_groups(self, store: Store) -> None:
        """Apply a changed groups file by writing it to the store for the workers. Raises StoreError."""
        try:
            self._read_groups()
        except (Invalid, OSError) as wrong:
            sentence = f"alarm: the changed file of groups is not in use, the old groups stay: {wrong}"
            self.journal.say_once("groups", sentence)
        if self._groups is not None and self._groups is not self._groups_kept:
            if keep_groups(store, self._groups) and self._begun:
                self.journal.say(
                    "groups", f"the file of groups has changed: it now names {many(len(self._groups), 'device')}"
                )
            self._groups_kept = self._groups

    def _note(self, store: Store) -> None:
        """Read from the store what the campaign's state shows, such as the newest slot with a report."""
        self.note_groups(store)
        strays = self._strays.at(store, int(self._options.clock()))
        newest = store.newest_slot()
        ended = None if newest is None else (newest + 1) * self.config.campaign.slot_seconds
        self._know(state=store.meta().get(STATE, RUNNING), newest=ended, strays=strays)
        if self._epochs != store.epoch_count():
            epochs = store.epochs()
            self._epochs = len(epochs)
            self._know(due=epochs[0].campaign.epoch, end=end_of(self.config, epochs))
            self._last = epochs[-1]
        if self._last is not None:
            self._know(spent=spent_until(self._last, newest))

    def _try_to_write(self, store: Store) -> None:
        """If it is in doubt whether the store can be written, try it. Raises StoreError."""
        if self._known.full or not self.ready:
            store.set_meta({_TRIED: ""})
            self._know(full=False)

    def _look(self, store: Store) -> Look:
        free = shutil.disk_usage(self.config.disk).free
        now = self._options.clock()
        waiting = self._lag.backlog(store).age(now) if self._lag.counts_elsewhere else None
        certificates = certificate_ends(self.config)
        return Look(now, time.monotonic(), store.outcomes(), free, self.state, waiting, certificates)

    def _check(self) -> None:
        for worker in self._workers:
            worker.check()

    def _say(self, sentence: str) -> None:
        self.journal.say_once("ingest", sentence)


def spent_until(last: Epoch, newest: int | None) -> int | None:
    """Return the Unix second at which a stream's window ends, if devices have spent its budget; else None.

    ``newest``: the newest slot with a report. Devices are taken to have reported in every slot of the window so far, so
    the budget is spent after as many slots as it has reports.
    """
    campaign, rule = last.campaign, last.campaign.rule
    if not isinstance(rule, StreamRule) or newest is None or newest < campaign.first_slot:
        return None
    length = rule.renewal or campaign.last_slot + 1 - campaign.first_slot
    begins = newest - (newest - campaign.first_slot) % length
    ends = min(begins + length, campaign.last_slot + 1)
    used = (newest - begins) // campaign.schedule.stride + 1
    return ends * campaign.slot_seconds if used >= rule.reports and newest + 1 < ends else None
