"""Published numbers, however they are combined, cover no reports or at least min_reports: checked by enumeration."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import numpy as np
import pytest

from support.memory_store import MemoryStore
from support.publication import plain_smallest, plainly_released, shown, smallest_crowd
from undertone_aggregator.counts.partial import EVERYBODY, Key, Partial
from undertone_aggregator.estimate.difference import paired
from undertone_aggregator.estimate.publication import (
    Publication,
    publication_of,
    released,
    settle,
    withhold,
)
from undertone_aggregator.store.store import Batch
from undertone_shared import report

CAMPAIGN = "meters"
EPOCH = bytes(8)
# A published number is a tuple: how often the number contains each report.
Number = tuple[int, ...]
Rule = Callable[[dict[str, int], int], frozenset[str]]


@cache
def isolates(numbers: frozenset[Number], sizes: tuple[int, ...], least: int) -> bool:
    """Whether some combination of the numbers, with any rational weights, covers between 1 and least - 1 reports.

    ``sizes``: the number of reports in each column. A combination over the columns U exists if, and only if, leaving
    out U lowers the rank.
    """
    table = np.array(sorted(numbers), dtype=float).reshape(len(numbers), len(sizes))
    present = [column for column, size in enumerate(sizes) if size]
    rank = np.linalg.matrix_rank(table[:, present]) if numbers else 0
    for count in range(1, least):
        for few in itertools.combinations(present, min(count, len(present))):
            rest = [column for column in present if column not in few]
            if sum(sizes[column] for column in few) < least and (
                (np.linalg.matrix_rank(table[:, rest]) if rest and numbers else 0) < rank
            ):
                return True
    return False


def naive(sizes: dict[str, int], least: int) -> frozenset[str]:
    """Return the groups that a rule would show that judges each number by itself."""
    everybody = {EVERYBODY} if sum(sizes.values()) >= least else set()
    return frozenset(everybody | {group for group, n in sizes.items() if n >= least and group != EVERYBODY})


def numbers_of(groups: list[str], sizes: tuple[int, ...], shown: Iterable[str]) -> frozenset[Number]:
    """Return the number that each shown group has: a tuple with 1 for each group whose reports it adds up, else 0."""
    return frozenset(tuple(int(group in (EVERYBODY, own)) for own in groups) for group in shown if sum(sizes))


def groupings(most: int) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield names of groups with their numbers of reports. `EVERYBODY` stands for the reports of no group."""
    for names in ([EVERYBODY], ["a"], [EVERYBODY, "a"], ["a", "b"], [EVERYBODY, "a", "b"], ["a", "b", "c", "other"]):
        for sizes in itertools.product(range(most + 1), repeat=len(names)):
            yield names, sizes


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_no_combination_of_a_slots_numbers_is_over_a_few_reports(least: int) -> None:
    """For all choices of up to four groups with up to 5 reports each. A larger min_reports adds no published group."""
    for names, sizes in groupings(5):
        of = dict(zip(names, sizes, strict=True))
        published = released(of, least)
        assert published == plainly_released(of, least), of
        assert not isolates(numbers_of(names, sizes, published), sizes, least), (of, published)
        assert released(of, least + 1) <= published, of
        assert smallest_crowd(of, published) == plain_smallest(of, published)
        assert smallest_crowd(of, published) >= (least if published else 0)


def test_nothing_large_enough_is_withheld_without_need() -> None:
    assert released({"a": 300, "b": 200, "c": 10}, 10) == {EVERYBODY, "a", "b", "c"}
    # Everybody less a and b would reveal the one household of c.
    assert released({"a": 300, "b": 200, "c": 1}, 10) == {EVERYBODY, "a"}
    assert released({"a": 300, EVERYBODY: 12}, 10) == {EVERYBODY, "a"}
    assert released({"a": 9}, 10) == frozenset()


def test_the_check_finds_what_one_number_at_a_time_let_out() -> None:
    sizes = {"a": 28, "b": 1}
    shown = naive(sizes, 10)
    assert shown == {EVERYBODY, "a"}
    assert isolates(numbers_of(["a", "b"], (28, 1), shown), (28, 1), 10)


# --- histories: which groups devices are in, and whether each report comes in time, late or never

DEVICES = 4
NEVER, IN_TIME, LATE = range(3)
GROUPS = (EVERYBODY, "a", "b")


