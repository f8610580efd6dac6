"""The protocol of a store: the counts of one campaign, from which a restart resumes exactly.

A batch is one transaction: its Partial, its deduplication records, its counters, its audit rows. Reports are
acknowledged to the broker only after their transaction has committed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from undertone_aggregator.counts.device_states import CHAINS, SEEN, SEQUENCES, Segment
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.histograms import Histograms, SlotSums
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.store.inventory import Device
from undertone_aggregator.store.store_address import store_address
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.store.leases import Leases

RECEIVED = "received"
# Name of the entry of `Store.meta` that holds the newest settled slot; absent or -1 before the first.
SETTLED = "settled"
# Name of the entry of `Store.meta` that changes whenever the groups of devices change; absent without groups.
GROUPED = "groups_edition"
# Seconds for which a server waits for the locks on its store: workers of a server that was killed may still hold them.
LOCK_SECONDS = 5.0


class StoreError(OSError):
    """The store cannot be read or written now; the transaction was rolled back."""


class NoStore(Invalid):
    """The store, or the campaign in it, does not exist yet; its server creates it."""


class OtherStore(Invalid):
    """The store is of another version or another campaign; the message says what to do."""


class DiskFull(StoreError):
    """The store's disk or quota is full; it can be written again once there is space."""


@dataclass
class Batch:
    """The changes that one transaction makes to a store."""

    partial: Partial = field(default_factory=Partial)
    # Deliveries by outcome.
    outcomes: Counter[str] = field(default_factory=Counter)
    # Records of the counted reports, see `undertone_aggregator.counts.seen`. Like the next two kinds of records, they
    # are appended to the states of devices.
    seen: bytearray = field(default_factory=bytearray)
    # Records of the counted stream reports, see `undertone_aggregator.counts.chains`.
    chains: bytearray = field(default_factory=bytearray)
    # Records of the devices of the counted reports, see `undertone_aggregator.counts.sequences`.
    sequences: bytearray = field(default_factory=bytearray)
    # (group, slot in which the loss was noticed) -> newly missing reports minus missing reports that have now arrived.
    lost: Counter[tuple[str, int]] = field(default_factory=Counter)
    # (reason, slot of arrival) -> number of refused deliveries.
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    # Group -> number of reports that contradict a counted report of the same device and slot.
    conflicts: Counter[str] = field(default_factory=Counter)
    # (device, digest of the payload, outcome) of every delivery, when auditing is on.
    audit: list[tuple[str, bytes, str]] = field(default_factory=list)
    # Names of devices that sent a report contradicting a counted one; they are logged, not stored.
    conflicting: set[str] = field(default_factory=set)

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield (name, records) of each state of devices to which the batch adds records."""
        for name, data in ((SEEN, self.seen), (CHAINS, self.chains), (SEQUENCES, self.sequences)):
            if data:
                yield name, bytes(data)


class StoreConnection(Protocol):
    """A connection to the store of one campaign: the members that every user of a store needs.

    Use a connection in one thread; any number of them may be open. Every method of a store raises StoreError if the
    store cannot be read or written, and Invalid for damaged content.
    """

    @property
    def url(self) -> str:
        """The address that `open_store` takes."""

    @property
    def name(self) -> str:
        """The store's address without a password, for error sentences."""

    def campaigns(self) -> list[str]:
        """The names of all campaigns in the same file or database, sorted."""

    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> "Store": ...

    def __exit__(self, *_: object) -> None: ...

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction as a context, durable at its end. A nested transaction is part of the outer one."""

    def fence(self, check: Callable[[], None] | None) -> None:
        """Call ``check`` at the start of every later transaction, which is rolled back if ``check`` raises."""


class CampaignEntries(StoreConnection, Protocol):
    """Entries about the campaign as a whole, which its server, commands and readers share."""

    def meta(self, *names: str) -> dict[str, str]:
        """Return a map: name -> value of the campaign's entries with these names; without names, of all its entries."""

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write entries for `meta`, name -> value, in the open transaction; without one, in their own."""

    def epochs(self) -> list[Epoch]:
        """All epochs, oldest first."""

    def epoch_count(self) -> int:
        """Number of epochs. It never falls."""

    def add_epoch(self, epoch: Epoch) -> None:
        """Add an epoch. Call it before the epoch is broadcast."""


class CountedReports(Protocol):
    """The counts of reports, for estimators, readers and alarms."""

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        """Return the Partial of all workers for first <= slot <= last, of one kind of report or of all kinds.

        ``late``: include reports that arrived after their slot had settled.
        """

    def histograms(
        self,
        first: int,
        last: int,
        *,
        kind: int | None = None,
        groups: Collection[str] | None = None,
        late: bool = False,
    ) -> Histograms:
        """Return the histograms of all workers for first <= slot <= last, as arrays.

        ``kind``, ``groups``: only of this kind of report, and of these groups. ``late``: only of reports that arrived
        after their slot had settled; otherwise only of those that arrived before.
        """

    def sums(self, first: int, last: int) -> SlotSums:
        """Return the sums of `histograms` over all groups, for first <= slot <= last."""

    def late_reports(self) -> int:
        """Return the number of counted reports that arrived after their slot had settled."""

    def counted_groups(self, first: int = 0) -> set[str]:
        """Return the groups with reports for slots from ``first`` on, or with late reports. Reads no histogram."""

    def newest_slot(self) -> int | None:
        """Return the newest slot that has a counted report; None without counted reports."""

    def outcomes(self) -> Counter[str]:
        """Return a map: outcome -> number of deliveries, over all workers; ``received`` is the sum of the others."""

    def losses(self) -> dict[tuple[str, int], int]:
        """Return how many drawn reports never arrived, by group and by the slot in which the server noticed the loss.

        All workers are added up.
        """

    def lost(self) -> dict[str, tuple[int, int]]:
        """Return a map: group -> (missing reports, slot in which the oldest of them was noticed).

        Groups without a missing report are left out. See `losses`.
        """

    def refusals(self, first: int = 0, last: int = 0xFFFFFFFF) -> dict[tuple[str, int], int]:
        """Return a map: (reason, slot of arrival) -> number of refused deliveries, for first <= slot <= last.

        All workers are added up.
        """

    def conflicts(self) -> dict[str, int]:
        """Return a map: group -> number of reports, of all workers, that contradict one that was counted before."""

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        """Yield (device, first 8 bytes of sha256(payload), outcome) of each distinct report, when auditing is on."""


class WorkerStore(Protocol):
    """What a worker writes: counts, and the states of devices. The store knows only the names of these states."""

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        """Add a batch under the worker's own key, in one transaction.

        ``snapshots``: name of a state of devices -> its snapshot, which includes the batch. It replaces the worker's
        segments of this state, and the batch's records for this state are not stored.

        Reports for a slot up to `SETTLED` are stored apart as late, so that the counts of a settled slot never change.
        A transaction that increases `SETTLED` waits for the commits that have read the old value.
        """

    def segments(self, state: str) -> Iterator[Segment]:
        """Yield the segments of the state of this name, oldest first; see `DeviceStates.load`."""

    def compact(self, state: str, snapshot: bytes) -> None:
        """Replace all workers' segments of a state by one snapshot. No worker may run."""


