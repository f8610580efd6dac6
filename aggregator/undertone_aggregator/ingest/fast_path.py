"""The fast path of admission: counts many plain reports at once, as arrays, and leaves all others to the rules.

A report is plain when its topic is that of a device which is not revoked, it is in time, its campaign's rule admits it,
and its slot is newer than any counted one of the device, but not by more than 63 slots. `Admission.judge` is the only
definition of the rules. It would count the same reports in the same way, and the fast path itself refuses no report. If
a report in a batch is not plain, this report and all later ones of its device go to `judge`, so that the order within a
device is kept. The order among devices is not kept; it decides only in which slot a late report is no longer counted as
missing (`undertone_aggregator.counts.sequences.MissingReports`).
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from undertone_aggregator.base.timing import FAILURES
from undertone_aggregator.counts.columns import Columns, unpack
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.counts.seen import COUNTED, digests
from undertone_aggregator.ingest.admission import Admission
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.ingest.tally import Admitted, Integers, Mask
from undertone_aggregator.store.store import Batch

# Least number of deliveries for the fast path: with fewer, judging them one by one is faster.
LEAST = 24
# Exceptions that an unexpected value raises in code on arrays. Any other exception is an error of the program.
ARRAY_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)


class FastPath:
    """Judges the plain reports of a batch together, and the others one by one by ``admission``.

    The result is the same as if all were judged one by one. If judging them together fails, the whole batch is judged
    one by one. Then `FAILURES` counts the batch, and ``say`` gets a sentence, which is an alarm.
    """

    def __init__(self, admission: Admission, say: Callable[[str], None] = lambda _: None) -> None:
        self._admission = admission
        self._say = say

    def judge(self, deliveries: Sequence[Delivery], now: int, batch: Batch) -> None:
        """Add every delivery to ``batch``, with the same result as `Admission.judge` of each in their order."""
        rest = deliveries
        if len(deliveries) >= LEAST:
            plain = None
            try:
                admitted, rows = self.admitted(deliveries, now)
                plain = self._admission.newer(admitted)
            except ARRAY_ERRORS as wrong:
                # A report on which the fast path fails must still be handled now, or the broker would deliver it again
                # for ever. Nothing has been changed yet, so `judge` can take the whole batch.
                FAILURES[self._admission.campaign] += 1
                self._say(
                    f"alarm: reports cannot be counted together; each is counted by itself, none is lost: {wrong!r}"
                )
            if plain is not None:
                self._admission.count_newer(admitted, plain, batch)
                self._audit(plain.fast, rows, deliveries, batch)
                rest = [deliveries[i] for i in np.flatnonzero(~plain.fast).tolist()]
        for topic, payload, retained, _ in rest:
            self._admission.judge(topic, payload, retained, now, batch)

    def admitted(self, deliveries: Sequence[Delivery], now: int) -> tuple[Admitted, Integers]:
        """Return (deliveries as arrays, with a mask of admitted ones; their devices' rows in ``admission.devices``)."""
        admission = self._admission
        topics, payloads, retained, _ = zip(*deliveries, strict=True)
        rows = admission.devices.rows(topics)
        columns, sound = unpack(payloads)
        good = sound & (rows >= 0) & ~np.array(retained, dtype=bool) & admission.in_time(columns.slot, now)
        epochs, epoch = self._epochs(columns, rows, good)
        columns.device[:] = np.where(rows >= 0, admission.devices.keys[rows], np.uint64(0))
        groups, name = admission.devices.groups[rows], admission.devices.group_name
        return Admitted(good, columns, digests(payloads, len(payloads)), epochs, epoch, groups, name), rows

    def _epochs(self, columns: Columns, rows: Integers, good: Mask) -> tuple[list[Epoch], Integers]:
        """Return (epochs, the index of each report's epoch); clear ``good`` for the reports that the rules refuse."""
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
            of_epoch = good & (columns.fingerprint == fingerprint) & (columns.slot >= first) & (columns.slot < end)
            turns = columns.slot + admission.devices.places(schedule, rows, of_epoch)
            member = np.zeros(len(good), dtype=bool)
            if schedule.cohort_stride:
                member = turns % (schedule.stride * schedule.cohort_stride) == 0
            cells = admission.cells(rule.kind)
            of_epoch &= (turns % schedule.stride == 0) & cells.admits(rule, columns, member)
            admitted |= of_epoch
            number[of_epoch] = len(epochs)
            epochs.append(epoch)
        good &= admitted
        return epochs, number

    def _audit(self, fast: Mask, rows: Integers, deliveries: Sequence[Delivery], batch: Batch) -> None:
        if self._admission.audit:
            for i in np.flatnonzero(fast).tolist():
                name = self._admission.devices.name(int(rows[i]))
                batch.audit.append((name, hashlib.sha256(deliveries[i].payload).digest()[:8], COUNTED))
