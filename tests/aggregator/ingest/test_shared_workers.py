"""A worker joins a campaign that a server has begun, and never makes a campaign."""

import threading
from pathlib import Path

import pytest

from support.refusal import refused
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.ingest.shared_workers import WorkerContext, work_on_partitions
from undertone_aggregator.store.sqlite_store import SqliteStore
from undertone_aggregator.store.store import NoStore, campaigns_in, open_store


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of several campaigns. SQLite stands for PostgreSQL, so no database server is needed."""
    monkeypatch.setattr(SqliteStore, "_several", True)
    path = tmp_path / "several.sqlite"
    for name in ("load", "water"):
        open_store(path, campaign=name).close()
    return path


def join(url: Path, campaign: str) -> list[str]:
    """Let a worker join, stop it at its first sentence, and return what it has said."""
    stop, said = threading.Event(), []

    def say(sentence: str) -> None:
        said.append(sentence)
        stop.set()

    work_on_partitions(
        campaign, WorkerContext(str(url), cells_of, lambda plan, say: None, say), stop, lambda ready: None
    )  # type: ignore[arg-type, return-value]
    return said


def test_a_slip_in_a_campaigns_name_is_refused_and_makes_no_campaign(database: Path) -> None:
    with refused("campaign", "'laod'"):
        join(database, "laod")
    assert campaigns_in(database) == ["load", "water"]
    with pytest.raises(NoStore):
        open_store(database, campaign="laod", create=False)


def test_a_campaign_that_is_there_is_waited_for(database: Path) -> None:
    assert join(database, "load") == ["no server has begun the campaign yet: waiting for one"]
    assert campaigns_in(database) == ["load", "water"]


def test_a_database_that_no_server_has_used_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    assert join(path, "load") == ["no server has begun the campaign yet: waiting for one"]
    assert campaigns_in(path) == []