def send(store: MemoryStore, rows: Iterable[tuple[int, int, str, int]]) -> None:
    """Commit reports (device, slot, group, kind).

    Each device sends its own symbol, so that counts tell devices apart.
    """
    partial = Partial()
    for device, slot, group, kind in rows:
        partial.add(Key(CAMPAIGN, EPOCH, kind, group, slot), device, DEVICES)
    store.commit("0of1", Batch(partial))


def poll(store: MemoryStore, least: int, slots: int, read: Callable[[MemoryStore, int], "OfGroup"]) -> set[Number]:
    """Every number that is published at this moment, for each group and slot."""
    of = read(store, least)
    numbers = set()
    for group in GROUPS:
        for slot in range(slots):
            vector = np.zeros((slots, DEVICES), dtype=int)
            for key, counts in of(group).items():
                if key.slot == slot:
                    vector[slot] += counts
            numbers.add(tuple(vector.ravel().tolist()))
    return {number for number in numbers if any(number)}


OfGroup = Callable[[str], Partial]


def now(store: MemoryStore, least: int) -> OfGroup:
    return shown(publication_of(store, least), store.partial(late=False)).of


def before(store: MemoryStore, least: int) -> OfGroup:
    """Publish by an unsafe rule: settled slots with all reports so far, each group judged by itself."""
    settled, partial = publication_of(store, least).settled, store.partial()

    def of(group: str) -> Partial:
        mine = [(key, counts) for key, counts in partial.items() if group in (key.group, EVERYBODY)]
        total = sum(int(counts.sum()) for key, counts in mine if key.slot <= settled)
        return Partial.gather(
            (key._replace(group=group), c) for key, c in mine if total >= least and key.slot <= settled
        )

    return of


