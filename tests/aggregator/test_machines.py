"""Several machines on one database: each is killed, stopped or restarted, and every report is counted exactly once.

A machine is a process here. The short form has leases of 2 s, the long one the usual ones and pauses of a minute.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import deliveries
from support.ci import unavailable
from support.deliveries import Sender, wait_for
from support.machines import PARTITIONS, Site, Watchman
from support.postgres import MISSING, Postgres, folder_of_binaries
from support.reports import expected, some_reports
from undertone_aggregator.broker import ManagedBroker
from undertone_aggregator.collect.epochs import Timeline
from undertone_aggregator.collect.store import StoreError, open_store
from undertone_shared.campaign import Campaign


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagedBroker]:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with deliveries.open_broker(tmp_path / "b", autosave_seconds=1) as made:
        yield made


@pytest.fixture
def database(free_port: Callable[[], int]) -> Iterator[Postgres]:
    """A server of this test's own: it is killed."""
    if folder_of_binaries() is None:
        unavailable(MISSING)
    server = Postgres(free_port())
    yield server
    server.close()


@pytest.fixture
def sender(broker: ManagedBroker) -> Iterator[Sender]:
    made = Sender(broker)
    yield made
    made.close()


class Fleet:
    """Sends reports of one slot after the other while things go wrong."""

    def __init__(self, sender: Sender, campaign: Campaign, seed: int) -> None:
        self._sender = sender
        self._campaign = campaign
        self._chance = random.Random(seed)
        self._slot = 0
        self.made: list[int] = []

    def send(self, count: int = 60) -> None:
        batch = some_reports(self._campaign, self._chance, self._slot % 40, count)
        self._slot += 1
        self.made += self._sender.send(batch)

    def go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.send(12)
            time.sleep(0.3)


def begin(site: Site, sender: Sender, seed: int) -> Fleet:
    """Start a server, wait for its campaign."""
    site.server("a")

    def issued() -> bool:
        try:
            with open_store(site.store, read_only=True) as store:
                return store.epoch_count() > 0
        except (StoreError, ValueError):
            return False

    wait_for(issued, 60, "the first epoch")
    with open_store(site.store, read_only=True) as store:
        return Fleet(sender, store.epochs()[0].campaign, seed)


def check_counts(site: Site, sender: Sender, fleet: Fleet, seconds: float = 30.0) -> None:
    """Whatever was sent has the outcome that one admission gives it, and is counted once."""
    sender.flush(fleet.made)
    with open_store(site.store, read_only=True) as store:
        partial, outcomes = expected(fleet._campaign, Timeline(store.epochs()), sender.sent)

        def complete() -> bool:
            return {(device, code): outcome for device, code, outcome in store.audit()} == outcomes

        wait_for(complete, seconds, "the last outcome")
        counts = store.outcomes()
        assert store.partial() == partial
        assert counts["counted"] == partial.reports
        assert counts["received"] == sum(n for outcome, n in counts.items() if outcome != "received")


def ordeal(site: Site, sender: Sender, database: Postgres, pause: float) -> dict[str, float]:
    """Every fault once; for each role the longest time without an owner. ``pause``: how long a worker is stopped."""
    fleet = begin(site, sender, seed=18)
    site.server("b")
    site.worker("c")
    site.wait_until_shared("a", "b", "c")
    watchman = Watchman(site)
    fleet.go_on(1)

    # A worker dies: its partitions go to the others.
    site.send("c", signal.SIGKILL)
    fleet.go_on(1)
    site.wait_until_shared("a", "b")
    site.worker("c")

    # The coordinator dies: the other server is elected.
    first = site.coordinator()
    assert first in ("a", "b")
    site.send(first, signal.SIGKILL)
    other = "b" if first == "a" else "a"
    fleet.go_on(1)
    wait_for(lambda: site.coordinator() == other, what="the election")
    site.server(first)
    site.wait_until_shared("a", "b", "c")
    assert site.coordinator() == other

    # The database dies and comes back.
    database.kill()
    fleet.go_on(1)
    database.start()
    site.wait_until_shared("a", "b", "c")
    fleet.go_on(1)

    # A worker stops between judging a batch and committing it, others take over, it comes back.
    site.stop_before_commit("c")
    until = time.monotonic() + 30
    while not site.is_stopped("c"):
        assert time.monotonic() < until
        fleet.go_on(0.3)
    stopped = time.monotonic()
    fleet.go_on(1)
    site.wait_until_shared("a", "b", seconds=site.lease_seconds + 15)
    time.sleep(max(0.0, stopped + pause - time.monotonic()))
    site.send("c", signal.SIGCONT)
    wait_for(lambda: "it is another worker's now" in site.log("c"), what="the refusal of the late commit")
    site.wait_until_shared("a", "b", "c")

    # A rolling restart, the coordinator's last.
    for name in ("c", first, other):
        site.end(name)
        site.worker(name) if name == "c" else site.server(name)
        fleet.go_on(1)
    site.wait_until_shared("a", "b", "c")
    check_counts(site, sender, fleet)
    watchman.close()
    return watchman.longest


@pytest.mark.services
def test_machines_die_stop_and_come_back(
    tmp_path: Path, broker: ManagedBroker, sender: Sender, database: Postgres
) -> None:
    site = Site(tmp_path, database.new_database(), f"port = {broker.port}", lease_seconds=2)
    try:
        longest = ordeal(site, sender, database, pause=4)
    finally:
        site.close()
    assert len(longest) == PARTITIONS + 1
    assert max(longest.values()) < 15, longest


@pytest.mark.slow
def test_machines_die_and_stop_for_a_minute(
    tmp_path: Path, broker: ManagedBroker, sender: Sender, database: Postgres
) -> None:
    """As a server is configured: leases of 15 s."""
    site = Site(tmp_path, database.new_database(), f"port = {broker.port}", lease_seconds=15)
    try:
        longest = ordeal(site, sender, database, pause=60)
    finally:
        site.close()
    print("longest without an owner:", {role: round(seconds, 1) for role, seconds in sorted(longest.items())})
    assert max(longest.values()) < 30, longest
