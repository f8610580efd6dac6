"""What is published, case by case: bundles of slots, when slots settle, and the groups whose counts are shown."""

from collections.abc import Iterable

import numpy as np
import pytest

from support.memory_store import MemoryStore
from support.publication import Shown, shown, smallest_crowd
from undertone_aggregator.counts.partial import EVERYBODY, Key, Partial
from undertone_aggregator.estimate.publication import (
    Publication,
    only_told,
    publication_of,
    settle,
    tell_groups,
    told_groups,
)
from undertone_aggregator.store.inventory import Device
from undertone_aggregator.store.store import Batch
from undertone_shared import report

CAMPAIGN = "meters"
EPOCH = bytes(8)

# --- pooled slots, from which quantiles are computed


def slots_of(counts: Iterable[int], others: int) -> Partial:
    """Make slots from 0 on.

    Slot i has ``counts[i]`` reports for the threshold, and each has ``others`` other reports.
    """
    partial = Partial()
    for slot, n in enumerate(counts):
        for kind, number in ((report.COHORT, n), (report.REPORT, others)):
            if number:
                partial.add_counts(Key(CAMPAIGN, EPOCH, kind, EVERYBODY, slot), np.array([number]))
    return partial


def pooled_slots(published: Shown, every: int, first: int, last: int, kind: int) -> list[int]:
    """The slots whose cells of a kind are pooled, in cycles of four."""
    return sorted(key.slot for key in published.pooled(4, every, first, last) if key.kind == kind)


def test_a_bundle_is_the_shortest_run_within_a_cycle_with_enough_reports_for_the_threshold() -> None:
    """With two reports for the threshold as the least, the bundles are the slots [0, 1], [3] and [8, 10].

    Slot 7 has one such report, and no other follows in its cycle.
    """
    published = shown(Publication(11, 2, ((0, 2),)), slots_of((1, 1, 0, 2, 0, 0, 0, 1, 1, 0, 1, 0), 3))
    assert pooled_slots(published, 12, 0, 11, report.COHORT) == [0, 1, 3, 8, 10]
    assert pooled_slots(published, 12, 0, 11, report.REPORT) == list(range(12))
    # If a selection cuts a bundle, it contains no part of the bundle.
    assert pooled_slots(published, 12, 1, 11, report.COHORT) == [3, 8, 10]
    assert pooled_slots(published, 12, 0, 9, report.COHORT) == [0, 1, 3]
    assert pooled_slots(published, 12, 0, 1, report.COHORT) == [0, 1]
    assert pooled_slots(published, 12, 3, 3, report.COHORT) == [3]
    assert pooled_slots(published, 12, 4, 6, report.REPORT) == [4, 5, 6]
    # Runs of one slot hold only a bundle of one slot. Runs of two or three put slots 8 and 10 into different runs.
    assert pooled_slots(published, 1, 0, 11, report.COHORT) == [3]
    assert pooled_slots(published, 2, 0, 11, report.COHORT) == [0, 1, 3]
    assert pooled_slots(published, 3, 0, 11, report.COHORT) == [0, 1, 3]
    assert pooled_slots(published, 4, 0, 11, report.COHORT) == [0, 1, 3, 8, 10]


def test_a_bundle_begins_with_a_report_for_the_threshold() -> None:
    published = shown(Publication(3, 2, ((0, 2),)), slots_of((0, 1, 0, 1), 3))
    assert pooled_slots(published, 4, 1, 3, report.COHORT) == [1, 3]


def test_slots_of_a_threshold_round_are_bundled_with_no_other() -> None:
    """In a threshold round, all reports are for the threshold.

    Each slot is a bundle alone or, if too small, is withheld.
    """
    published = shown(Publication(3, 2, ((0, 2),)), slots_of((1, 1, 2, 0), 0))
    assert pooled_slots(published, 4, 0, 3, report.COHORT) == [2]


