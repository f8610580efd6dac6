"""Publishing by column gives the same numbers as the rules applied slot by slot, with or without stored sums."""

from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete

from support.publication import plainly_shown, shown
from undertone_aggregator.campaign.results import open_public, open_results
from undertone_aggregator.counts.partial import EVERYBODY, Key, Partial
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.publication import Publication, publication_of
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.store import tables
from undertone_aggregator.store.sqlite_store import SqliteStore
from undertone_shared import report
from undertone_studies.large_store import write_large_store

GROUPS = (EVERYBODY, "a", "b", "c")
EPOCHS = (b"previous", b"this one")


def counts_of(seed: int, kind: int) -> Partial:
    """Slots of two epochs with two kinds of reports. Some groups have no histogram, some have a histogram of zeros."""
    rng = np.random.default_rng(seed)
    partial = Partial()
    for slot in rng.permutation(12).tolist():
        for epoch in EPOCHS:
            for of_kind in (report.COHORT, kind):
                for group in GROUPS:
                    if rng.random() < 0.6:
                        counts = rng.integers(0, 4, 3)
                        partial.add_counts(Key("meters", epoch, of_kind, group, slot), counts)
    return partial


@pytest.mark.slow_but("2")
@pytest.mark.parametrize("kind", [report.REPORT, report.STREAM])
def test_columns_show_what_the_rules_show_slot_by_slot(kind: int) -> None:
    publications = [Publication(settled, 4, ((0, 4),)) for settled in (-1, 7, 11)]
    publications += [Publication(11, 3, ((0, 2), (5, 6), (8, 1))), Publication(11, 9), Publication(11, 1)]
    for seed in range(15):
        partial = counts_of(seed, kind)
        for publication in publications:
            columns, plain = shown(publication, partial), plainly_shown(publication, partial)
            assert columns.groups == plain.groups
            assert columns.smallest == plain.smallest
            for group in (*GROUPS, "nobody"):
                assert columns.of(group) == plain.of(group)
            for every, first, last in ((1, 0, 11), (2, 1, 9), (4, 0, 11), (12, 3, 11)):
                assert columns.pooled(4, every, first, last) == plain.pooled(4, every, first, last)


DAY, WEEK = 48, 336
SLOTS = 2 * DAY + WEEK + 30


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two threshold rounds, two report epochs, lost and late reports."""
    path = tmp_path_factory.mktemp("columns") / "large.store"
    write_large_store(path, SLOTS, 3, devices=40)
    return path


def without_sums(path: Path, where: Path) -> Path:
    """Make a copy of a store without its stored sums, and return its path."""
    with SqliteStore(str(path)) as store:
        store.backup(where)
    with SqliteStore(str(where)) as store, store.transaction():
        store.execute(delete(tables.sums))
    return where


@pytest.mark.slow
def test_a_store_publishes_the_same_with_sums_and_without_and_by_the_plain_rules(path: Path, tmp_path: Path) -> None:
    bare = without_sums(path, tmp_path / "bare.store")
    with open_public(path) as results, open_public(bare) as others:
        for chosen in ([EVERYBODY], ["group-01"], ["group-02", EVERYBODY], None):
            ours = results.estimates(groups=chosen, filtered=True, absent=True)
            assert ours == others.estimates(groups=chosen, filtered=True, absent=True)
        assert results.world(ours) == others.world(ours)
        assert results.losses(groups=None) == others.losses(groups=None)
        assert results.ranges(DAY, groups=None) == others.ranges(DAY, groups=None)
        assert results.groups == others.groups
        with SqliteStore(str(path), read_only=True) as store:
            plain = plainly_shown(publication_of(store, results.min_reports), store.partial(late=False))
        for group in results.groups:
            estimates = estimates_of(Reconstruction(results.timeline, {}), plain.of(group), [group])
            assert results.estimates(groups=group) == estimates


@pytest.mark.slow
def test_an_operator_reads_late_reports_as_well(path: Path, tmp_path: Path) -> None:
    bare = without_sums(path, tmp_path / "bare.store")
    with open_results(path) as results, open_results(bare) as others:
        with SqliteStore(str(path), read_only=True) as store:
            every = store.partial()
            assert every.reports > store.partial(late=False).reports
        for group in results.groups:
            estimates = estimates_of(Reconstruction(results.timeline, {}), every, [group])
            assert results.estimates(groups=group) == others.estimates(groups=group) == estimates
