"""Several machines on one database: each is killed, stopped or restarted, and every report is counted exactly once.

A machine is a process here. In the short form of the test, leases last 4 s; in the long one, they last as long as by
default, and a worker is stopped for a minute.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import deliveries
from support.ci import unavailable
from support.deliveries import Sender
from support.machines import PARTITIONS, PREFIX, Site, Watchman
from support.postgres import MISSING, Postgres, folder_of_binaries
from support.rabbitmq import BINARIES, RabbitMQ
from support.rabbitmq import MISSING as NO_RABBITMQ
from support.reports import expected, some_reports
from support.waiting import wait_for
from undertone_aggregator.counts.epochs import Timeline
from undertone_aggregator.mqtt.link import Outlet
from undertone_aggregator.store.store import StoreError, open_store
from undertone_shared.campaign import Campaign
from undertone_shared.topics import config_topic
from undertone_simulator.mosquitto import Mosquitto


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mosquitto]:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with deliveries.open_broker(tmp_path / "b", autosave_seconds=1) as made:
        yield made


@pytest.fixture
def database(free_port: Callable[[], int]) -> Iterator[Postgres]:
    """A database server for this test alone, because the test kills it."""
    if folder_of_binaries() is None:
        unavailable(MISSING)
    server = Postgres(free_port(), durable=False)
    yield server
    server.close()


@pytest.fixture
def sender(broker: Mosquitto) -> Iterator[Sender]:
    made = Sender(broker)
    yield made
    made.close()


class Fleet:
    """Sends reports of one slot after the other while things go wrong."""

    def __init__(self, sender: Any, campaign: Campaign, seed: int) -> None:
        self._sender = sender
        self._campaign = campaign
        self._chance = random.Random(seed)
        self._slot = 0
        self.made: list[Any] = []

    def send(self, count: int = 60) -> None:
        batch = some_reports(self._campaign, self._chance, self._slot % 40, count)
        self._slot += 1
        self.made += self._sender.send(batch)

    def go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.send(12)
            time.sleep(0.3)


def begin(site: Site, sender: Any, seed: int) -> Fleet:
    """Start a server, wait for its campaign, and return the devices that will report to it."""
    site.server("a")

    def issued() -> bool:
        try:
            with open_store(site.store, read_only=True) as store:
                return store.epoch_count() > 0
        except (StoreError, ValueError):
            return False

    wait_for(issued, what="the first epoch")
    with open_store(site.store, read_only=True) as store:
        return Fleet(sender, store.epochs()[0].campaign, seed)


def check_counts(site: Site, sender: Any, fleet: Fleet, seconds: float = 120.0) -> None:
    """Check that each report is counted once, and has the outcome that it would have with a single worker."""
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
    """Let each fault happen once; return for each role the longest time without an owner.

    ``pause``: how long a worker is stopped.
    """
    fleet = begin(site, sender, seed=18)
    site.server("b")
    site.worker("c")
    site.wait_until_shared("a", "b", "c")
    watchman = Watchman(site)
    fleet.go_on(1)

    # A worker is killed, and the others take its partitions.
    site.send("c", signal.SIGKILL)
    fleet.go_on(1)
    site.wait_until_shared("a", "b")
    site.worker("c")

    # The coordinator is killed, and the other server is elected.
    wait_for(lambda: site.coordinator() in ("a", "b"), what="a coordinator")
    first = site.coordinator()
    site.send(first, signal.SIGKILL)
    other = "b" if first == "a" else "a"
    fleet.go_on(1)
    wait_for(lambda: site.coordinator() == other, what="the election")
    site.server(first)
    site.wait_until_shared("a", "b", "c")

    # The database is killed and started again.
    database.kill()
    fleet.go_on(1)
    database.start()
    site.wait_until_shared("a", "b", "c")
    fleet.go_on(1)

    # A worker is stopped between judging a batch and committing it. Others take over, and then it goes on.
    site.stop_before_commit("c")
    until = time.monotonic() + 120
    while not site.is_stopped("c"):
        assert time.monotonic() < until
        fleet.go_on(0.3)
    stopped = time.monotonic()
    fleet.go_on(1)
    site.wait_until_shared("a", "b")
    time.sleep(max(0.0, stopped + pause - time.monotonic()))
    site.send("c", signal.SIGCONT)
    wait_for(lambda: "belongs to another worker now" in site.log("c"), what="the refusal of the late commit")
    site.wait_until_shared("a", "b", "c")

    # Every process is restarted in turn, the coordinator last.
    for name in ("c", first, other):
        site.end(name)
        site.worker(name) if name == "c" else site.server(name)
        fleet.go_on(1)
    site.wait_until_shared("a", "b", "c")
    check_counts(site, sender, fleet)
    watchman.close()
    return watchman.longest


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.services
def test_machines_die_stop_and_come_back(tmp_path: Path, broker: Mosquitto, sender: Sender, database: Postgres) -> None:
    site = Site(tmp_path, database.new_database(), f"port = {broker.port}", lease_seconds=4)
    try:
        longest = ordeal(site, sender, database, pause=6)
    finally:
        site.close()
    assert len(longest) == PARTITIONS + 1
    assert max(longest.values()) < 30, longest


@pytest.mark.slow
def test_machines_die_and_stop_for_a_minute(
    tmp_path: Path, broker: Mosquitto, sender: Sender, database: Postgres
) -> None:
    """The leases last 15 s, which is a server's default."""
    site = Site(tmp_path, database.new_database(), f"port = {broker.port}", lease_seconds=15)
    try:
        longest = ordeal(site, sender, database, pause=60)
    finally:
        site.close()
    print(
        "longest seconds without an owner, by role:",
        {role: round(seconds, 1) for role, seconds in sorted(longest.items())},
    )
    assert max(longest.values()) < 30, longest