def test_a_bundle_over_a_change_of_min_reports_obeys_the_larger_one() -> None:
    few = slots_of((1, 1, 1, 1), 5)
    # Slot 0 settled when min_reports was 4, the others when it was 2. The bundles are [0, 1] and [2, 3].
    published = shown(Publication(3, 2, ((0, 4), (1, 2))), few)
    assert pooled_slots(published, 4, 0, 3, report.COHORT) == [2, 3]
    assert pooled_slots(shown(Publication(3, 2, ((0, 2),)), few), 4, 0, 3, report.COHORT) == [0, 1, 2, 3]
    assert pooled_slots(shown(Publication(3, 3, ((0, 2),)), few), 4, 0, 3, report.COHORT) == []


def test_groups_of_a_threshold_round_are_released_as_those_of_any_slot() -> None:
    partial = Partial()
    for group, n in (("a", 5), ("b", 3), ("c", 2)):
        partial.add_counts(Key(CAMPAIGN, EPOCH, report.COHORT, group, 7), np.array([n]))
    published = shown(Publication(7, 3, ((0, 3),)), partial)
    # b is withheld, too: all devices less a are then those of b and c together, which sent five reports.
    assert published.groups == ["a", EVERYBODY]
    assert [published.of(group).reports for group in ("a", EVERYBODY, "b")] == [5, 10, 0]
    # A threshold round publishes no measured mean, so there is no crowd to state.
    assert published.smallest == 0


def test_the_smallest_crowd_is_that_of_the_worst_slot() -> None:
    """A slot that releases nothing has no smallest crowd."""
    partial = Partial()
    for slot, sizes in ((1, {"a": 9, "b": 7}), (2, {"a": 4, "b": 9}), (3, {"a": 2})):
        for group, n in sizes.items():
            partial.add_counts(Key(CAMPAIGN, EPOCH, report.REPORT, group, slot), np.array([n]))
    assert shown(Publication(3, 3, ((0, 3),)), partial).smallest == 4
    assert shown(Publication(1, 3, ((0, 3),)), partial).smallest == 7


def test_a_slot_obeys_the_larger_min_reports_of_then_and_now() -> None:
    publication = Publication(9, 5, ((2, 3), (6, 4)))
    assert [*publication.then(np.array([0, 1, 2, 5, 6, 9]))] == [5, 5, 3, 3, 4, 4]
    assert Publication.of({}, 5) == Publication(-1, 5)


def test_what_is_noted_when_slots_settle() -> None:
    """When min_reports changes, the store notes the first slot that settles under the new number.

    Settling a slot that has already settled changes nothing.
    """
    store = MemoryStore()
    for slot, least, since in [
        (5, 2, ((0, 2),)),
        (9, 2, ((0, 2),)),
        (9, 4, ((0, 2),)),
        (3, 4, ((0, 2),)),
        (12, 4, ((0, 2), (10, 4))),
        (13, 2, ((0, 2), (10, 4), (13, 2))),
    ]:
        settled = settle(store, slot, least)
        assert settled == publication_of(store, least)
        assert (settled.settled, settled.since) == (max(slot, 9) if slot == 3 else slot, since)


def test_among_nothing_released_nobody_hides() -> None:
    assert smallest_crowd({"a": 2}, frozenset()) == 0
    assert shown(Publication(9, 2), Partial()).smallest == 0
    assert smallest_crowd({"a": 5, "b": 3}, frozenset({EVERYBODY})) == 8
    assert smallest_crowd({"a": 5, "b": 3}, frozenset({EVERYBODY, "a"})) == 3


# --- counts

LEAST = 10


def fleet_of(**sizes: int) -> MemoryStore:
    """A store whose inventory has ``sizes`` active devices in each group."""
    store = MemoryStore()
    enrol(store, **sizes)
    return store


def enrol(store: MemoryStore, **sizes: int) -> None:
    """Replace the inventory."""
    rows = [Device(f"{group}-{number}", group, "active", 0) for group, n in sizes.items() for number in range(n)]
    store.set_devices(rows, without=list(store.devices()))


