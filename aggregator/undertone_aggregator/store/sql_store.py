"""The store over a SQL database, by SQLAlchemy Core: the same code for SQLite and PostgreSQL.

See `undertone_aggregator.store.store.Store`. A file holds one campaign; several may share a PostgreSQL database.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Table, and_, bindparam, delete, func, or_, select, true

from undertone_aggregator.counts.compact import ReportOrigin
from undertone_aggregator.counts.device_states import SEEN, Segment
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.histograms import Histograms, Slots, SlotSums, Summed, rows_of
from undertone_aggregator.counts.partial import (
    Counts,
    Key,
    Partial,
    add_counts,
    pack_counts,
    reports_in,
    unpack_each,
    unpack_tables,
)
from undertone_aggregator.counts.seen import COUNTED
from undertone_aggregator.design.budget import Budget
from undertone_aggregator.store import tables
from undertone_aggregator.store.database import Database
from undertone_aggregator.store.digests import DigestMask
from undertone_aggregator.store.inventory import REFUSED, Device
from undertone_aggregator.store.store import RECEIVED, SETTLED, Batch
from undertone_shared.campaign import Campaign

# Largest number of keys in one query of `_stored_counts`.
_KEYS = 128
# Largest number of slots whose histograms are in memory while they are added up.
_SLOTS = 96

# (slot, fingerprint, kind, group) of a histogram.
Place = tuple[int, bytes, int, str]


class SqlStore(Database):
    """A campaign's `Store` in a SQL database. Each kind of database has a subclass that opens and locks it.

    A database that several machines share keeps no digests of reports, because the machines have no key in common.
    """

    _mask = DigestMask()

    # --- Methods for entries about the campaign as a whole.

    def meta(self, *names: str) -> dict[str, str]:
        table = tables.meta

        def build() -> Any:
            same = [table.c.name == bindparam(f"name{i}") for i in range(len(names))]
            return select(table.c.name, table.c.value).where(and_(self.own_rows(table), or_(*same) if same else true()))

        values = {f"name{i}": name for i, name in enumerate(names)}
        return dict(self.run(f"meta of {len(names)}", build, [values]))

    def set_meta(self, values: Mapping[str, str]) -> None:
        rows = [{"name": name, "value": value} for name, value in values.items()]
        with self.transaction():
            if SETTLED in values:
                self.execute(self._locking(read=False))
            self.upsert(tables.meta, rows, lambda new: {"value": new.value})
            if "campaign" in values:
                own = tables.campaigns.c.id == self._campaign
                self.execute(tables.campaigns.update().where(own).values(name=values["campaign"]))

    def epochs(self) -> list[Epoch]:
        table = tables.epochs
        rows = self.rows(select(table).where(self.own_rows(table)).order_by(table.c.epoch))
        return [
            Epoch(
                Campaign(bytes(r.body)),
                r.issued_at,
                r.threshold,
                _decoded(r.decoded),
                None if r.epsilon is None else Budget.stored(r.epsilon, r.delta),
            )
            for r in rows
        ]

    def epoch_count(self) -> int:
        table = tables.epochs

        def build() -> Any:
            return select(func.count()).select_from(table).where(self.own_rows(table))

        return int(self.run("epochs", build, [{}])[0][0])

    def add_epoch(self, epoch: Epoch) -> None:
        row = tables.epochs.insert().values(
            campaign=self._campaign,
            epoch=epoch.campaign.epoch,
            fingerprint=epoch.campaign.fingerprint,
            body=bytes(epoch.campaign.body),
            issued_at=epoch.issued_at,
            threshold=epoch.chosen,
            decoded=None if epoch.decoded is None else json.dumps(epoch.decoded),
            epsilon=None if epoch.budget is None else str(epoch.budget.epsilon),
            delta=None if epoch.budget is None else epoch.budget.as_json()["delta"],
        )
        with self.transaction():
            self.execute(row)

    # --- Methods for the counts of reports.

    def commit(self, worker: str, batch: Batch, snapshots: Mapping[str, bytes] | None = None) -> None:
        snapshots = snapshots or {}
        with self.transaction():
            self._add_partial(worker, batch.partial)
            records = (record for record in batch.records() if record[0] not in snapshots)
            self._append(worker, records, is_snapshot=False)
            if snapshots:
                self._replace(worker, snapshots)
            self.upsert(
                tables.losses,
                [
                    {"worker": worker, "grp": group, "slot": slot, "n": n}
                    for (group, slot), n in batch.lost.items()
                    if n
                ],
                lambda new: {"n": tables.losses.c.n + new.n},
            )
            self.upsert(
                tables.conflicts,
                [{"worker": worker, "grp": group, "n": n} for group, n in batch.conflicts.items()],
                lambda new: {"n": tables.conflicts.c.n + new.n},
            )
            self.upsert(
                tables.refusals,
                [
                    {"worker": worker, "reason": reason, "slot": slot, "n": n}
                    for (reason, slot), n in batch.refused.items()
                ],
                lambda new: {"n": tables.refusals.c.n + new.n},
            )
            self.upsert(
                tables.counters,
                [{"worker": worker, "outcome": outcome, "n": n} for outcome, n in batch.outcomes.items()],
                lambda new: {"n": tables.counters.c.n + new.n},
            )
            # The row keeps the first outcome of a report, unless a later delivery of that report was counted.
            self.upsert(
                tables.audit,
                [{"device": device, "digest": digest, "outcome": outcome} for device, digest, outcome in batch.audit],
                lambda new: {"outcome": new.outcome},
                lambda new: new.outcome == COUNTED,
            )

    def _add_partial(self, worker: str, partial: Partial) -> None:
        settled = self._hold_settled()
        for table in (tables.partials, tables.late):
            of_table = {
                key: counts for key, counts in partial.items() if (key.slot <= settled) == (table is tables.late)
            }
            if of_table:
                self._add_counts(table, worker, of_table)

    def _hold_settled(self) -> int:
        """Return the newest settled slot, -1 before the first, and lock it until the transaction ends."""
        table = tables.meta

        def build() -> Any:
            wanted = and_(self.own_rows(table), table.c.name == SETTLED)
            # PostgreSQL locks the row for reading. SQLite has no such lock. It needs none, because it has one writer at
            # a time.
            return select(table.c.value).where(wanted).with_for_update(read=True)

        found = self.run("settled", build, [{}])
        if not found:
            # Before the first slot settles there is no row to lock, so lock the campaign's row and look again.
            self.execute(self._locking(read=True))
            found = self.run("settled", build, [{}])
        return int(found[0][0]) if found else -1

    def _locking(self, *, read: bool) -> Any:
        """Return a query that locks the campaign's row, shared if ``read``, until this transaction ends."""
        table = tables.campaigns
        return select(table.c.id).where(table.c.id == self._campaign).with_for_update(read=read, key_share=not read)

    def _add_counts(self, table: Table, worker: str, added: Mapping[Key, Counts]) -> None:
        """Add histograms to the stored ones by a few selects and one upsert for the whole batch."""
        keys = [(key.slot, key.fingerprint, key.kind, key.group) for key in added]
        packed = dict(self._stored_counts(table, worker, keys))
        stored = dict(zip(packed, unpack_each(list(packed.values())), strict=True))
        rows = []
        for place, counts in zip(keys, added.values(), strict=True):
            merged = add_counts(stored[place], counts) if place in stored else counts
            row = dict(zip(("slot", "fingerprint", "kind", "grp"), place, strict=True))
            rows.append({**row, "worker": worker, "counts": pack_counts(merged)})
            if table is tables.late:
                rows[-1]["n"] = reports_in(place[2], merged)
        self.upsert(table, rows, lambda new: {name: new[name] for name in ("counts", "n") if name in new})

    def _stored_counts(self, table: Table, worker: str, keys: Sequence[Place]) -> Iterator[tuple[Place, bytes]]:
        """Yield (key, packed histogram) for the worker's stored histograms with these ``keys``."""
        names = ("slot", "fingerprint", "kind", "grp")
        for start in range(0, len(keys), _KEYS):
            part = keys[start : start + _KEYS]
            # The number of keys is filled up to a power of two with copies of the last key. So few different statements
            # are compiled.
            size = 1 << (len(part) - 1).bit_length()
            filled = [*part, *[part[-1]] * (size - len(part))]

            def build(size: int = size) -> Any:
                same = [and_(*(table.c[name] == bindparam(f"{name}{i}") for name in names)) for i in range(size)]
                wanted = and_(self.own_rows(table), table.c.worker == bindparam("owner"), or_(*same))
                return select(*(table.c[name] for name in names), table.c.counts).where(wanted)

            values = {
                f"{name}{i}": value for i, key in enumerate(filled) for name, value in zip(names, key, strict=True)
            }
            for slot, fingerprint, kind, group, counts in self.run(
                f"{table.name} of {size}", build, [{"owner": worker, **values}]
            ):
                yield (slot, bytes(fingerprint), kind, group), bytes(counts)

    def partial(self, first: int = 0, last: int = 0xFFFFFFFF, *, kind: int | None = None, late: bool = True) -> Partial:
        parts = [self.histograms(first, last, kind=kind, late=of) for of in ((False, True) if late else (False,))]
        return Partial.gather(item for part in parts for item in part.items())

    def histograms(
        self,
        first: int,
        last: int,
        *,
        kind: int | None = None,
        groups: Collection[str] | None = None,
        late: bool = False,
    ) -> Histograms:
        if groups is not None and not groups:
            return Histograms((), {})
        table = tables.late if late else tables.partials
        # For several groups, the query reads the rows of all groups, and those of other groups are dropped below.
        (only,) = groups if groups is not None and len(groups) == 1 else (None,)
        same = {name: value for name, value in (("kind", kind), ("grp", only)) if value is not None}

        def build() -> Any:
            columns = (table.c.fingerprint, table.c.kind, table.c.slot, table.c.counts, table.c.grp)
            wanted = table.c.slot.between(bindparam("first"), bindparam("last"))
            return select(*columns).where(
                self.own_rows(table), wanted, *(table.c[name] == bindparam(name) for name in same)
            )

        rows = self.run(" ".join((table.name, *same)), build, [{"first": first, "last": last, **same}])
        if groups is not None and only is None:
            wanted = set(groups)
            rows = [row for row in rows if row[4] in wanted]
        names = sorted({row[4] for row in rows})
        number = {name: place for place, name in enumerate(names)}
        columns = {
            origin: rows_of(slots, np.array([number[rows[place][4]] for place in places], dtype=np.intp), counts)
            for origin, (places, slots, counts) in self._columns(rows).items()
        }
        return Histograms(names, columns)

    def _columns(self, rows: Sequence[Any]) -> dict[ReportOrigin, tuple[list[int], Slots, Counts]]:
        """Return (places in ``rows``, slots [n], histograms [n, cells]) by origin.

        Each of ``rows`` begins with fingerprint, kind, slot and packed histogram.
        """
        campaign = self.meta("campaign").get("campaign", "")
        alike: dict[tuple[bytes, int], list[int]] = {}
        for place, row in enumerate(rows):
            alike.setdefault((row[0], row[1]), []).append(place)
        columns: dict[ReportOrigin, list[tuple[list[int], Counts]]] = {}
        for (fingerprint, kind), places in alike.items():
            for some, counts in unpack_tables([rows[place][3] for place in places]):
                origin = ReportOrigin(campaign, bytes(fingerprint), kind, counts.shape[1])
                columns.setdefault(origin, []).append(([places[each] for each in some], counts))
        together = {}
        for origin, parts in columns.items():
            every = [place for places, _ in parts for place in places]
            slots = np.array([rows[place][2] for place in every], dtype=np.int64)
            together[origin] = every, slots, np.concatenate([counts for _, counts in parts])
        return together

    def sums(self, first: int, last: int) -> SlotSums:
        summed, names = self._summed()
        parts = []
        if first <= summed:
            parts.append(self._stored_sums(first, min(last, summed), names))
        begin = self._oldest_slot(max(first, summed + 1))
        while begin is not None and begin <= last:
            end = min(begin + _SLOTS - 1, last)
            parts.append(self.histograms(begin, end).sums())
            begin = self._oldest_slot(end + 1)
        return SlotSums.together(parts)

    def _summed(self) -> tuple[int, list[str]]:
        """Return (newest slot with stored sums, the names of their groups); (-1, no names) before the first."""
        table = tables.sums

        def build() -> Any:
            return select(func.max(table.c.slot)).where(self.own_rows(table))

        (newest,) = self.run("newest sum", build, [{}])[0]
        names = self.meta(tables.SUMMED_GROUPS).get(tables.SUMMED_GROUPS)
        return (-1, []) if newest is None or names is None else (newest, json.loads(names))

    def _stored_sums(self, first: int, last: int, names: list[str]) -> SlotSums:
        table = tables.sums

        def build() -> Any:
            columns = (table.c.fingerprint, table.c.kind, table.c.slot, table.c.counts, table.c.reports)
            wanted = table.c.slot.between(bindparam("first"), bindparam("last"))
            return select(*columns).where(self.own_rows(table), wanted)

        rows = self.run("sums", build, [{"first": first, "last": last}])
        order = sorted(range(len(names)), key=names.__getitem__)
        sums = {}
        for origin, (places, slots, counts) in self._columns(rows).items():
            reports = np.zeros((len(places), len(names)), dtype=np.int64)
            for some, table_of in unpack_tables([rows[place][4] for place in places]):
                reports[some, : table_of.shape[1]] = table_of
            ascending = np.argsort(slots)
            sums[origin] = Summed(slots[ascending], counts[ascending], reports[ascending][:, order])
        return SlotSums([names[place] for place in order], sums)

    def sum_up(self, most: int) -> bool:
        with self.transaction():
            summed, names = self._summed()
            settled = int(self.meta(SETTLED).get(SETTLED, -1))
            first = self._oldest_slot(summed + 1)
            if first is None or first > settled:
                return False
            last = min(settled, first + most - 1)
            sums = self.histograms(first, last).sums()
            names += [name for name in sums.names if name not in names]
            columns = [names.index(name) for name in sums.names]
            rows = []
            for origin, (slots, counts, reports) in sums.tables.items():
                all_groups = np.zeros((len(slots), len(names)), dtype=np.int64)
                all_groups[:, columns] = reports
                for slot, each, of_groups in zip(slots.tolist(), counts, all_groups, strict=True):
                    packed = {"counts": pack_counts(each), "reports": pack_counts(of_groups)}
                    rows.append({"slot": slot, "fingerprint": origin.fingerprint, "kind": origin.kind, **packed})
            self.upsert(tables.sums, rows, lambda new: {"counts": new.counts, "reports": new.reports})
            self.set_meta({tables.SUMMED_GROUPS: json.dumps(names)})
            return last < settled

    def _oldest_slot(self, first: int) -> int | None:
        """Return the oldest slot from ``first`` on with a report that arrived before its slot had settled, or None."""
        table = tables.partials

        def build() -> Any:
            return select(func.min(table.c.slot)).where(self.own_rows(table), table.c.slot >= bindparam("first"))

        oldest: int | None = self.run("oldest slot", build, [{"first": first}])[0][0]
        return oldest

    def late_reports(self) -> int:
        table = tables.late

        def build() -> Any:
            return select(func.sum(table.c.n)).where(self.own_rows(table))

        return int(self.run("late reports", build, [{}])[0][0] or 0)

    def counted_groups(self, first: int = 0) -> set[str]:
        partials, late = tables.partials, tables.late
        summed, names = self._summed() if first == 0 else (-1, [])

        def build() -> Any:
            newer = and_(self.own_rows(partials), partials.c.slot >= bindparam("first"))
            return select(partials.c.grp).where(newer).union(select(late.c.grp).where(self.own_rows(late)))

        newer = self.run("counted groups", build, [{"first": max(first, summed + 1)}])
        return {*names, *(group for (group,) in newer)}

    def newest_slot(self) -> int | None:
        def build() -> Any:
            newest = [
                select(func.max(table.c.slot)).where(self.own_rows(table)) for table in (tables.partials, tables.late)
            ]
            return newest[0].union_all(newest[1])

        rows = self.run("newest slot", build, [{}])
        return max((slot for (slot,) in rows if slot is not None), default=None)

    def outcomes(self) -> Counter[str]:
        table = tables.counters

        def build() -> Any:
            own = self.own_rows(table)
            return select(table.c.outcome, func.sum(table.c.n)).where(own).group_by(table.c.outcome)

        counters = Counter({outcome: int(n) for outcome, n in self.run("outcomes", build, [{}])})
        counters[RECEIVED] = sum(counters.values())
        return counters

    def losses(self) -> dict[tuple[str, int], int]:
        table = tables.losses

        def build() -> Any:
            total = select(table.c.grp, table.c.slot, func.sum(table.c.n)).where(self.own_rows(table))
            return total.group_by(table.c.grp, table.c.slot)

        return {(group, slot): int(n) for group, slot, n in self.run("losses", build, [{}]) if n}

    def lost(self) -> dict[str, tuple[int, int]]:
        table = tables.losses

        def build() -> Any:
            total = func.sum(table.c.n).label("n")
            slots = select(table.c.grp, table.c.slot, total).where(self.own_rows(table))
            missing = slots.group_by(table.c.grp, table.c.slot).having(total > 0).subquery()
            each = select(missing.c.grp, func.sum(missing.c.n), func.min(missing.c.slot))
            return each.group_by(missing.c.grp)

        return {group: (int(n), slot) for group, n, slot in self.run("lost", build, [{}])}

    def conflicts(self) -> dict[str, int]:
        table = tables.conflicts

        def build() -> Any:
            return select(table.c.grp, func.sum(table.c.n)).where(self.own_rows(table)).group_by(table.c.grp)

        return {group: int(n) for group, n in self.run("conflicts", build, [{}])}

    def refusals(self, first: int = 0, last: int = 0xFFFFFFFF) -> dict[tuple[str, int], int]:
        table = tables.refusals
        wanted = and_(self.own_rows(table), table.c.slot.between(first, last))
        total = select(table.c.reason, table.c.slot, func.sum(table.c.n)).where(wanted)
        return {(reason, slot): int(n) for reason, slot, n in self.rows(total.group_by(table.c.reason, table.c.slot))}

    def audit(self) -> Iterator[tuple[str, bytes, str]]:
        table = tables.audit
        for row in self.rows(select(table).where(self.own_rows(table))):
            yield row.device, bytes(row.digest), row.outcome

    # --- Methods for the operator's inventory of devices.

    def groups(self) -> dict[str, str]:
        table = tables.groups
        return dict(self.run("groups", lambda: select(table.c.device, table.c.grp).where(self.own_rows(table)), [{}]))

    def set_groups(self, groups: Mapping[str, str]) -> None:
        table = tables.groups
        with self.transaction():
            self.execute(delete(table).where(self.own_rows(table)))
            rows = [{"device": device, "grp": group} for device, group in groups.items()]
            self.upsert(table, rows, lambda new: {"grp": new.grp})

    def devices(self) -> dict[str, Device]:
        table = tables.devices

        def build() -> Any:
            columns = (table.c.name, table.c.grp, table.c.state, table.c.since)
            return select(*columns).where(self.own_rows(table)).order_by(table.c.name)

        return {row[0]: Device(*row) for row in self.run("devices", build, [{}])}

    def set_devices(self, devices: Iterable[Device], *, without: Iterable[str] = ()) -> None:
        table = tables.devices
        rows = [{"name": d.name, "grp": d.group, "state": d.state, "since": d.since} for d in devices]
        with self.transaction():
            self.execute(delete(table).where(and_(self.own_rows(table), table.c.name.in_(list(without)))))
            self.upsert(table, rows, lambda new: {"grp": new.grp, "state": new.state, "since": new.since})

    def revoked_count(self) -> int:
        table = tables.devices

        def build() -> Any:
            # `run` takes single values only, not the list of values that IN needs.
            refused = or_(*(table.c.state == state for state in REFUSED))
            return select(func.count()).select_from(table).where(and_(self.own_rows(table), refused))

        return int(self.run("revoked", build, [{}])[0][0])

    # --- Methods for the states of devices.

    def segments(self, state: str) -> Iterator[Segment]:
        table = tables.segments
        wanted = and_(self.own_rows(table), table.c.state == state)
        for row in self.rows(select(table).where(wanted).order_by(table.c.id)):
            data = bytes(row.data)
            yield row.is_snapshot, self._mask.show(row.is_snapshot, data) if state == SEEN else data

    def compact(self, state: str, snapshot: bytes) -> None:
        table = tables.segments
        with self.transaction():
            self.execute(delete(table).where(and_(self.own_rows(table), table.c.state == state)))
            self._append("", [(state, snapshot)], is_snapshot=True)

    def _replace(self, worker: str, snapshots: Mapping[str, bytes]) -> None:
        table = tables.segments

        def build() -> Any:
            of_worker = table.c.worker == bindparam("owner")
            return delete(table).where(and_(self.own_rows(table), of_worker, table.c.state == bindparam("replaced")))

        self.run("delete segments", build, [{"owner": worker, "replaced": state} for state in snapshots])
        self._append(worker, snapshots.items(), is_snapshot=True)

    def _append(self, worker: str, states: Iterable[tuple[str, bytes]], *, is_snapshot: bool) -> None:
        same = {"campaign": self._campaign, "worker": worker, "is_snapshot": is_snapshot}
        rows = [
            {**same, "state": state, "data": self._mask.hide(is_snapshot, data) if state == SEEN else data}
            for state, data in states
        ]
        if rows:
            # Without inline(), PostgreSQL would return each row's number.
            self.run("append", lambda: tables.segments.insert().inline(), rows)


def _decoded(text: str | None) -> tuple[tuple[int, ...], int] | None:
    if text is None:
        return None
    numerators, denominator = json.loads(text)
    return tuple(numerators), denominator
