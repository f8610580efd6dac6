"""A store in memory, with exactly the methods of `undertone_aggregator.store.store.Store`."""

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from undertone_aggregator.counts.device_states import Segment
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.histograms import Histograms, SlotSums
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.store.inventory import REFUSED, Device
from undertone_aggregator.store.store import RECEIVED, SETTLED, Batch, NoStore, StoreError
from undertone_shared.errors import Invalid

_STORES: dict[str, "MemoryStore"] = {}


def open_memory(where: str, *, campaign: str | None, read_only: bool, create: bool, choose: bool) -> "MemoryStore":
    """Open the store ``memory:where`` of this process, which holds one campaign.

    All connections get the same object.
    """
    if where not in _STORES and read_only:
        raise NoStore(f"there is no store memory:{where}")
    return _STORES.setdefault(where, MemoryStore(where))


@dataclass
class _Content:
    meta: dict[str, str] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    partials: dict[str, Partial] = field(default_factory=dict)
    late: Partial = field(default_factory=Partial)
    outcomes: Counter[str] = field(default_factory=Counter)
    losses: Counter[tuple[str, int]] = field(default_factory=Counter)
    refused: Counter[tuple[str, int]] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    audit: dict[tuple[str, bytes], str] = field(default_factory=dict)
    segments: list[tuple[str, str, Segment]] = field(default_factory=list)
    devices: dict[str, Device] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)