def test_counts_are_told_of_groups_that_are_large_enough() -> None:
    """If a group has one household, "1 reporting, 0 silent" reveals that the household is there."""
    store = fleet_of(east=12, solo=1, west=11)
    # West is withheld: everybody's count less those of east and west would be the count of solo.
    assert tell_groups(store, LEAST) == {EVERYBODY, "east"}
    assert told_groups(store, publication_of(store, LEAST)) == {EVERYBODY, "east"}
    losses = {"east": (3, 70), "solo": (2, 60), "west": (1, 80)}
    told = told_groups(store, publication_of(store, LEAST))
    assert only_told(losses, told) == {"east": (3, 70), EVERYBODY: (6, 60)}
    assert only_told({}, {"east"}) == {}


def test_groups_that_are_told_in_turn_leave_no_other() -> None:
    """Counts add up over time: showing east today and west tomorrow would reveal solo by subtraction."""
    store = fleet_of(east=12, solo=1, west=11)
    assert tell_groups(store, LEAST) == {EVERYBODY, "east"}
    enrol(store, east=11, solo=1, west=12)
    assert tell_groups(store, LEAST) == {EVERYBODY, "east"}
    enrol(store, east=9, solo=1, west=12)
    assert tell_groups(store, LEAST) == {EVERYBODY}
    enrol(store, east=12, solo=10, west=12)
    assert tell_groups(store, LEAST) == {EVERYBODY, "east", "solo", "west"}


@pytest.mark.parametrize("counted", ["lost", "conflicting", "reporting"])
def test_a_group_of_which_no_device_is_known_is_counted_as_there(counted: str) -> None:
    """A group with one unknown household has counts, because its device was revoked or was never in the inventory."""
    store = fleet_of(east=12, west=11)
    batch = Batch()
    if counted == "lost":
        batch.lost["solo", 3] = 2
    elif counted == "conflicting":
        batch.conflicts["solo"] = 2
    else:
        batch.partial.add(Key(CAMPAIGN, EPOCH, report.REPORT, "solo", 0), 0, 1)
    store.commit("0of1", batch)
    settle(store, 0, LEAST)
    assert tell_groups(store, LEAST) == {EVERYBODY, "east"}
    # An unknown device hides nobody, so it is not counted beside the nine devices of west, and nine are too few.
    enrol(store, east=12, west=9)
    assert tell_groups(store, LEAST) == {EVERYBODY}


def test_without_an_inventory_the_newest_settled_slot_says_how_large_groups_are() -> None:
    store = MemoryStore()
    assert tell_groups(store, 2) == frozenset()
    partial = Partial()
    for group, n in (("a", 3), ("b", 1)):
        partial.add_counts(Key(CAMPAIGN, EPOCH, report.REPORT, group, 7), np.array([n]))
    store.commit("0of1", Batch(partial))
    settle(store, 7, 1)
    assert tell_groups(store, 2) == {EVERYBODY}
    assert tell_groups(store, 1) == {EVERYBODY, "a", "b"}
    assert told_groups(store, publication_of(store, 2)) == {EVERYBODY}


def test_groups_of_which_nobody_is_known_do_not_make_up_a_household() -> None:
    """The campaign asks for two households and one is known.

    Unknown groups, however many, do not count as a second one.
    """
    for others in range(1, 6):
        store = fleet_of(a=1)
        batch = Batch()
        names = [f"unknown-{number}" for number in range(others)]
        for name in names:
            batch.lost[name, 3] = 1
        store.commit("0of1", batch)
        assert tell_groups(store, 2) == frozenset()
        assert tell_groups(store, 1) == {EVERYBODY}
        assert told_groups(store, Publication(0, 2, told=frozenset({"a", *names}))) == frozenset()
        enrol(store, a=2)
        assert told_groups(store, Publication(0, 2, told=frozenset(names))) == {EVERYBODY}
