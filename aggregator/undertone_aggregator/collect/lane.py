"""The fast lane of admission: many plain reports at once, as arrays; everything else goes one by one to the rules.

A report is plain when it is a known device's, under its own topic, in time, admitted by its campaign's rule, and for a
slot after the newest that was counted. `Admission.judge` is the only definition of the rules: what the lane counts,
`judge` would count alike, and the lane refuses nothing. From the first report of a device in a batch that is not plain
all of that device's go to `judge`, so that the order within a device is kept. The order among devices matters to
nothing but the group's gap that a late report closes (`undertone_aggregator.collect.sequences.Losses`).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undertone_aggregator.collect.admission import Admission
from undertone_aggregator.collect.columns import Columns
from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.intake import Delivery
from undertone_aggregator.collect.partial import Key
from undertone_aggregator.collect.seen import COUNTED, NEWER, Seen, digests, gaps, newer, records
from undertone_aggregator.collect.store import Batch

# Fewer deliveries are judged sooner one by one.
LEAST = 24
# Reports of one device in a batch that are looked at together; later ones wait for `judge`.
_ROUNDS = 16

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class _Plain:
    """What was found plain, before anything is changed: ``fast`` [n], per report its span's number and code."""

    fast: Mask
    columns: Columns
    rows: Integers
    codes: NDArray[np.uint64]
    spans: list[Epoch]
    span: Integers
    # Columns of Seen that change, and their new words.
    column: Integers
    words: NDArray[np.uint64]


class Lane:
    """In front of one admission. ``say``: told when the lane failed and a batch went to `judge` as a whole."""

    def __init__(self, admission: Admission, say: Callable[[str], None] = lambda _: None) -> None:
        self._admission = admission
        self._say = say

    def judge(self, deliveries: Sequence[Delivery], now: int, batch: Batch) -> None:
        """Add every delivery to ``batch``, as `Admission.judge` adds them in their order."""
        rest = deliveries
        if len(deliveries) >= LEAST:
            plain = None
            try:
                plain = self._find(deliveries, now)
            except Exception as wrong:
                # A report that breaks the lane must not come back for ever: nothing is changed yet.
                self._say(f"the fast lane failed, a batch is judged one by one: {wrong!r}")
            if plain is not None:
                self._count(plain, deliveries, batch)
                rest = [delivery for delivery, fast in zip(deliveries, plain.fast.tolist(), strict=True) if not fast]
        for topic, payload, retained, _ in rest:
            self._admission.judge(topic, payload, retained, now, batch)

    def _find(self, deliveries: Sequence[Delivery], now: int) -> _Plain:
        admission = self._admission
        seen = admission.seen
        topics, payloads, retained, _ = zip(*deliveries, strict=True)
        rows = admission.devices.rows(topics)
        columns = Columns(payloads)
        good = columns.sound & (rows >= 0) & ~np.array(retained, dtype=bool) & admission.in_time(columns.slot, now)
        spans, span = self._spans(columns, rows, good)
        columns.device[:] = np.where(rows >= 0, admission.devices.keys[rows], np.uint64(0))
        codes = digests(payloads, len(payloads))
        seen.settle()
        fast, column, words = _advance(seen, good, columns.device, columns.slot, codes)
        return _Plain(fast, columns, rows, codes, spans, span, column, words)

    def _spans(self, columns: Columns, rows: Integers, good: Mask) -> tuple[list[Epoch], Integers]:
        """(epochs, which of them each report is of); in ``good`` those stay that their epoch's rule admits."""
        admission = self._admission
        admitted = np.zeros(len(good), dtype=bool)
        number = np.zeros(len(good), dtype=np.int64)
        epochs: list[Epoch] = []
        for fingerprint in np.unique(columns.fingerprint[good]).tolist():
            span = admission.timeline.span(fingerprint.to_bytes(8, "big"))
            if span is None:
                continue
            epoch, first, end = span
            rule, schedule = epoch.campaign.rule, epoch.campaign.schedule
            mine = good & (columns.fingerprint == fingerprint) & (columns.slot >= first) & (columns.slot < end)
            turns = columns.slot + admission.devices.places(schedule, rows, mine)
            member = np.zeros(len(good), dtype=bool)
            if schedule.cohort_stride:
                member = turns % (schedule.stride * schedule.cohort_stride) == 0
            cells = admission.cells(rule.kind)
            mine &= (turns % schedule.stride == 0) & cells.admits(rule, columns, member)
            admitted |= mine
            number[mine] = len(epochs)
            epochs.append(epoch)
        good &= admitted
        return epochs, number

    def _count(self, plain: _Plain, deliveries: Sequence[Delivery], batch: Batch) -> None:
        at = np.flatnonzero(plain.fast)
        if not len(at):
            return
        admission, columns = self._admission, plain.columns
        admission.seen.write(plain.column, plain.words)
        batch.seen += records(columns.device[at], columns.slot[at], plain.codes[at])
        batch.outcomes[COUNTED] += len(at)
        groups = admission.devices.groups[plain.rows]
        # In the order of arrival within each of them: stable.
        order = at[np.lexsort((groups[at], columns.kind[at], columns.slot[at], plain.span[at]))]
        fields = np.stack([plain.span, columns.slot, columns.kind, groups])[:, order]
        starts = np.flatnonzero(np.any(fields[:, 1:] != fields[:, :-1], axis=0)) + 1
        for part in np.split(order, starts):
            number, slot, kind, group = (int(x[part[0]]) for x in (plain.span, columns.slot, columns.kind, groups))
            campaign = plain.spans[number].campaign
            key = Key(campaign.name, campaign.fingerprint, kind, admission.devices.group_name(group), slot)
            cells = admission.cells(campaign.rule.kind)
            cells.add_all(campaign.rule, columns, part, key, admission.chains, batch)
        names = [admission.devices.group_name(group) for group in groups[at].tolist()]
        admission.note_sequences(columns.device[at], columns.slot[at], columns.sequence[at], names, batch)
        if admission.audit:
            for i in at.tolist():
                name = admission.devices.name(int(plain.rows[i]))
                batch.audit.append((name, hashlib.sha256(deliveries[i].payload).digest()[:8], COUNTED))


def _advance(
    seen: Seen, good: Mask, devices: NDArray[np.uint64], slots: Integers, codes: NDArray[np.uint64]
) -> tuple[Mask, Integers, NDArray[np.uint64]]:
    """(which reports are newer, columns of ``seen`` that change, their words): a device's reports in their order."""
    order = np.argsort(devices, kind="stable")
    first = np.ones(len(devices), dtype=bool)
    first[1:] = devices[order[1:]] != devices[order[:-1]]
    starts = np.flatnonzero(first)
    device = np.cumsum(first) - 1
    rank = np.arange(len(devices)) - starts[device]
    column, words = seen.look_up(devices[order[starts]])
    alive = column >= 0
    changed = np.zeros(len(starts), dtype=bool)
    fast = np.zeros(len(devices), dtype=bool)
    for number in range(min(int(rank.max()) + 1, _ROUNDS)):
        here = np.flatnonzero(rank == number)
        at, who = order[here], device[here]
        gap = gaps(words[:, who], slots[at])
        plain = good[at] & alive[who] & (gap >= 1) & (gap <= NEWER)
        alive[who[~plain]] = False
        at, who = at[plain], who[plain]
        words[:, who] = newer(words[:, who], slots[at], codes[at])
        fast[at] = changed[who] = True
    return fast, column[changed], words[:, changed]