class DeviceInventory(Protocol):
    """The operator's inventory of devices and their groups."""

    def groups(self) -> dict[str, str]:
        """Return a map: device -> group, as the campaign's server read them from the file of groups."""

    def set_groups(self, groups: Mapping[str, str]) -> None:
        """Replace all groups, in one transaction."""

    def devices(self) -> dict[str, Device]:
        """Return a map: name -> device, for every device of the inventory. The name of a forgotten one is its key."""

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        """Add or change these devices, and delete the names ``without``, in one transaction."""

    def revoked_count(self) -> int:
        """Return the number of revoked and forgotten devices, whose reports are refused.

        When this number has changed, workers read the devices again.
        """


class StoreLocks(Protocol):
    """Locks and leases: who may serve a campaign, count for it, or have its store alone."""

    def exclusive(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store exclusively, waiting up to ``seconds`` for other holders. Raises Invalid after that."""

    def shared(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store together with other workers. Waits and raises as ``exclusive`` does."""

    def serving(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store against other servers; workers may still lock it by ``shared``.

        Waits and raises as ``exclusive`` does.
        """

    @property
    def leases(self) -> "Leases | None":
        """The leases of workers on several machines. It is None for a store of one machine, which has locks instead."""


class Store(CampaignEntries, CountedReports, WorkerStore, DeviceInventory, StoreLocks, Protocol):
    """A connection to the store of one campaign, with all members that a kind of store must have.

    Code that needs only a part of a store names only this part as its type, so that a reader sees what it may do.
    """

    def backup(self, path: Path) -> None:
        """Write a consistent copy to a new file; others may write to the store meanwhile.

        Raises Invalid if ``path`` exists, or if the store is a PostgreSQL database: `pg_dump` copies that.
        """

    def damage(self) -> str:
        """Check the store; return what is damaged, or "". For PostgreSQL, which checks itself, always return ""."""

    def sum_up(self, most: int) -> bool:
        """Store the sums of at most ``most`` settled slots that have none yet. Return True if such slots remain.

        A store that is fast without stored sums does nothing and returns False.
        """


def open_store(url: str | Path, *, campaign: str | None = None, read_only: bool = False, create: bool = True) -> Store:
    """Open the store at ``scheme:where``, or a SQLite file at a plain path. A store that does not exist is created.

    ``campaign``: the campaign's name, if a database holds several; a new campaign is created. Without a name the only
    campaign is opened. ``read_only``: open an existing store without changing it. Raises NoStore for a missing store if
    ``read_only``, and for a missing campaign if ``read_only`` or without ``create``. Raises Invalid for an unknown
    scheme, for a file that is no store, and for several campaigns without a name. Raises StoreError.
    """
    return _open(url, campaign, read_only=read_only, create=create, choose=True)


def campaigns_in(url: str | Path) -> list[str]:
    """Return the names of all campaigns in an existing store, sorted. Raises as `open_store` does."""
    with _open(url, None, read_only=True, create=False, choose=False) as store:
        return store.campaigns()


def _open(url: str | Path, campaign: str | None, *, read_only: bool, create: bool, choose: bool) -> Store:
    """Open a store. If ``choose`` is false, no campaign is chosen, and only `Store.campaigns` may be called."""
    address = store_address(url)
    opener: Callable[..., Any] = getattr(import_module(address.kind.module), address.kind.opener)
    store: Store = opener(address.where, campaign=campaign, read_only=read_only, create=create, choose=choose)
    return store