def histories(slots: int) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Yield (group of each device, when the report of each device and slot comes).

    Histories that differ only in the order of the devices are yielded once.
    """
    of_a_device = list(itertools.product(GROUPS, itertools.product((NEVER, IN_TIME, LATE), repeat=slots)))
    for fleet in itertools.combinations_with_replacement(of_a_device, DEVICES):
        yield tuple(group for group, _ in fleet), tuple(when for _, times in fleet for when in times)


def played(
    groups: tuple[str, ...],
    times: tuple[int, ...],
    least: int,
    read: Callable[[MemoryStore, int], OfGroup],
    poll: Callable[[MemoryStore, int, int, Callable[[MemoryStore, int], OfGroup]], set[Number]] = poll,
) -> frozenset[Number]:
    """Return all that is published during a history. Someone polls while reports come, and after each late report."""
    slots = len(times) // DEVICES
    store = MemoryStore()
    rows = [(device, slot, groups[device], report.REPORT) for device in range(DEVICES) for slot in range(slots)]
    seen: set[Number] = set()
    for slot in range(slots):
        send(store, [row for row, when in zip(rows, times, strict=True) if row[1] == slot and when == IN_TIME])
        seen |= poll(store, least, slots, read)
        settle(store, slot, least)
        seen |= poll(store, least, slots, read)
    for row, when in zip(rows, times, strict=True):
        if when == LATE:
            send(store, [row])
            seen |= poll(store, least, slots, read)
    return frozenset(seen)


# A mean over up to two slots with up to four reports each has weights that become whole numbers if multiplied by this.
WHOLE = 24


def differences(store: MemoryStore, least: int, slots: int, read: Callable[[MemoryStore, int], OfGroup]) -> set[Number]:
    """Every difference of two means that can be asked for now: of any two groups, over any slots on either side."""
    of = read(store, least)
    cells = {group: {key.slot: counts for key, counts in of(group).items()} for group in GROUPS}
    chosen = [asked for n in range(1, slots + 1) for asked in itertools.combinations(range(slots), n)]
    numbers = set()
    for (one, first), (other, second) in itertools.product(itertools.product(GROUPS, chosen), repeat=2):
        sides = [(one, first), (other, second)]
        known = paired(
            *((asked, np.array(sorted(set(asked) & set(cells[group])), dtype=int)) for group, asked in sides)
        )
        if all(len(each) for each in known):
            vector = np.zeros((slots, DEVICES), dtype=int)
            for (group, _), of_side, sign in zip(sides, known, (1, -1), strict=True):
                for slot in of_side.tolist():
                    counts = cells[group][slot]
                    vector[slot] += sign * counts * (WHOLE // (len(of_side) * int(counts.sum())))
            numbers.add(tuple(vector.ravel().tolist()))
    return {number for number in numbers if any(number)}


def compared(groups: tuple[str, ...], times: tuple[int, ...], least: int) -> frozenset[Number]:
    """Every difference that can be asked for in a history, whenever it is asked for."""
    return played(groups, times, least, now, differences)


@pytest.mark.slow
@pytest.mark.parametrize("least", [2, 3])
def test_no_difference_of_means_lets_a_report_out(least: int) -> None:
    """Differences are combined with all other numbers.

    All histories of one slot are tried, and every 290th of the 27,405 histories of two slots.
    """
    for groups, times in itertools.chain(histories(1), itertools.islice(histories(2), 0, None, 290)):
        numbers = played(groups, times, least, now) | compared(groups, times, least)
        assert not isolates(numbers, (1,) * len(times), least), (groups, times)


def test_a_difference_from_a_mean_of_a_few_reports_would_let_one_out() -> None:
    """If b with its single device had a number, the difference a - b and the number of a would reveal the device."""

    def everything(store: MemoryStore, _: int) -> OfGroup:
        return before(store, 1)

    groups, times = ("a", "a", "a", "b"), (IN_TIME,) * DEVICES
    numbers = played(groups, times, 2, everything, differences)
    assert isolates(numbers | played(groups, times, 2, now), (1,) * DEVICES, 2)
    assert not isolates(compared(groups, times, 2) | played(groups, times, 2, now), (1,) * DEVICES, 2)


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("least", [2, 3])
def test_no_history_of_one_slot_lets_a_report_out(least: int) -> None:
    for groups, times in histories(1):
        assert not isolates(played(groups, times, least, now), (1,) * DEVICES, least), (groups, times)


@pytest.mark.slow
def test_no_history_of_two_slots_lets_a_report_out() -> None:
    """The test tries every 29th history."""
    for groups, times in itertools.islice(histories(2), 0, None, 29):
        assert not isolates(played(groups, times, 2, now), (1,) * 2 * DEVICES, 2), (groups, times)


def test_what_was_published_once_is_found_by_the_same_histories() -> None:
    found = [isolates(played(groups, times, 2, before), (1,) * DEVICES, 2) for groups, times in histories(1)]
    assert sum(found) > 100
    one_late = (("a",) * DEVICES, (IN_TIME, IN_TIME, IN_TIME, LATE))
    assert isolates(played(*one_late, 2, before), (1,) * DEVICES, 2)
    assert not isolates(played(*one_late, 2, now), (1,) * DEVICES, 2)


# --- pooled slots, from which quantiles are computed

SLOTS = 4


def pools(counts: tuple[tuple[int, int], ...], publications: Iterable[Publication]) -> frozenset[Number]:
    """Return all numbers that are published: of single slots, and of pooled slots by selection and length of runs.

    ``counts``: (reports for the threshold, others) of each slot. A number has one column for each of these counts.
    """
    partial = Partial()
    for slot, pair in enumerate(counts):
        for kind, n in zip((report.COHORT, report.REPORT), pair, strict=True):
            if n:
                partial.add_counts(Key(CAMPAIGN, EPOCH, kind, EVERYBODY, slot), np.array([n]))
    numbers: set[Number] = set()
    for publication in publications:
        published = shown(publication, partial)
        cells = list(published.of(EVERYBODY))
        for every, first in itertools.product((1, 2, 3, 4), range(SLOTS)):
            for last in range(first, SLOTS):
                pooled = published.pooled(SLOTS, every, first, last)
                for run, kind in itertools.product(range(SLOTS), (report.COHORT, report.REPORT)):
                    cells_of_run = [key for key in pooled if key.slot // every == run and key.kind == kind]
                    numbers.add(vector(cells_of_run))
        numbers |= {vector([key]) for key in cells}
    return frozenset(number for number in numbers if any(number))


def vector(keys: Iterable[Key]) -> Number:
    numbers = [0] * 2 * SLOTS
    for key in keys:
        numbers[2 * key.slot + (key.kind == report.REPORT)] += 1
    return tuple(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("least", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_no_difference_of_pools_is_over_a_few_reports(least: int) -> None:
    """The rule holds for any selection, in runs of any length, while slots settle and after min_reports has changed."""
    polls = [Publication(settled, least, ((0, least),)) for settled in (1, SLOTS - 1)]
    polls += [Publication(SLOTS - 1, changed, ((0, least),)) for changed in (least - 1, least + 1)]
    for counts in itertools.product(itertools.product((0, 1, 2), (0, 3)), repeat=SLOTS):
        sizes = tuple(n for pair in counts for n in pair)
        assert not isolates(pools(counts, polls), sizes, least), counts


def test_what_was_withheld_when_a_slot_settled_stays_so() -> None:
    store = MemoryStore()
    send(store, [(device, 0, EVERYBODY, report.REPORT) for device in range(3)])
    settle(store, 0, 4)
    send(store, [(device, 1, EVERYBODY, report.REPORT) for device in range(3)])
    settle(store, 1, 3)
    assert {key.slot for key in now(store, 3)(EVERYBODY)} == {1}
    assert not now(store, 4)(EVERYBODY)


def test_a_slot_settles_once() -> None:
    store = MemoryStore()
    send(store, [(device, 5, EVERYBODY, report.REPORT) for device in range(3)])
    assert settle(store, 5, 2).settled == 5
    assert settle(store, 3, 2).settled == 5
    send(store, [(3, 5, EVERYBODY, report.REPORT), (3, 4, EVERYBODY, report.REPORT)])
    assert now(store, 2)(EVERYBODY).reports == 3
    assert store.partial().reports == 5
    assert store.late_reports() == 2


def test_a_restored_store_publishes_no_slot_that_another_server_may_have_published() -> None:
    store = MemoryStore()
    for slot in range(4):
        send(store, [(device, slot, EVERYBODY, report.REPORT) for device in range(2)])
    settle(store, 1, 2)
    assert withhold(store, 5, 2) == (2, 5)
    # The restored server now gets the reports that devices had kept. With them slot 3 has three reports, as it had at
    # the lost server.
    send(store, [(2, 3, EVERYBODY, report.REPORT), (0, 6, EVERYBODY, report.REPORT), (1, 6, EVERYBODY, report.REPORT)])
    settle(store, 6, 2)
    publication = publication_of(store, 2)
    assert {key.slot for key in now(store, 2)(EVERYBODY)} == {0, 1, 6}
    assert store.partial().reports == 4 * 2 + 3, "the operator still sees all"
    # A second restore withholds further slots. A restore in which everything has settled withholds nothing more.
    assert withhold(store, 6, 2) is None
    assert withhold(store, 8, 2) == (7, 8)
    assert publication_of(store, 2).withheld == (*publication.withheld, (7, 8)) == ((2, 5), (7, 8))
    assert settle(store, 9, 2).withheld == ((2, 5), (7, 8))


# --- where an epoch begins


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("least", [2, 3])
def test_no_number_is_over_a_few_reports_of_another_epoch(least: int) -> None:
    """A sum of reports by two mechanisms can be taken apart, so each epoch's reports must make numbers of their own."""
    of_a_device = list(itertools.product(GROUPS, (bytes(8), b"previous")))
    for fleet in itertools.combinations_with_replacement(of_a_device, 5):
        for kinds in ((report.REPORT,) * 5, (report.COHORT,) * 5, (report.COHORT,) * 2 + (report.REPORT,) * 3):
            partial = Partial()
            for device, ((group, epoch), kind) in enumerate(zip(fleet, kinds, strict=True)):
                partial.add(Key(CAMPAIGN, epoch, kind, group, 0), device, len(fleet))
            published = shown(Publication(0, least, ((0, least),)), partial)
            parts = [counts for group in GROUPS for counts in published.of(group).values()]
            parts += published.pooled(1, 1, 0, 0).values()
            numbers = frozenset(tuple(counts.tolist()) for counts in parts)
            assert not isolates(numbers, (1,) * len(fleet), least), (fleet, kinds)
            assert published.smallest == 0 or published.smallest >= least


def test_pools_over_slots_are_of_one_epoch_each() -> None:
    """The report of a device that is still in the last epoch's cohort is not pooled with reports of the new epoch."""
    partial = Partial()
    for slot, old in enumerate((True, False, False, False)):
        partial.add(Key(CAMPAIGN, b"previous" if old else EPOCH, report.COHORT, EVERYBODY, slot), 0, 1)
        partial.add_counts(Key(CAMPAIGN, EPOCH, report.REPORT, EVERYBODY, slot), np.array([3]))
    pooled = shown(Publication(3, 3, ((0, 3),)), partial).pooled(SLOTS, SLOTS, 0, SLOTS - 1)
    assert {key.slot for key in pooled if key.kind == report.COHORT} == {1, 2, 3}