class Routed:
    """A sender that sends each report to the broker of its shard."""

    def __init__(self, senders: list[Sender]) -> None:
        self._senders = senders
        self.sent: list[tuple[str, bytes]] = []

    def send(self, reports: list[tuple[str, bytes]]) -> list[tuple[int, int]]:
        made = []
        for topic, payload in reports:
            number = int(topic.split("/")[-3]) % len(self._senders)
            made += [(number, mid) for mid in self._senders[number].send([(topic, payload)])]
            self.sent.append((topic, payload))
        return made

    def flush(self, made: list[tuple[int, int]]) -> None:
        for number, sender in enumerate(self._senders):
            sender.flush(mid for owner, mid in made if owner == number)


@pytest.mark.long
@pytest.mark.services
def test_brokers_by_shard_into_one_database(
    tmp_path: Path, mosquitto_binary: str, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two brokers; one of them goes away and comes back."""
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with (
        deliveries.open_broker(tmp_path / "b0", autosave_seconds=1) as even,
        deliveries.open_broker(tmp_path / "b1", autosave_seconds=1) as odd,
    ):
        brokers = (even, odd)
        places = ", ".join(f'"127.0.0.1:{broker.port}"' for broker in brokers)
        site = Site(tmp_path, database.new_database(), f"hosts = [{places}]", lease_seconds=2)
        senders = [Sender(broker) for broker in brokers]
        routed = Routed(senders)
        try:
            fleet = begin(site, routed, seed=41)
            site.worker("c")
            site.wait_until_shared("a", "c")
            for broker in brokers:
                outlet = Outlet(deliveries.address(broker), "listener", watch=[config_topic(PREFIX, "+")])
                outlet.start()
                assert outlet.retained(config_topic(PREFIX, "meters"), threading.Event())
                outlet.stop()
            fleet.send(200)
            odd.stop()
            fleet.send(200)
            odd.start()
            fleet.send(200)
            check_counts(site, routed, fleet)
        finally:
            for sender in senders:
                sender.close()
            site.close()


@pytest.mark.slow
def test_rabbitmq_with_quorum_queues_as_it_comes(
    tmp_path: Path, database: Postgres, free_port: Callable[[], int]
) -> None:
    """The broker is used as installed: no access rules, no users for workers. A worker and the broker are killed."""
    if not BINARIES.exists():
        unavailable(NO_RABBITMQ)
    users = dict.fromkeys(("aggregator", "fleet"), deliveries.PASSWORD)
    rabbit = RabbitMQ(free_port(), (free_port(), free_port()), users)
    lines = f"port = {rabbit.port}\nworker_users = false"
    site = Site(tmp_path, database.new_database(), lines, lease_seconds=3, batch=200)
    sender = Sender(rabbit)
    try:
        fleet = begin(site, sender, seed=31)
        site.worker("c")
        site.wait_until_shared("a", "c")
        assert rabbit.queue_types() == {"quorum"}
        for _ in range(10):
            fleet.send(300)
        site.send("c", signal.SIGKILL)
        fleet.go_on(1)
        site.wait_until_shared("a")
        # The sender repeats what RabbitMQ has not acknowledged, and RabbitMQ what no worker has acknowledged.
        rabbit.kill()
        fleet.go_on(1)
        rabbit.start()
        fleet.go_on(1)
        site.worker("c")
        site.wait_until_shared("a", "c")
        check_counts(site, sender, fleet)
    finally:
        sender.close()
        site.close()
        rabbit.close()
