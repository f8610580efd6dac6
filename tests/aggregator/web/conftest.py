"""A store with some days of simulated half-hours, and the application over a copy of it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.stores import simulated_store
from undertone_aggregator.web.site import StoreSite, named


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One simulated store, which tests may read or copy."""
    return simulated_store(tmp_path_factory)


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "load.sqlite"))


@pytest.fixture
def site(store: Path) -> Iterator[StoreSite]:
    opened = StoreSite(named([str(store)]))
    yield opened
    opened.close()


@pytest.fixture
def name(site: StoreSite) -> str:
    return site.names()[0]


@pytest.fixture
def one_more_report(store: Path) -> Callable[[], None]:
    """Counts reports of a slot after the newest one and settles it, as a running server does."""
    from undertone_aggregator.estimate.publication import settle
    from undertone_aggregator.store.store import Batch, open_store

    def count() -> None:
        with open_store(store) as opened:
            newest = opened.newest_slot()
            assert newest is not None
            batch = Batch()
            for key, counts in opened.partial(newest, newest).items():
                batch.partial = batch.partial.merge(type(batch.partial)({key._replace(slot=newest + 1): counts}))
                batch.outcomes["counted"] += int(counts.sum())
            opened.commit("0of1", batch)
            settle(opened, newest + 1, 10)

    return count
