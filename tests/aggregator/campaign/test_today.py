"""Today so far, compared with the same day of last week, as the server publishes it for Home Assistant."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from undertone_aggregator.campaign.collection import estimator_of
from undertone_aggregator.campaign.results import open_public
from undertone_aggregator.campaign.today import Today
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.estimate.estimator import Estimator
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.store.store import Store, open_store
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate

DAY, HALF_HOUR = 48, 1800


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CampaignPlan]:
    """Make nine days of reports of a hundred households, which follow three threshold rounds of six hours."""
    path = tmp_path_factory.mktemp("today") / "load.sqlite"
    options = SimulateOptions(devices=100, slots=9 * DAY, rounds=(0.25, 0.25, 0.25), epsilon=8, seed=2)
    simulated = simulate(options)
    simulated.save(path)
    return path, simulated.plan


@pytest.fixture
def store(made: tuple[Path, CampaignPlan]) -> Iterator[Store]:
    with open_store(made[0], read_only=True) as opened:
        yield opened


@pytest.fixture
def estimator(store: Store) -> Estimator:
    return estimator_of(Timeline(store.epochs()), {})


def newest_evening(store: Store) -> int:
    """The newest slot that begins at 20:00 UTC."""
    newest = store.newest_slot()
    assert newest is not None
    return newest - (newest - 40) % DAY


@pytest.mark.slow
def test_it_is_the_difference_that_the_page_shows(
    made: tuple[Path, CampaignPlan], store: Store, estimator: Estimator
) -> None:
    settled = newest_evening(store)
    message = Today(store, made[1]).message(settled, store.epochs()[-1].campaign, estimator)
    assert message is not None
    said = json.loads(message)
    midnight = settled - 40
    with open_public(made[0]) as results:
        (row,) = results.difference(midnight, settled, against="7d")
    assert said == {"campaign": "simulation", "unit": "Wh", **row.row()}
    assert (said["slots"], said["against_slots"]) == (41, 41)
    assert datetime.fromtimestamp(said["against_start"], UTC).hour == 0
    assert said["low"] < said["estimate"] < said["high"]


@pytest.mark.slow
def test_there_is_none_before_a_week_is_over(
    made: tuple[Path, CampaignPlan], store: Store, estimator: Estimator
) -> None:
    today, campaign = Today(store, made[1]), store.epochs()[-1].campaign
    assert today.message(newest_evening(store) - 6 * DAY, campaign, estimator) is None


def test_short_slots_have_a_message_a_minute(
    made: tuple[Path, CampaignPlan], store: Store, estimator: Estimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled, campaign = newest_evening(store), store.epochs()[-1].campaign
    today = Today(store, replace(made[1], slot_seconds=20))
    asked = []
    monkeypatch.setattr(Today, "difference", lambda self, slot, _: asked.append(slot))
    for slot in range(settled, settled + 7):
        today.message(slot, campaign, estimator)
    assert asked == [settled, settled + 3, settled + 6]