class MemoryStore:
    """A campaign's store that lives as long as this process."""

    def __init__(self, where: str = "") -> None:
        self.url = self.name = f"memory:{where}"
        self.leases = None
        self._holders = 0
        self._served = False
        self._fence: Callable[[], None] | None = None
        self._content = _Content()

    def campaigns(self) -> list[str]:
        return [self._content.meta["campaign"]] if "campaign" in self._content.meta else []

    def close(self) -> None:
        pass

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    # Locks: one holder alone, or several together. A second exclusive holder is refused at once.

    @contextlib.contextmanager
    def exclusive(self, seconds: float) -> Iterator[None]:
        if self._holders:
            raise Invalid(f"another server uses the store {self.url}")
        self._holders = -1
        try:
            yield
        finally:
            self._holders = 0

    @contextlib.contextmanager
    def shared(self, seconds: float) -> Iterator[None]:
        if self._holders < 0:
            raise Invalid(f"another server uses the store {self.url}")
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1

    @contextlib.contextmanager
    def serving(self, seconds: float) -> Iterator[None]:
        if self._served:
            raise Invalid(f"another server uses the store {self.url}")
        self._served = True
        try:
            yield
        finally:
            self._served = False

    def backup(self, path: Path) -> None:
        raise Invalid("a store in memory has no backup")

    def damage(self) -> str:
        return ""

    def fence(self, check: Callable[[], None] | None) -> None:
        self._fence = check

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        before = _Content(*(copy.copy(getattr(self._content, part.name)) for part in fields(_Content)))
        try:
            if self._fence is not None:
                self._fence()
            yield
        except BaseException:
            self._content = before
            raise

    # Entries about the campaign as a whole.

    def meta(self, *names: str) -> dict[str, str]:
        return {name: value for name, value in self._content.meta.items() if not names or name in names}

    def set_meta(self, values: Mapping[str, str]) -> None:
        self._content.meta |= values

    def epochs(self) -> list[Epoch]:
        return sorted(self._content.epochs, key=lambda epoch: epoch.campaign.epoch)

    def epoch_count(self) -> int:
        return len(self._content.epochs)

    def add_epoch(self, epoch: Epoch) -> None:
        if any(epoch.campaign.epoch == other.campaign.epoch for other in self._content.epochs):
            raise StoreError(f"epoch {epoch.campaign.epoch} exists already")
        self._content.epochs.append(epoch)

    # The counts of reports.

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        snapshots = snapshots or {}
        with self.transaction():
            content, settled = self._content, int(self._content.meta.get(SETTLED, -1))
            late = Partial({key: counts for key, counts in batch.partial.items() if key.slot <= settled})
            rest = Partial({key: counts for key, counts in batch.partial.items() if key.slot > settled})
            content.late = content.late.merge(late)
            content.partials[worker] = content.partials.get(worker, Partial()).merge(rest)
            content.outcomes += batch.outcomes
            content.losses.update(batch.lost)
            content.refused += batch.refused
            content.conflicts += batch.conflicts
            content.segments = [row for row in content.segments if row[0] not in snapshots or row[1] != worker]
            records = [(state, worker, (False, data)) for state, data in batch.records() if state not in snapshots]
            content.segments += records + [(state, worker, (True, data)) for state, data in snapshots.items()]
            for device, digest, outcome in batch.audit:
                if outcome is None:
                    raise StoreError("an outcome is missing")
                if outcome == COUNTED or (device, digest) not in content.audit:
                    content.audit[device, digest] = outcome

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        campaign = self._content.meta.get("campaign", "")
        return Partial.gather(
            (key._replace(campaign=campaign), counts)
            for partial in (*self._content.partials.values(), *([self._content.late] if late else []))
            for key, counts in partial.items()
            if first <= key.slot <= last and kind in (None, key.kind)
        )

    def histograms(
        self,
        first: int,
        last: int,
        *,
        kind: int | None = None,
        groups: Collection[str] | None = None,
        late: bool = False,
    ) -> Histograms:
        chosen = self.partial(first, last, kind=kind, late=False)
        if late:
            both = self.partial(first, last, kind=kind)
            chosen = Partial({key: both[key] - chosen.get(key, 0) for key in both})
        return Histograms.of(
            {key: counts for key, counts in chosen.items() if counts.any() and (groups is None or key.group in groups)}
        )

    def sums(self, first: int, last: int) -> SlotSums:
        return self.histograms(first, last).sums()

    def sum_up(self, most: int) -> bool:
        return False

    def late_reports(self) -> int:
        return self._content.late.reports

    def counted_groups(self, first: int = 0) -> set[str]:
        counted = {key.group for partial in self._content.partials.values() for key in partial if key.slot >= first}
        return counted | {key.group for key in self._content.late}

    def newest_slot(self) -> int | None:
        return max((key.slot for key in self.partial()), default=None)

    def outcomes(self) -> Counter[str]:
        return Counter({**self._content.outcomes, RECEIVED: sum(self._content.outcomes.values())})

    def losses(self) -> dict[tuple[str, int], int]:
        return {key: n for key, n in self._content.losses.items() if n}

    def lost(self) -> dict[str, tuple[int, int]]:
        missing = {key: n for key, n in self.losses().items() if n > 0}
        return {
            name: (
                sum(n for (group, _), n in missing.items() if group == name),
                min(slot for group, slot in missing if group == name),
            )
            for name in sorted({group for group, _ in missing})
        }

    def refusals(self, first: int = 0, last: int = 0xFFFFFFFF) -> dict[tuple[str, int], int]:
        return {(reason, slot): n for (reason, slot), n in self._content.refused.items() if first <= slot <= last}

    def conflicts(self) -> dict[str, int]:
        return dict(self._content.conflicts)

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        return ((device, digest, outcome) for (device, digest), outcome in self._content.audit.items())

    # The operator's inventory.

    def groups(self) -> dict[str, str]:
        return dict(self._content.groups)

    def set_groups(self, groups: Mapping[str, str]) -> None:
        self._content.groups = dict(groups)

    def devices(self) -> dict[str, Device]:
        return dict(sorted(self._content.devices.items()))

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        for name in without:
            self._content.devices.pop(name, None)
        self._content.devices |= {device.name: device for device in devices}

    def revoked_count(self) -> int:
        return sum(device.state in REFUSED for device in self._content.devices.values())

    # The states of devices.

    def segments(self, state: str) -> Iterator[Segment]:
        return (segment for name, _, segment in self._content.segments if name == state)

    def compact(self, state: str, snapshot: bytes) -> None:
        others = [row for row in self._content.segments if row[0] != state]
        self._content.segments = [*others, (state, "", (True, snapshot))]
