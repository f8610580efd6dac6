"""The store's protocol: one campaign each, from which a restart resumes exactly.

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
# The fact that holds the newest settled slot; absent or -1 before the first.
SETTLED = "settled"
# The fact that is another one whenever the groups of devices are others; absent where nobody has kept groups.
GROUPED = "groups_edition"
# How long a store may still be in use by the workers of a server that was killed.
LOCK_SECONDS = 5.0


class StoreError(OSError):
    """The store cannot be read or written now, as when its disk is full; nothing of the transaction was kept."""


class NoStore(Invalid):
    """It, or the campaign in it, has not been made yet: its server makes it."""


class NoRoom(StoreError):
    """It cannot be written for want of room on its disk, or of quota; it can be again once there is some."""


@dataclass
class Batch:
    """What one transaction adds. ``seen``: records of the counted reports, see `undertone_aggregator.counts.seen`.

    ``chains``: records of the counted stream reports, see `undertone_aggregator.counts.chains`.
    ``sequences``: records of their devices, see `undertone_aggregator.counts.sequences`. ``lost``: (group, slot in
    which it was noticed) -> reports that are missing, less those that came after all.
    ``conflicts``: group -> reports that contradict a counted one.
    ``audit``: (device, digest of the payload, outcome) of every delivery.
    """

    partial: Partial = field(default_factory=Partial)
    outcomes: Counter[str] = field(default_factory=Counter)
    seen: bytearray = field(default_factory=bytearray)
    chains: bytearray = field(default_factory=bytearray)
    sequences: bytearray = field(default_factory=bytearray)
    lost: Counter[tuple[str, int]] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    audit: list[tuple[str, bytes, str]] = field(default_factory=list)
    # Devices whose reports contradict what was counted; told, and not kept.
    conflicting: set[str] = field(default_factory=set)


class Store(Protocol):
    """One connection. Use each in one thread; any number of them, in any process, may be open.

    Every method raises StoreError when the store cannot be read or written, and Invalid for what is damaged.
    """

    @property
    def url(self) -> str:
        """What `open_store` opens it by."""

    @property
    def name(self) -> str:
        """The store in error sentences: its address without the password."""

    def campaigns(self) -> list[str]:
        """The names of all campaigns in the same file or database, sorted."""

    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> "Store": ...

    def __exit__(self, *_: object) -> None: ...

    def exclusive(self, seconds: float) -> AbstractContextManager[None]:
        """Hold the store alone, waiting up to ``seconds`` for others to leave. Raises Invalid when they stay."""

    def shared(self, seconds: float) -> AbstractContextManager[None]:
        """Hold it together with other workers; else as ``exclusive``."""

    def serving(self, seconds: float) -> AbstractContextManager[None]:
        """Be its one server, whose workers hold it meanwhile: only other servers are waited for; as ``exclusive``."""

    def backup(self, path: Path) -> None:
        """Write a whole, consistent copy to a new file, while others write. Raises Invalid where others do that."""

    def damage(self) -> str:
        """What a check of the whole store says is wrong with it; empty when nothing is, or where others see to it."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; waits for other writers. On return it is durable. Within another it is a part of that."""

    @property
    def leases(self) -> "Leases | None":
        """Who owns what, for workers on several machines; None: the store is one machine's, held by `exclusive`."""

    def fence(self, check: Callable[[], None] | None) -> None:
        """From now on every transaction of this connection begins with ``check``, and is refused when that raises."""

    # --- what the campaign is

    def meta(self, *names: str) -> dict[str, str]:
        """The facts of these names, or all of them."""

    def set_meta(self, values: Mapping[str, str]) -> None:
        """Write facts, in the caller's transaction or their own."""

    def epochs(self) -> list[Epoch]:
        """All epochs, oldest first."""

    def epoch_count(self) -> int:
        """Number of epochs: they are only ever added."""

    def add_epoch(self, epoch: Epoch) -> None:
        """Keep a new epoch, before it is broadcast."""

    # --- what was counted

    def commit(self, worker: str, batch: Batch) -> None:
        """Add a batch under the worker's own key, in one transaction.

        Reports for a slot up to `SETTLED` are kept apart as late: nothing changes what a settled slot holds without
        them. Raising `SETTLED` waits for commits that have read it.
        """

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        """The Partial of all workers for first <= slot <= last, of one kind of report or all.

        ``late``: with the reports that came after their slot had settled.
        """

    def late_reports(self) -> int:
        """Number of counted reports that came after their slot had settled."""

    def counted_groups(self, first: int = 0) -> set[str]:
        """The groups that have reports for slots from ``first`` on, or late ones. Reads no histogram."""

    def newest_slot(self) -> int | None:
        """The newest slot of which a report was counted."""

    def outcomes(self) -> Counter[str]:
        """Deliveries by outcome, over all workers: ``received`` is the sum of all others."""

    def losses(self) -> dict[tuple[str, int], int]:
        """(group, slot in which it was noticed) -> reports that devices drew and nobody saw, over all workers."""

    def conflicts(self) -> dict[str, int]:
        """Group -> reports that contradict a counted one, over all workers."""

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        """(device, first 8 bytes of sha256(payload), outcome) of each distinct report, when auditing is on."""

    # --- the operator's inventory

    def groups(self) -> dict[str, str]:
        """Device -> group, as the server that runs the campaign read them."""

    def set_groups(self, groups: Mapping[str, str]) -> None:
        """Replace them all, in one transaction."""

    def devices(self) -> dict[str, Device]:
        """By name, every device that was ever added."""

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        """Add or change these, and drop the names ``without``, in one transaction."""

    def revoked_count(self) -> int:
        """How many are revoked, or were and are forgotten: it only grows, and tells workers when to ask who."""

    # --- deduplication

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        """The segments that `Seen.load` takes, oldest first."""

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one snapshot; ``everyone``: all segments, when no worker runs."""

    def chains(self) -> Iterator[bytes]:
        """The segments that `undertone_aggregator.counts.chains.Chains.load` takes, oldest first."""

    def sequences(self) -> Iterator[bytes]:
        """The segments that `undertone_aggregator.counts.sequences.Sequences.load` takes, oldest first."""

    def compact_sequences(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one; ``everyone``: all segments, when no worker runs."""

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        """Replace the worker's segments by one; ``everyone``: all segments, when no worker runs."""


def open_store(url: str | Path, *, campaign: str | None = None, read_only: bool = False, create: bool = True) -> Store:
    """The store at ``scheme:where``, made when it is new; a plain path is a SQLite file.

    ``campaign``: which one of those in the database, made when it is new; without it the only one. ``read_only`` opens
    an existing store without changing it, and raises NoStore where there is none. Without ``create`` a campaign that
    is not there raises NoStore, too. Raises Invalid for a scheme that is
    not known, for what is no store, and for a campaign that is not clear; StoreError.
    """
    return _open(url, campaign, read_only=read_only, create=create, choose=True)


def campaigns_in(url: str | Path) -> list[str]:
    """The names of all campaigns in an existing store, sorted. Raises as `open_store` does."""
    with _open(url, None, read_only=True, create=False, choose=False) as store:
        return store.campaigns()


def _open(url: str | Path, campaign: str | None, *, read_only: bool, create: bool, choose: bool) -> Store:
    """``choose``: the store is of one campaign from now on; without it only `Store.campaigns` can be asked."""
    address = store_address(url)
    opener: Callable[..., Any] = getattr(import_module(address.kind.module), address.kind.opener)
    store: Store = opener(address.where, campaign=campaign, read_only=read_only, create=create, choose=choose)
    return store
