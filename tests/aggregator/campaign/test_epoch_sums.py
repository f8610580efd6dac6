"""Decisions keep sums of old slots: the sums equal those of a fresh reader, and old slots are read only once."""

import numpy as np
import pytest

from support.server import plan, two_epochs
from undertone_aggregator.campaign.epoch_sums import SettledSums
from undertone_aggregator.campaign.evidence import Evidence
from undertone_aggregator.counts.epochs import Timeline, late_seconds
from undertone_aggregator.counts.partial import Key, Partial
from undertone_shared import report

# With slots of a second, a report is counted up to two days after its slot.
SLOT, CYCLE, LATE = 1, 4, late_seconds(1)
ASKED = plan(rounds=[4])


class Store:
    """A store whose reads are recorded; ``counts``: (kind, slot) -> number of reports of each symbol."""

    def __init__(self) -> None:
        self.epochs = two_epochs()
        self.counts: dict[tuple[int, int], int] = {}
        self.reads: list[range] = []

    def read(self, first: int, last: int, kind: int) -> Partial:
        self.reads.append(range(first, last + 1))
        rows = {}
        for (kind_of, slot), count in self.counts.items():
            if kind_of == kind and first <= slot <= last:
                campaign = next(e.campaign for e in reversed(self.epochs) if e.campaign.first_slot <= slot)
                rule = campaign.cohort if kind == report.COHORT else campaign.report
                symbols = np.full(rule.mechanism.symbols, count, dtype=np.int64)
                for group in ("north", "south"):
                    rows[Key("c", campaign.fingerprint, kind, group, slot)] = symbols
        return Partial(rows)


@pytest.mark.parametrize("kind", [report.COHORT, report.REPORT])
def test_kept_sums_equal_a_fresh_readers_while_late_reports_still_come(kind):
    store, kept, generator = Store(), SettledSums(), np.random.default_rng(1)
    timeline, epoch = Timeline(store.epochs), store.epochs[1]
    first = epoch.campaign.first_slot
    for day in range(1, 9):
        now = first + day * LATE
        # Devices report for a few slots of the last days; some slots get a second report, late.
        for slot in generator.integers(max(first, now - LATE), now, 20).tolist():
            store.counts[kind, slot] = store.counts.get((kind, slot), 0) + int(generator.integers(1, 400))
        slots = range(first, now - 2)
        sums = kept.read(store.read, timeline, epoch, slots, kind, now)
        fresh = SettledSums().read(store.read, timeline, epoch, slots, kind, now)
        assert sums.totals == fresh.totals
        assert sums.means == fresh.means
        assert bool(sums.means) == (kind == report.REPORT)
        assert sums.cycles.keys() == fresh.cycles.keys()
        assert all(np.array_equal(parts, fresh.cycles[cycle]) for cycle, parts in sums.cycles.items())
        # The sums of the last days may change. The slots before them are not read again.
        mine, whole = store.reads[-2:]
        assert whole == slots
        assert len(mine) <= 3 * LATE


def test_sums_are_read_again_where_the_slots_are_others():
    store, kept = Store(), SettledSums()
    timeline, epoch = Timeline(store.epochs), store.epochs[1]
    first = epoch.campaign.first_slot
    store.counts = {(report.COHORT, slot): 1 for slot in range(first, first + 8)}
    now = first + 10 * LATE
    for slots in (range(first, first + 8), range(first, first + 3), range(first + 1, first + 8)):
        sums = kept.read(store.read, timeline, epoch, slots, report.COHORT, now)
        assert list(sums.totals) == list(slots)
    kept.forget_others([])
    assert len(kept.read(store.read, timeline, epoch, range(first, first + 8), report.COHORT, now).totals) == 8
    assert store.reads[-1] == range(first, first + 8)


def test_decisions_with_kept_sums_see_the_same_evidence():
    store, kept = Store(), SettledSums()
    first = store.epochs[1].campaign.first_slot
    store.counts = {(kind, slot): 1 + slot % 3 for kind in (0, 1) for slot in range(first, first + 400, 7)}
    for now in (first + 3 * LATE, first + 5 * LATE):
        seen = [Evidence(ASKED, Timeline(store.epochs), store.read, now, *sums) for sums in ((kept,), ())]
        mine, fresh = ([each.most_devices(), each.devices(), each.cohort(), each.reports()] for each in seen)
        assert repr(mine) == repr(fresh)
    # All slots of this short epoch are final at the second decision, which reads none of them again.
    assert store.epochs[1].campaign.last_slot + 1 in {read.start for read in store.reads}
