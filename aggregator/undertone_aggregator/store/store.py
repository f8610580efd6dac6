"""The protocol of a store, which has one campaign and from which a restart resumes exactly.

A batch is one transaction: its Partial, its deduplication records, its counters, its audit rows. A report is
acknowledged to the broker only after that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.store.inventory import Device
from undertone_aggregator.store.store_address import store_address
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.store.leases import Leases

RECEIVED = "received"
# Name of the fact with the newest settled slot; absent or -1 before the first.
SETTLED = "settled"
# Name of the fact that changes whenever the groups of devices change; absent if no groups were stored.
GROUPED = "groups_edition"
# Seconds to wait for the workers of a server that was killed, which may still use the store.
LOCK_SECONDS = 5.0


class StoreError(OSError):
    """The store cannot be read or written now, for example because its disk is full; the transaction was not stored."""


class NoStore(Invalid):
    """The store, or the campaign in it, does not exist yet; its server will create it."""


class NoRoom(StoreError):
    """The store cannot be written for lack of disk space or quota; this may pass."""


@dataclass
class Batch:
    """The content of one transaction. ``seen``: records of the counted reports, see `undertone_aggregator.counts.seen`.

    ``chains``: records of the counted stream reports, see `undertone_aggregator.counts.chains`. ``sequences``: records
    of their devices, see `undertone_aggregator.counts.sequences`. ``lost``: (group, slot in which it was noticed) ->
    number of missing reports, less those that arrived after all. ``conflicts``: group -> number of reports that
    contradict a counted one. ``audit``: (device, digest of the payload, outcome) of every delivery.
    """

    partial: Partial = field(default_factory=Partial)
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: bytearray = field(default_factory=bytearray)
    chains: bytearray = field(default_factory=bytearray)
    sequences: bytearray = field(default_factory=bytearray)
    lost: Counter[tuple[str, int]] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    audit: list[tuple[str, bytes, str]] = field(default_factory=list)
    # Devices whose reports contradict a counted one; they are logged and not stored.
    conflicting: set[str] = field(default_factory=set)


class Store(Protocol):
    """One connection. Use each in one thread; any number of them, in any process, may be open.

    Every method raises StoreError when the store cannot be read or written, and Invalid for what is damaged.
    """

    @property
    def url(self) -> str:
        """The address with which `open_store` opens this store."""

    @property
    def name(self) -> str:
        """The store's name in error sentences: its address without the password."""

    def campaigns(self) -> list[str]:
        """Return the names of all campaigns in the same file or database, sorted."""

    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> "Store": ...

    def __exit__(self, *_: object) -> None: ...

    def exclusive(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store exclusively; wait up to ``seconds`` for others to leave. Raises Invalid if they stay."""

    def shared(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store together with other workers; otherwise as ``exclusive``."""

    def serving(self, seconds: float) -> AbstractContextManager[None]:
        """Lock the store as its only server; workers may have it locked, only other servers conflict.

        Else as ``exclusive``.
        """

    def backup(self, path: Path) -> None:
        """Write a complete, consistent copy to a new file while others write.

        Raises Invalid if this is another tool's task.
        """

    def damage(self) -> str:
        """Return what a check of the whole store found.

        Empty if there is no damage, or if the check is another tool's task.
        """

    def transaction(self) -> AbstractContextManager[None]:
        """Run the block as one durable transaction; wait for other writers.

        An inner transaction is part of the outer one.
        """

    @property
    def leases(self) -> "Leases | None":
        """The leases of roles, for workers on several machines.

        Returns None for a store of one machine, locked by `exclusive`.
        """

    def fence(self, check: Callable[[], None] | None) -> None:
        """Call ``check`` at the beginning of every later transaction of this connection, and refuse the transaction if
        it raises.
        """

    # --- Methods for facts of the campaign.

    def meta(self, *names: str) -> dict[str, str]:
        """Return the facts of these names, or all of them."""

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write facts, in the caller's transaction or their own."""

    def epochs(self) -> list[Epoch]:
        """Return all epochs, oldest first."""

    def epoch_count(self) -> int:
        """Return the number of epochs, which are never removed."""

    def add_epoch(self, epoch: Epoch) -> None:
        """Store a new epoch, before it is broadcast."""

    # --- Methods for the counts of reports.

    def commit(self, worker: str, batch: Batch) -> None:
        """Add a batch under the worker's own key, in one transaction.

        Reports for a slot up to `SETTLED` are stored separately as late, so that the other counts of a settled slot
        never change. Raising `SETTLED` waits for commits that have read it.
        """

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        """Return the Partial of all workers for first <= slot <= last, of one kind of report or of all kinds.

        ``late``: include the reports that came after their slot had settled.
        """

    def late_reports(self) -> int:
        """Return the number of counted reports that came after their slot had settled."""

    def counted_groups(self, first: int = 0) -> set[str]:
        """Return the groups that have reports for slots from ``first`` on, or late ones. Reads no histogram."""

    def newest_slot(self) -> int | None:
        """Return the newest slot with a counted report."""

    def outcomes(self) -> Counter[str]:
        """Return the number of deliveries by outcome, over all workers: ``received`` is the sum of all others."""

    def losses(self) -> dict[tuple[str, int], int]:
        """Return (group, slot in which it was noticed) -> reports that devices drew and that never arrived, over all
        workers.
        """

    def conflicts(self) -> dict[str, int]:
        """Return group -> number of reports that contradict a counted one, over all workers."""

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        """Yield (device, first 8 bytes of sha256(payload), outcome) of each distinct report, if auditing is on."""

    # --- Methods for the operator's inventory of devices.

    def groups(self) -> dict[str, str]:
        """Return device -> group, as the server that runs the campaign read them."""

    def set_groups(self, groups: Mapping[str, str]) -> None:
        """Replace all groups, in one transaction."""

    def devices(self) -> dict[str, Device]:
        """Return every device that was ever added, by name."""

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        """Add or change these devices, and delete the names ``without``, in one transaction."""

    def revoked_count(self) -> int:
        """Return the number of devices that are or were revoked.

        It only grows, and a change tells workers to reload.
        """

    # --- Methods for the deduplication of reports.

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        """Yield the segments for `Seen.load`, oldest first."""

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one snapshot.

        ``everyone``: all segments, which requires that no worker runs.
        """

    def chains(self) -> Iterator[bytes]:
        """Yield the segments for `undertone_aggregator.counts.chains.Chains.load`, oldest first."""

    def sequences(self) -> Iterator[bytes]:
        """Yield the segments for `undertone_aggregator.counts.sequences.Sequences.load`, oldest first."""

    def compact_sequences(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one; ``everyone``: all segments, which requires that no worker runs."""

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one; ``everyone``: all segments, which requires that no worker runs."""


def open_store(url: str | Path, *, campaign: str | None = None, read_only: bool = False, create: bool = True) -> Store:
    """Open the store at ``scheme:where``, and create it if it is new; a plain path is a SQLite file.

    ``campaign``: name of a campaign in the database, created if it is new; without it the only one. ``read_only`` opens
    an existing store without changing it, and raises NoStore if there is none. Without ``create`` a missing campaign
    raises NoStore, too. Raises Invalid for an unknown scheme, for a file that is no store, and for an ambiguous
    campaign; StoreError.
    """
    return _open(url, campaign, read_only=read_only, create=create, choose=True)


def campaigns_in(url: str | Path) -> list[str]:
    """Return the names of all campaigns in an existing store, sorted. Raises as `open_store` does."""
    with _open(url, None, read_only=True, create=False, choose=False) as store:
        return store.campaigns()


def _open(url: str | Path, campaign: str | None, *, read_only: bool, create: bool, choose: bool) -> Store:
    """Open a store. ``choose``: bind it to one campaign; without it only `Store.campaigns` may be called."""
    address = store_address(url)
    opener: Callable[..., Any] = getattr(import_module(address.kind.module), address.kind.opener)
    store: Store = opener(address.where, campaign=campaign, read_only=read_only, create=create, choose=choose)
    return store
