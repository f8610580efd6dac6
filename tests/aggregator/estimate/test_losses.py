"""For each slot: reports that came late, losses that were noticed in it, and deliveries that were refused in it."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from support.command import undertone
from support.stores import simulated_store
from undertone_aggregator.campaign.results import open_public, open_results
from undertone_aggregator.counts.partial import Partial
from undertone_aggregator.estimate.losses import Gap, SlotLosses, SlotRefusals, gaps
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import Batch, open_store


def row(slot: int, reports: int = 5, late: int | None = 0, lost: int | None = 0) -> SlotLosses:
    return SlotLosses(slot, 60 * slot, "all", reports, late, lost, None if late is None else 1)


def test_gaps_are_runs_of_slots_in_which_something_is_missing() -> None:
    assert gaps([row(1), row(2)], 60) == []
    found = gaps([row(1), row(2, 0), row(3, 5, 2), row(4, 5, 0, 3), row(5), row(6, 0)], 60)
    assert found == [Gap(120, 300, "all", 3, 1, 2, 3, 3), Gap(360, 420, "all", 1, 1, 0, 0, 1)]
    assert gaps([row(2, 0, None, None)], 60) == [Gap(120, 180, "all", 1, 1, None, None, None)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    """A store with 40 late reports of the second newest slot, three lost reports of the newest slot, and refusals."""
    path = Path(shutil.copy(made, tmp_path / "load.sqlite"))
    with open_store(path) as opened:
        newest = opened.newest_slot()
        assert newest is not None
        (key, counts), *_ = [
            (key, counts) for key, counts in opened.partial(newest - 1, newest - 1).items() if not key.kind
        ]
        late = counts * 0
        late[0] = 40
        batch = Batch(Partial({key: late}), Counter(counted=40))
        batch.lost["all", newest] = 3
        batch.refused.update({("late", newest - 1): 2, ("symbol", newest - 1): 1, ("late", newest + 1): 9})
        opened.commit("0of1", batch)
    return path


def test_late_and_lost_reports_have_their_slot(store: Path) -> None:
    with open_public(store) as public, open_results(store) as operator:
        newest = public.settled
        rows, mine = public.losses(newest - 2, newest), operator.losses(newest - 2, newest)
        assert [(each.slot, each.late, each.lost) for each in rows] == [
            (newest - 2, 0, 0),
            (newest - 1, 40, 0),
            (newest, 0, 3),
        ]
        shown = {each.slot: each.reports + each.cohort for each in public.estimates(newest - 2, newest)}
        assert {each.slot: each.reports for each in rows} == shown
        # Numbers for the operator contain late reports; published numbers do not.
        assert [each.reports for each in mine] == [each.reports + (each.late or 0) for each in rows]
        whole = public.losses()
        first = public.timeline.epochs[0].campaign.first_slot
        assert [each.slot for each in whole] == list(range(first, newest + 1))


def test_refused_deliveries_have_their_slot_of_arrival_and_their_reason(store: Path) -> None:
    with open_public(store) as public, open_results(store) as operator:
        newest, seconds = public.settled, public.campaign.slot_seconds
        rows = public.losses(newest - 2, newest)
        assert [each.refused for each in rows] == [0, 3, 0]
        start = (newest - 1) * seconds
        found = [SlotRefusals(newest - 1, start, "late", 2), SlotRefusals(newest - 1, start, "symbol", 1)]
        assert public.refusals() == operator.refusals() == found
        assert public.refusals(newest, newest) == []
        assert gaps(rows, seconds)[-1].refused == 3


def test_refused_deliveries_of_a_small_fleet_are_not_published(store: Path) -> None:
    with open_public(store) as public:
        newest, most = public.settled, max(row.reports for row in public.losses())
    with open_store(store) as opened:
        opened.set_devices(Device(f"d{i}", "all", ACTIVE, 0) for i in range(most))
        opened.set_meta({"min_reports": str(most + 1)})
    with open_public(store) as public, open_results(store) as operator:
        assert public.refusals() == []
        assert {row.refused for row in public.losses(newest - 2, newest)} == {None}
        assert len(operator.refusals()) == 2


def test_a_command_prints_gaps_and_writes_every_slot(store: Path) -> None:
    said = undertone("query", store, "--losses")
    assert said.returncode == 0, said.stderr
    with open_results(store) as results:
        rows, found = results.losses(), gaps(results.losses(), results.campaign.slot_seconds)
    assert found
    assert found[-1].lost == 3
    assert len([line for line in said.stdout.splitlines() if line.startswith("│")]) == len(found)
    written = undertone("query", store, "--losses", "--format", "csv")
    assert len(written.stdout.splitlines()) == 1 + len(rows)
    assert "--losses" in undertone("query", store, "--losses", "--every", 48).stderr
