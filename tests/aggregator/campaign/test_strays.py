"""Devices that follow an epoch which this server's campaign does not have are counted, reported, and brought back."""

import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from support import server
from support.factory import policy_of
from support.rounds import DEVICES, NOW, Outlet, report_slot
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.campaign.strays import Strays
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.ingest.admission import LATE, OTHER_CAMPAIGN
from undertone_aggregator.store.store import Batch, Store, open_store
from undertone_shared import report
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Refused
from undertone_shared.policy import parse_policy

CYCLE = 4
# Seconds after the server's first start: when the backup is made, when the epoch is extended, and when the disk fails.
BACKUP, EXTENSION, END = 30, 33, 45


class Fleet:
    """Devices that all follow the same epoch, by a device's own rule of succession, and report for each slot."""

    def __init__(self) -> None:
        self.epochs: list[Campaign] = []
        self.chance = random.Random(7)
        self.policy = parse_policy(json.dumps(policy_of(sensor="load")).encode())

    def hear(self, outlet: Outlet, now: int) -> None:
        for campaign in outlet.campaigns():
            if campaign.fingerprint in {each.fingerprint for each in self.epochs}:
                continue
            newest = self.epochs[-1] if self.epochs else None
            try:
                self.policy.check_succession(campaign, newest, newest.epoch if newest else 0, now)
            except Refused:
                continue
            self.epochs.append(campaign)

    def report(self, store: Store, slot: int) -> str:
        """Report for a slot; return the outcome of the reports, or "" if the devices have no epoch for this slot."""
        begun = [each for each in self.epochs if each.first_slot <= slot]
        if not begun or slot > begun[-1].last_slot:
            return ""
        if begun[-1].fingerprint not in {each.campaign.fingerprint for each in store.epochs()}:
            store.commit("0of1", Batch(refused=Counter({(OTHER_CAMPAIGN, slot + 1): DEVICES})))
            return OTHER_CAMPAIGN
        report_slot(store, slot, self.chance, 40.0)
        return "counted"


@pytest.mark.slow
@pytest.mark.parametrize("extended_again", [False, True])
def test_devices_come_back_after_a_restore_from_a_backup_that_is_older_than_an_extension(
    tmp_path: Path, extended_again: bool
) -> None:
    fleet, said, outcomes = Fleet(), StringIO(), []
    config = server.config(tmp_path, cells=16, report_slots=200)
    longer = replace(config, campaign=replace(config.campaign, report_slots=300))

    def live(seconds: range, config: object) -> None:
        outlet = Outlet()
        with open_store(tmp_path / "s.sqlite") as store:
            store.set_meta({"campaign": "meters"})
            coordinator = Coordinator(config, server.SEED, store, outlet, Journal(said))  # type: ignore[arg-type]
            for second in seconds:
                if second:
                    outcomes.append(fleet.report(store, NOW + second - 1))
                coordinator.tick(NOW + second)
                fleet.hear(outlet, NOW + second)

    live(range(BACKUP), config)
    shutil.copy(tmp_path / "s.sqlite", tmp_path / "backup")
    live(range(BACKUP, EXTENSION), config)
    live(range(EXTENSION, END), longer)
    assert set(outcomes[-(END - BACKUP) :]) == {"counted"}
    shutil.copy(tmp_path / "backup", tmp_path / "s.sqlite")
    outcomes.clear()
    live(range(END, END + 8 * CYCLE), longer if extended_again else config)
    refused = outcomes.count(OTHER_CAMPAIGN)
    assert 0 < refused <= 3 * CYCLE
    assert set(outcomes[refused:]) == {"counted"}
    assert said.getvalue().count("are back") <= 1, "devices whose reports are refused count as present"


class Counts:
    """A store with ``counted`` reports in each slot and, by slot of arrival, the ``refused`` reports."""

    def __init__(self, refused: dict[int, int], counted: int = 0) -> None:
        self.refused, self.counted, self.asked = refused, counted, 0

    def refusals(self, first: int, last: int) -> dict[tuple[str, int], int]:
        self.asked += 1
        wanted = {slot: n for slot, n in self.refused.items() if first <= slot <= last}
        return {(OTHER_CAMPAIGN, slot): n for slot, n in wanted.items()} | {(LATE, slot): 500 for slot in wanted}

    def partial(self, first: int, last: int) -> Partial:
        keys = (Key("meters", bytes(8), report.REPORT, "all", slot) for slot in range(first, last + 1))
        return Partial({key: np.array([self.counted]) for key in keys})


def strays(counts: Counts, now: int, **options: object) -> int:
    return Strays(server.plan(**options)).at(counts, now)  # type: ignore[arg-type]


def test_devices_are_counted_and_not_what_they_kept() -> None:
    # At slot 100 each of fifty devices brings the 96 reports that it kept.
    refused = {100: 50 * 96} | dict.fromkeys(range(101, 110), 50)
    assert [strays(Counts(refused), now) for now in (100, 101, 102, 103, 110)] == [0, 0, 50, 50, 50]
    # The devices have gone: no report is refused any more.
    assert strays(Counts(refused), 112) == 0


@pytest.mark.parametrize(("counted", "found"), [(0, 50), (449, 50), (450, 0)])
def test_a_few_among_many_are_none(counted: int, found: int) -> None:
    """Devices on another epoch are not reported if they are at most a tenth of all devices whose reports arrive."""
    assert strays(Counts(dict.fromkeys(range(90, 110), 50), counted), 110) == found


def test_devices_that_take_turns_are_counted_once_in_a_turn() -> None:
    plan = server.plan(window='"3s"', cycle=5)
    assert plan.stride == 4
    counts = Counts(dict.fromkeys(range(90, 110, 2), 50))
    assert Strays(plan).at(counts, 110) == 100  # type: ignore[arg-type]


def test_the_store_is_asked_once_a_slot() -> None:
    counts, found = Counts(dict.fromkeys(range(90, 110), 50)), Strays(server.plan(slot_seconds=60))
    assert [found.at(counts, 60 * 105 + second) for second in (0, 1, 59)] == [50, 50, 50]  # type: ignore[arg-type]
    assert counts.asked == 1
    found.at(counts, 60 * 106)  # type: ignore[arg-type]
    assert counts.asked == 2
