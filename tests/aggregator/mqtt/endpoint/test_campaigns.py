"""Several campaigns at one endpoint: a report is acknowledged when its own campaign has committed it."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.ci import need_connections
from support.direct import PREFIX, Device, write_home, write_passwords
from support.many import PLAN, Running
from support.waiting import wait_for
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.connection import Connection
from undertone_aggregator.mqtt.endpoint.endpoint import CampaignIntake, Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store
from undertone_shared.topics import config_topic, report_topic

USERS = ("power-1", "power-2", "water-1", "both-1")
CAMPAIGNS = ("power", "water")


def topic(campaign: str, user: str) -> str:
    return report_topic(PREFIX, campaign, user)


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    return write_passwords(tmp_path / "passwords", USERS)


@pytest.fixture
def access(tmp_path: Path) -> Path:
    devices = {user: ["power", "water"] if user == "both-1" else [user.partition("-")[0]] for user in USERS}
    credentials.write_access_rules(tmp_path / "access", PREFIX, devices)
    return tmp_path / "access"


@pytest.fixture
def endpoint(passwords: Path, access: Path) -> Iterator[Endpoint]:
    limits = Limits(burst=10_000, unacknowledged=1000, backlog=50)
    with Endpoint(Listener(port=0), Gate(passwords, access=access), limits, PREFIX, batch=20) as made:
        made.serve(CAMPAIGNS)
        made.listen()
        yield made


@pytest.fixture
def devices(endpoint: Endpoint) -> Iterator[dict[str, Device]]:
    made = {user: Device(endpoint.port, user) for user in USERS}
    for device in made.values():
        device.wait("connected")
    yield made
    for device in made.values():
        device.close()


class Committing:
    """A campaign that commits what it takes at once. While ``free`` is unset, it waits, as with a store that hangs."""

    def __init__(self, intake: CampaignIntake) -> None:
        self.taken: list[Delivery] = []
        self.free = threading.Event()
        self.free.set()
        self._intake = intake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            taken = self._intake.take(0.02)
            if taken:
                self.free.wait()
                self.taken += taken
                self._intake.acknowledge(taken)
        self._intake.close()

    def stop(self) -> None:
        self._stop.set()
        self.free.set()
        self._thread.join()


def take(intake: CampaignIntake, count: int) -> list[Any]:
    taken: list[Any] = []
    deadline = time.monotonic() + 60
    while len(taken) < count and time.monotonic() < deadline:
        taken += intake.take(0.1)
    assert len(taken) == count
    return taken


def test_each_report_waits_for_its_own_campaign(endpoint: Endpoint, devices: dict[str, Device]) -> None:
    power, water = (endpoint.open(name, 3600) for name in CAMPAIGNS)
    device = devices["both-1"]
    (first,) = device.publish([b"one"], to=topic("power", "both-1"))
    (second,) = device.publish([b"two"], to=topic("water", "both-1"))
    taken = {"power": take(power, 1), "water": take(water, 1)}
    assert [(each[0].topic, each[0].payload) for each in taken.values()] == [
        (topic("power", "both-1"), b"one"),
        (topic("water", "both-1"), b"two"),
    ]
    assert endpoint.facts()["backlog"] == 2
    water.acknowledge(taken["water"])
    assert device.wait("acked") == [("acked", second)]
    assert endpoint.facts()["backlog"] == 1
    power.acknowledge(taken["power"])
    assert device.wait("acked") == [("acked", first)]
    assert endpoint.facts()["backlog"] == 0


@pytest.mark.waits
def test_a_campaign_whose_store_hangs_delays_no_other(endpoint: Endpoint, devices: dict[str, Device]) -> None:
    """While one store hangs, reports of other campaigns are committed and acknowledged.

    This also holds once the hanging campaign's queue is full.
    """
    running = {name: Committing(endpoint.open(name, 3600)) for name in CAMPAIGNS}
    try:
        running["power"].free.clear()
        devices["power-1"].publish([b"%03d" % n for n in range(200)], to=topic("power", "power-1"))
        waiting = endpoint.roster.queues["power"].waiting
        wait_for(lambda: len(waiting) == 50, what="a full backlog")
        for n in range(100):
            devices["water-1"].publish([b"%03d" % n], to=topic("water", "water-1"))
            devices["water-1"].wait("acked")
        assert len(waiting) <= 50
        assert not running["power"].taken
        running["power"].free.set()
        devices["power-1"].wait("acked", count=200)
        assert [each.payload for each in running["power"].taken] == [b"%03d" % n for n in range(200)]
    finally:
        for each in running.values():
            each.stop()


def test_reports_of_a_campaign_that_does_not_run_wait_for_it(endpoint: Endpoint, devices: dict[str, Device]) -> None:
    """The campaign starts after its reports came, and stops while it holds a batch. No report is lost."""
    water = Committing(endpoint.open("water", 3600))
    try:
        numbers = devices["power-1"].publish([b"%d" % n for n in range(5)], to=topic("power", "power-1"))
        wait_for(lambda: endpoint.facts()["backlog"] == 5)
        power = endpoint.open("power", 3600)
        taken = take(power, 5)
        power.acknowledge(taken[:2])
        assert devices["power-1"].wait("acked", count=2) == [("acked", number) for number in numbers[:2]]
        power.close()
        devices["water-1"].publish([b"x"], to=topic("water", "water-1"))
        devices["water-1"].wait("acked")
        assert endpoint.facts()["backlog"] == 3
        power = endpoint.open("power", 3600)
        taken = take(power, 3)
        assert [each.payload for each in taken] == [b"2", b"3", b"4"]
        power.acknowledge(taken)
        assert devices["power-1"].wait("acked", count=3) == [("acked", number) for number in numbers[2:]]
    finally:
        water.stop()


def test_a_campaign_that_comes_back_at_once_gets_its_reports(endpoint: Endpoint, devices: dict[str, Device]) -> None:
    endpoint.open("water", 3600)
    # While this thread holds `turn`, the two calls of `serve` cannot take effect. They do once the intake is open.
    with endpoint.turn:
        endpoint.serve(["water"])
        endpoint.serve(CAMPAIGNS)
        power = endpoint.open("power", 3600)
    device = devices["both-1"]
    (number,) = device.publish([b"one"], to=topic("power", "both-1"))
    power.acknowledge(take(power, 1))
    assert device.wait("acked") == [("acked", number)]


def test_an_error_at_one_connection_costs_no_other_its_acknowledgement(
    endpoint: Endpoint, devices: dict[str, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Connection.acknowledge

    def acknowledge(connection: Connection, pubacks: bytes, reports: int) -> None:
        if connection.user == "power-1":
            raise RuntimeError("a bug")
        whole(connection, pubacks, reports)

    monkeypatch.setattr(Connection, "acknowledge", acknowledge)
    power = endpoint.open("power", 3600)
    devices["power-1"].publish([b"one"], to=topic("power", "power-1"))
    taken = take(power, 1)
    (number,) = devices["both-1"].publish([b"two"], to=topic("power", "both-1"))
    power.acknowledge([*taken, *take(power, 1)])
    assert devices["both-1"].wait("acked") == [("acked", number)]
    wait_for(lambda: endpoint.facts()["refused"] == {"system": 1})


def test_a_report_to_no_campaign_is_never_acknowledged_and_hinders_no_other(
    endpoint: Endpoint, devices: dict[str, Device]
) -> None:
    power = Committing(endpoint.open("power", 3600))
    device = devices["power-1"]
    try:
        strange = (topic("gas", "power-1"), f"{PREFIX}/power", "elsewhere", "", "+", f"{PREFIX}/\0/config")
        for name in strange[:1] + strange[2:]:
            device.publish([b"x"], to=name)
        (number,) = device.publish([b"mine"], to=topic("power", "power-1"))
        assert device.wait("acked") == [("acked", number)]
        assert endpoint.facts()["unknown_campaign"] == len(strange) - 1
        # A report to a wrong topic that names a campaign is passed to this campaign, which gets it with an empty topic.
        device.publish([b"y"], to=strange[1])
        device.wait("acked")
        assert [(each.topic, each.payload) for each in power.taken] == [
            (topic("power", "power-1"), b"mine"),
            ("", b"y"),
        ]
        # The endpoint serves the campaign no more, as after its plan was deleted.
        endpoint.serve(["water"])
        # The endpoint's own thread may make that call later than this line. It makes its calls in order, so a message
        # that is retained after the call shows that the call has been made.
        endpoint.publish("after", b"x")
        wait_for(lambda: "after" in endpoint.roster.retained)
        device.publish([b"z"], to=topic("power", "power-1"))
        wait_for(lambda: endpoint.facts()["unknown_campaign"] == len(strange))
        endpoint.serve(CAMPAIGNS)
    finally:
        power.stop()


def test_a_device_reports_for_its_own_campaigns_only(
    endpoint: Endpoint, devices: dict[str, Device], passwords: Path, access: Path
) -> None:
    water = Committing(endpoint.open("water", 3600))
    try:
        devices["power-1"].publish([b"x"], to=topic("water", "power-1"))
        devices["power-1"].wait("acked")
        devices["both-1"].publish([b"y"], to=topic("water", "both-1"))
        devices["both-1"].wait("acked")
        # With new rules, power-2 may report to both campaigns.
        credentials.write_access_rules(access, PREFIX, {"power-2": ["power", "water"]})
        endpoint.reload()
        devices["power-2"].publish([b"z"], to=topic("water", "power-2"))
        devices["power-2"].wait("acked")
        assert [(each.topic, each.payload) for each in water.taken] == [
            ("", b"x"),
            (topic("water", "both-1"), b"y"),
            (topic("water", "power-2"), b"z"),
        ]
        # Rules without a list of devices let each device report to any campaign, under its own name.
        credentials.write_access_rules(access, PREFIX)
        gate = Gate(passwords, access=access)
        assert gate.may_publish(topic("water", "power-1"), "power-1")
        assert not gate.may_publish(topic("water", "power-2"), "power-1")
    finally:
        water.stop()


def test_each_device_hears_of_the_campaigns_that_it_subscribed_to(
    endpoint: Endpoint, devices: dict[str, Device]
) -> None:
    endpoint.publish(config_topic(PREFIX, "power"), b"power 1")
    for user in ("power-1", "both-1"):
        devices[user].subscribe(config_topic(PREFIX, "power"))
        assert bytes(devices[user].wait("message")[0][2]) == b"power 1"
    devices["both-1"].subscribe(config_topic(PREFIX, "water"))
    wait_for(lambda: config_topic(PREFIX, "water") in endpoint.roster.subscribers)
    endpoint.publish(config_topic(PREFIX, "water"), b"water 1")
    assert bytes(devices["both-1"].wait("message")[0][2]) == b"water 1"
    endpoint.publish(config_topic(PREFIX, "power"), b"power 2")
    for user in ("power-1", "both-1"):
        assert bytes(devices[user].wait("message")[0][2]) == b"power 2"


def test_a_home_with_three_campaigns_one_of_which_fails(tmp_path: Path, free_port: Callable[[], int]) -> None:
    """A whole server runs: reports of the campaign that cannot run are acknowledged and counted once it can."""
    need_connections(3)
    folder = tmp_path / "home"
    users = ("power-1", "water-1", "gas-1")
    write_home(folder, free_port(), users, more='access = "broker/access"\n')
    credentials.write_access_rules(folder / "broker" / "access", PREFIX, {user: [user[:-2]] for user in users})
    home = Home(folder)
    for name in ("power", "water"):
        home.write_plan(name, PLAN.format(name=name, epsilon=1))
    home.write_plan("gas", PLAN.format(name="gas", epsilon=50))
    running = Running(folder)
    made: list[Device] = []
    try:
        wait_for(lambda: bool(running.port) and running.ready("power", "water"), what="two campaigns ready")
        assert running.server is not None
        endpoint = running.server.source.endpoint  # type: ignore[attr-defined]
        made = [Device(endpoint.port, user) for user in users]
        for device in made:
            device.wait("connected")
        gas = made[2]
        for device in made[:2]:
            device.publish([b"no report"], to=topic(device.user[:-2], device.user))
            device.wait("acked")
        gas.publish([b"no report"], to=topic("gas", "gas-1"))
        wait_for(lambda: endpoint.facts()["backlog"] == 1)
        home.write_plan("gas", PLAN.format(name="gas", epsilon=1))
        gas.wait("acked")
        for name in ("power", "water", "gas"):
            with open_store(folder / "stores" / f"{name}.sqlite", read_only=True) as store:
                assert store.outcomes() == {"malformed": 1, "received": 1}
    finally:
        for device in made:
            device.close()
        running.end()


@pytest.mark.parametrize(
    ("campaigns", "reports", "grows", "due"),
    [
        # Few campaigns, or few reports: a batch is taken after 20 ms.
        (2, 1, 0.0, 0.02),
        (2, 24, 0.0, 0.02),
        (20, 23, 0.0, 0.02),
        # Large batches that grow: they wait 5 ms for each campaign, at most 100 ms.
        (10, 24, 1.0, 0.05),
        (20, 24, 1.0, 0.1),
        (60, 24, 1.0, 0.1),
        # A whole batch is taken at once.
        (20, 100, 0.0, 0.0),
        # Reports arrive for 30 ms. The batch is taken 20 ms after the last one.
        (20, 24, 0.03, 0.05),
    ],
)
def test_batches_of_many_campaigns_wait_longer_if_they_are_large_and_grow(
    passwords: Path, monkeypatch: pytest.MonkeyPatch, campaigns: int, reports: int, grows: float, due: float
) -> None:
    """``grows``: seconds during which reports arrive; ``due``: seconds after which the campaign takes them."""
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    with Endpoint(Listener(port=0), Gate(passwords), Limits(), PREFIX, batch=100) as endpoint:
        intakes = [endpoint.open(f"c{number}", 3600) for number in range(campaigns)]
        queue = endpoint.roster.queues["c0"]
        with monkeypatch.context() as patched:
            patched.setattr("undertone_aggregator.mqtt.endpoint.endpoint.time", clock)
            patched.setattr("undertone_aggregator.mqtt.endpoint.queue.time", clock)
            queue.put([Delivery("topic", number.to_bytes(24, "big"), False) for number in range(reports)])
            for step in range(200):
                now[0] = 1000.0 + step / 1000
                if step <= 1000 * grows:
                    queue.newest = now[0]
                endpoint._polled_at = now[0]
                wait = endpoint._call_takers()
                if queue.due.is_set():
                    break
                assert 0 < wait <= 0.05
                assert intakes[0].take(0) == []
            assert now[0] - 1000 == pytest.approx(due, abs=0.0011)
            assert len(intakes[0].take(0)) == reports
            assert not queue.due.is_set()
