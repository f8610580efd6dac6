"""One campaign that runs: its store, its sessions at the broker, its workers and its coordinator."""

import contextlib
import math
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from undertone_aggregator.binding import PAUSED, RETIRED, RUNNING, STATE, bind_counting, open_campaign, refusals_of
from undertone_aggregator.collect.ingest import Failpoint, IngestPlan, nowhere
from undertone_aggregator.collect.leases import Fenced, Lease
from undertone_aggregator.collect.room import until_room
from undertone_aggregator.collect.store import LOCK_SECONDS, Store, StoreError, open_store
from undertone_aggregator.collect.workers import ProcessWorker, Worker, thread_worker
from undertone_aggregator.collection import cells_of
from undertone_aggregator.config import Config
from undertone_aggregator.election import Candidate, Elected, Election, Unopposed
from undertone_aggregator.groups import read_groups
from undertone_aggregator.journal import Journal
from undertone_aggregator.source import Outgoing, Source
from undertone_aggregator.watch import Look, Watch
from undertone_shared.campaign import header
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic

if TYPE_CHECKING:
    from undertone_aggregator.coordinator import Coordinator

_TICK_SECONDS = 0.1
# How often it is asked whether an operator has paused it.
_STATE_SECONDS = 1.0
_WATCH_SECONDS = 30.0


@dataclass
class Slots:
    """Which slots of the broker's worker users each campaign holds; ``taking``: one take-over at a time."""

    held: dict[str, set[int]]
    taking: threading.Lock

    def others(self, name: str) -> set[int]:
        """The slots that are not this campaign's."""
        return set().union(*(slots for campaign, slots in self.held.items() if campaign != name))


@dataclass
class Options:
    """How a campaign is run, besides its configuration. ``failpoint``: see `Ingest`.

    ``apply``: make the changes of the plan that would else only be shown. ``take_over``: a campaign that is broadcast,
    and that the store does not know. ``slots``: of worker users, as the campaigns of one server share them.
    """

    clock: Callable[[], float] = time.time
    failpoint: Failpoint = nowhere
    apply: bool = False
    take_over: bool = False
    slots: Slots | None = None


