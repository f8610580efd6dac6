"""A store in memory: what `undertone_aggregator.store.store.Store` asks for, and no more."""

import contextlib
import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import RECEIVED, SETTLED, Batch, StoreError
from undertone_shared.errors import Invalid

_NUMBERS = itertools.count()
_KEPT = (
    *("_meta", "_epochs", "_partials", "_late", "_outcomes", "_conflicts"),
    *("_seen", "_chains", "_sequences", "_losses", "_audit"),
)


class MemoryStore:
    """One connection is all there is."""

    def __init__(self) -> None:
        self._number = next(_NUMBERS)
        self._holders = 0
        self._served = False
        self._meta: dict[str, str] = {}
        self._epochs: list[Epoch] = []
        self._partials: dict[str, Partial] = {}
        self._late = Partial()
        self._outcomes: Counter[str] = Counter()
        self._devices: dict[str, Device] = {}
        self._seen: list[tuple[str, bool, bytes]] = []
        self._chains: list[tuple[str, bytes]] = []
        self._sequences: list[tuple[str, bytes]] = []
        self._losses: Counter[tuple[str, int]] = Counter()
        self._conflicts: Counter[str] = Counter()
        self._audit: dict[tuple[str, bytes], str] = {}
        self._groups: dict[str, str] = {}
        self._fence: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        return f"memory:{self._number}"

    @property
    def name(self) -> str:
        return self.url

    def campaigns(self) -> list[str]:
        return [self._meta["campaign"]] if "campaign" in self._meta else []

    def close(self) -> None:
        pass

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def exclusive(self, seconds: float) -> Iterator[None]:
        with self._hold(alone=True):
            yield

    @contextlib.contextmanager
    def shared(self, seconds: float) -> Iterator[None]:
        with self._hold(alone=False):
            yield

    @contextlib.contextmanager
    def serving(self, seconds: float) -> Iterator[None]:
        if self._served:
            raise Invalid(f"another aggregator uses the store {self.url}")
        self._served = True
        try:
            yield
        finally:
            self._served = False

    @contextlib.contextmanager
    def _hold(self, *, alone: bool) -> Iterator[None]:
        before = self._holders
        if before < 0 or (alone and before):
            raise Invalid(f"another aggregator uses the store {self.url}")
        self._holders = -1 if alone else before + 1
        try:
            yield
        finally:
            self._holders = 0 if alone else self._holders - 1

    def backup(self, path: Path) -> None:
        raise Invalid("a store in memory has no backup")

    def damage(self) -> str:
        return ""

    @property
    def leases(self) -> None:
        return None

    def fence(self, check: Callable[[], None] | None) -> None:
        self._fence = check

    def groups(self) -> dict[str, str]:
        return dict(self._groups)

    def set_groups(self, groups: Mapping[str, str]) -> None:
        self._groups = dict(groups)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        before: dict[str, Any] = {name: copy.copy(getattr(self, name)) for name in _KEPT}
        try:
            if self._fence is not None:
                self._fence()
            yield
        except BaseException:
            self.__dict__.update(before)
            raise

    def meta(self, *names: str) -> dict[str, str]:
        return {name: value for name, value in self._meta.items() if not names or name in names}

    def set_meta(self, values: Mapping[str, str]) -> None:
        self._meta |= values

    def epochs(self) -> list[Epoch]:
        return sorted(self._epochs, key=lambda epoch: epoch.campaign.epoch)

    def epoch_count(self) -> int:
        return len(self._epochs)

    def add_epoch(self, epoch: Epoch) -> None:
        if any(epoch.campaign.epoch == other.campaign.epoch for other in self._epochs):
            raise StoreError(f"epoch {epoch.campaign.epoch} is there")
        self._epochs.append(epoch)

    def commit(self, worker: str, batch: Batch) -> None:
        with self.transaction():
            settled = int(self._meta.get(SETTLED, -1))
            late = Partial({key: counts for key, counts in batch.partial.items() if key.slot <= settled})
            rest = Partial({key: counts for key, counts in batch.partial.items() if key.slot > settled})
            self._partials[worker] = self._partials.get(worker, Partial()).merge(rest)
            self._late = self._late.merge(late)
            self._outcomes += batch.outcomes
            if batch.seen:
                self._seen.append((worker, False, bytes(batch.seen)))
            if batch.chains:
                self._chains.append((worker, bytes(batch.chains)))
            if batch.sequences:
                self._sequences.append((worker, bytes(batch.sequences)))
            self._losses.update(batch.lost)
            self._conflicts += batch.conflicts
            for device, digest, outcome in batch.audit:
                if outcome is None:
                    raise StoreError("an outcome is missing")
                if outcome == COUNTED or (device, digest) not in self._audit:
                    self._audit[device, digest] = outcome

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        campaign = self._meta.get("campaign", "")
        return Partial.gather(
            (key._replace(campaign=campaign), counts)
            for partial in (*self._partials.values(), *([self._late] if late else []))
            for key, counts in partial.items()
            if first <= key.slot <= last and kind in (None, key.kind)
        )

    def late_reports(self) -> int:
        return self._late.reports

    def counted_groups(self, first: int = 0) -> set[str]:
        counted = {key.group for partial in self._partials.values() for key in partial if key.slot >= first}
        return counted | {key.group for key in self._late}

    def newest_slot(self) -> int | None:
        return max((key.slot for key in self.partial()), default=None)

    def outcomes(self) -> Counter[str]:
        return Counter({**self._outcomes, RECEIVED: sum(self._outcomes.values())})

    def losses(self) -> dict[tuple[str, int], int]:
        return {key: n for key, n in self._losses.items() if n}

    def conflicts(self) -> dict[str, int]:
        return dict(self._conflicts)

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        return ((device, digest, outcome) for (device, digest), outcome in self._audit.items())

    def devices(self) -> dict[str, Device]:
        return dict(sorted(self._devices.items()))

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        for name in without:
            self._devices.pop(name, None)
        self._devices |= {device.name: device for device in devices}

    def revoked_count(self) -> int:
        return sum(device.state != ACTIVE for device in self._devices.values())

    def seen(self) -> Iterator[tuple[bool, bytes]]:
        return ((is_snapshot, data) for _, is_snapshot, data in self._seen)

    def compact_seen(self, worker: str, snapshot: bytes, *, everyone: bool = False) -> None:
        self._seen = [row for row in self._seen if row[0] != worker and not everyone]
        self._seen.append((worker, True, snapshot))

    def chains(self) -> Iterator[bytes]:
        return (data for _, data in self._chains)

    def sequences(self) -> Iterator[bytes]:
        return (data for _, data in self._sequences)

    def compact_sequences(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        self._sequences = [row for row in self._sequences if row[0] != worker and not everyone]
        self._sequences.append((worker, records))

    def compact_chains(self, worker: str, records: bytes, *, everyone: bool = False) -> None:
        self._chains = [row for row in self._chains if row[0] != worker and not everyone]
        self._chains.append((worker, records))