class Running:
    """Open it, then ``run`` it in the same thread. Raises Invalid as `undertone_aggregator.server.serve` does."""

    def __init__(self, config: Config, source: Source, journal: Journal, options: Options) -> None:
        self.config = config
        self.journal = journal
        self.state = RUNNING
        self.coordinator: Coordinator | None = None
        self._begun = False
        self._lease: Lease | None = None
        self._source = source
        self._options = options
        self._workers: list[Worker] = []
        self._groups = None if config.campaign.groups is None else read_groups(config.path(config.campaign.groups))

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.config.campaign.name

    @property
    def ready(self) -> bool:
        """Whether devices are told to report, and what they send is kept."""
        return self._begun and all(worker.ready for worker in self._workers)

    def run(self, outlet: Outgoing, stop: threading.Event) -> None:
        """Until ``stop`` is set; then everything read is committed and acknowledged.

        A start without room on the disk waits for it.
        """
        until_room(lambda: self._run(outlet, stop), lambda said: self.journal.say_once("room", said), stop)

    def _run(self, outlet: Outgoing, stop: threading.Event) -> None:
        config, clock = self.config, self._options.clock
        self._clear()
        with open_store(config.store_url, campaign=self.name) as store, self._alone(store):
            seed = open_campaign(
                store,
                config.campaign,
                config.stream,
                apply=self._options.apply,
                refusing=lambda: refusals_of(config, int(clock())),
            )
            bind_counting(store, config.landing.counts)
            if config.landing.folder is not None:
                self.journal.say("warning", config.landing.warning())
            self.check_broadcast(store, outlet, stop)
            plan = self._take_over(store, clock, stop)
            # Whatever fails: who is elected and gone leaves a campaign that nobody coordinates.
            with contextlib.closing(self._election(store)) as election:
                try:
                    self._start(plan, store, stop)
                    # Devices are told to report only once the brokers keep reports for us.
                    while not stop.wait(_TICK_SECONDS) and not all(worker.ready for worker in self._workers):
                        self._check()
                    self._begun = True
                    self._tick(election, seed, store, outlet, stop)
                finally:
                    for worker in self._workers:
                        worker.stop()
                    self._check()
                    with contextlib.suppress(StoreError, Fenced):
                        if self.coordinator is not None:
                            self.coordinator.status(int(clock()))
                    store.fence(None)

    def _alone(self, store: Store) -> contextlib.AbstractContextManager[None]:
        """From before the take-over to the end: its workers hold the store later, and another server's could, too."""
        return contextlib.nullcontext() if self.config.shares else store.serving(LOCK_SECONDS)

    def _clear(self) -> None:
        self._workers.clear()
        self._begun, self._lease, self.coordinator = False, None, None

    def _election(self, store: Store) -> Election:
        """Whether it coordinates is asked of the database where workers on any machine share the campaign."""
        config = self.config
        if not config.shares:
            return Unopposed()
        return Candidate(store.url, self.name, config.server.lease_seconds, self._say)

    def _lead(self, election: Election, seed: bytes, store: Store, outlet: Outgoing) -> "Coordinator | None":
        """The coordinator while it is this server that is elected: a new one each time, everything is in the store."""
        lease = election.lease()
        if lease != self._lease:
            self._lease, self.coordinator = lease, None
            store.fence(None)
            if lease is not None:
                # The workers take in reports while the numerics load.
                from undertone_aggregator.coordinator import Coordinator

                leases, clock = store.leases, self._options.clock
                if leases is not None and self.config.shares:
                    store.fence(lambda: leases.renew(lease))
                out = Elected(outlet, election)
                self.coordinator = Coordinator(self.config, seed, store, out, self.journal, clock, self._sign())
        return self.coordinator

    def _sign(self) -> Callable[[bytes], bytes] | None:
        """What signs campaigns; None without a key."""
        path = self.config.secret(self.config.server.signing_key)
        if not path.exists():
            self.journal.say("warning", f"warning: there is no {path}: campaigns are not signed")
            return None
        from undertone_aggregator.signing import read_key

        return read_key(path).sign

    def check_broadcast(self, store: Store, outlet: Outgoing, stop: threading.Event) -> None:
        """Raises Invalid when devices follow a campaign of this name that the store does not know."""
        topic = config_topic(self.config.broker.prefix, self.name)
        message = outlet.retained(topic, stop)
        # What comes from now on is ours, or rings.
        outlet.heard.pop(topic, None)
        if not message:
            return
        try:
            issued_at, fingerprint = header(message)
        except Invalid as wrong:
            self.journal.say("warning", f"warning: {topic} held no campaign, and will: {wrong}")
            return
        if fingerprint in {epoch.campaign.fingerprint for epoch in store.epochs()}:
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(issued_at))
        said = (
            f"{topic} holds a campaign that another server issued at {when} UTC, and that the store {store.name} does"
            " not know"
        )
        if not self._options.take_over:
            raise Invalid(
                f"{said}: its devices would be lost to it. Check the path in [store]; --take-over replaces it"
            )
        self.journal.alarm("take_over", f"{said}: it is replaced")

    def _take_over(self, store: Store, clock: Callable[[], float], stop: threading.Event) -> IngestPlan:
        slots = self._options.slots
        if slots is None:
            return self._source.take_over(store, self._plan(), self._say, clock, stop)
        with slots.taking:
            taken = slots.others(self.name)
            plan = self._source.take_over(store, self._plan(), self._say, clock, stop, taken)
            slots.held[self.name] = set(plan.slots)
        return plan

    def _plan(self) -> IngestPlan:
        config = self.config
        return IngestPlan(
            config.broker.prefix,
            self.name,
            config.campaign.slot_seconds,
            cells_of,
            workers=config.sessions,
            lease_seconds=config.server.lease_seconds if config.shares else 0,
            batch=config.server.batch,
            batch_seconds=config.server.batch_milliseconds / 1000,
            audit=config.store.audit,
            groups=self._groups,
            landing=config.landing.plan(config.folder),
        )

    def _start(self, plan: IngestPlan, store: Store, stop: threading.Event) -> None:
        workers = self.config.server.workers
        kind: Callable[..., Worker] = thread_worker if workers == 1 else ProcessWorker
        for number in range(workers):
            # Where workers share partitions, each takes what it can get.
            own = replace(plan, worker=number)
            self._workers.append(
                kind(own, store.url, self._source.open_intake, self._say, self._options.clock, self._options.failpoint)
            )

    def _tick(self, election: Election, seed: bytes, store: Store, outlet: Outgoing, stop: threading.Event) -> None:
        asked = looked = -math.inf
        plan = self.config.campaign
        watch = Watch(plan.slot_seconds, plan.settle_slots)
        while not stop.wait(_TICK_SECONDS):
            self._check()
            try:
                if time.monotonic() > asked + _STATE_SECONDS:
                    asked = time.monotonic()
                    self._note_state(store.meta().get(STATE, RUNNING))
                coordinator = self._lead(election, seed, store, outlet)
                if coordinator is None:
                    continue
                if time.monotonic() > looked + _WATCH_SECONDS:
                    looked = time.monotonic()
                    for event, sentence in watch.look(self._look(store, coordinator.ends)):
                        self.journal.alarm(event, sentence)
                if self.state == RETIRED:
                    coordinator.retire(int(self._options.clock()))
                elif self.state != PAUSED:
                    coordinator.note_broker(outlet.dropped, outlet.heard)
                    coordinator.tick(int(self._options.clock()))
            except Fenced:
                # The election tells of it, and asks for another coordinator when we are elected again.
                self._lease, self.coordinator = None, None
            except StoreError as wrong:
                self.journal.say_once("store", f"the store cannot be written, trying again: {wrong}")

    def _look(self, store: Store, end: int | None) -> Look:
        free = shutil.disk_usage(self.config.disk).free
        now = self._options.clock()
        return Look(now, time.monotonic(), store.outcomes(), store.newest_slot(), free, end)

    def _note_state(self, state: str) -> None:
        if state != self.state:
            self.journal.say("state", f"campaign {self.name} is {state}, it was {self.state}", state=state)
            self.state = state

    def _check(self) -> None:
        for worker in self._workers:
            worker.check()

    def _say(self, sentence: str) -> None:
        self.journal.say_once("ingest", sentence)
