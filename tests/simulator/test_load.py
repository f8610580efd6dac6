"""Load tests, and what a machine says that allows too few open files."""

import resource
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from support.refusal import refused
from undertone_aggregator.base.open_files import allow_connections
from undertone_shared.off_board.intake import unpack
from undertone_simulator import processes
from undertone_simulator.load import run as load
from undertone_simulator.load.load_options import LoadOptions
from undertone_simulator.load.run import run
from undertone_simulator.processes import Failed
from undertone_simulator.wire.fleet_process import REFUSED
from undertone_simulator.wire.ledger import read_ledgers


def test_too_few_descriptors_are_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    with refused("10000 connections", "10256 open files", 4096, "ulimit -Hn 10256"):
        allow_connections(10_000)


def test_a_soft_limit_is_raised(monkeypatch):
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    allow_connections(10_000)
    assert raised == [(20_000, 20_000)], "the limit is raised to the most, because the server inherits it"


@pytest.mark.slow
@pytest.mark.waits
def test_a_provisioned_fleet_against_a_running_aggregator(make_world, tmp_path):
    world = make_world(
        5,
        "slot_seconds = 1\ncycle = 4\nepsilon = 1\nrounds = [2]\nreport_slots = 6\nmechanism = 'hybrid'",
        write_seconds=1,
    )
    world.start_aggregator()
    folder = tmp_path / "load"
    result = run(LoadOptions(clients=4, slots=4, provisioned=world.site.fleet), folder, lambda sentence: None)
    assert result.accounts is None
    # If the machine is too slow for a slot, its devices also lose the next one, which they see only in part.
    assert result.sent == result.acknowledged >= 4 * 4 - 2 * result.skipped
    world.ledger_path = folder / "fleet.ledger"
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    assert accounts.counted == result.sent


RUNNING = "slot_seconds = 1\ncycle = 4\nepsilon = 1\nrounds = [2]\nreport_slots = 60\nmechanism = 'hybrid'"


@pytest.mark.slow
@pytest.mark.waits
def test_a_campaign_that_runs_already_gets_all_slots_asked_for(make_world, tmp_path):
    world = make_world(3, RUNNING, write_seconds=1)
    world.start_aggregator()
    first, second = (
        run(LoadOptions(clients=3, slots=3, provisioned=world.site.fleet), tmp_path / name, lambda sentence: None)
        for name in ("first", "second")
    )
    # If the machine is too slow for a slot, its devices also lose the next one, which they see only in part.
    assert first.sent >= 3 * 3 - 2 * first.skipped
    # A device sees its first slot only in part, and its storage is new, so it reports from its second slot on.
    assert second.sent == second.acknowledged >= 3 * 2 - 2 * second.skipped


class Jumping:
    """The load test's clock.

    It jumps by an hour when the load test says a sentence for which ``when`` is true. So the test need not wait.
    """

    def __init__(self, monkeypatch, when):
        self._when, self._ahead = when, 0.0
        clock = SimpleNamespace(monotonic=self.monotonic, time=time.time, sleep=time.sleep)
        for module in (load, processes):
            monkeypatch.setattr(module, "time", clock)

    def monotonic(self):
        return time.monotonic() + self._ahead

    def show(self, sentence):
        if self._when(sentence):
            self._ahead = 3600.0


@pytest.mark.slow
def test_a_client_that_cannot_connect_ends_the_test(make_world, tmp_path, monkeypatch):
    world = make_world(3, RUNNING)
    (world.site.device("load-002") / "password").write_text("another\n", encoding="utf-8")
    clock = Jumping(monkeypatch, lambda said: said == "2 of 3 connected")
    with refused("2 of 3", "load-002", error=Failed):
        run(LoadOptions(clients=3, slots=3, provisioned=world.site.fleet), tmp_path / "load", clock.show)


@pytest.mark.slow
def test_a_campaign_that_no_device_accepts_ends_the_test(make_world, tmp_path, monkeypatch):
    world = make_world(3, RUNNING, cap=[101, 100])
    world.start_aggregator()
    log = tmp_path / "load" / "fleet.log"
    clock = Jumping(monkeypatch, lambda said: said.startswith("waiting") and REFUSED in log.read_text(encoding="utf-8"))
    with pytest.raises(Failed, match=r"no device accepted a campaign within 60 s: \w+: [1-9]"):
        run(LoadOptions(clients=3, slots=3, provisioned=world.site.fleet), tmp_path / "load", clock.show)


@pytest.mark.slow
@pytest.mark.long
def test_turns_under_load(tmp_path):
    result = run(LoadOptions(clients=20, interval=1, slots=12, window="4s"), tmp_path, lambda sentence: None)
    assert result.accounts.holds, result.accounts.examples
    slots = {}
    for device, report in read_ledgers([tmp_path / "fleet.ledger"]).sent:
        slots.setdefault(device, []).append(unpack(report).slot)
    # A device reports in every fifth slot of a second, and never sooner. If the machine was late, the turn is left out.
    assert len(slots) == 20
    assert all(later - earlier >= 5 for mine in slots.values() for earlier, later in pairwise(sorted(mine)))


def test_more_clients_than_devices_are_refused(make_world, tmp_path):
    world = make_world(2, "epsilon = 1")
    with refused("clients", 3, world.site.fleet, "2 devices"):
        run(LoadOptions(clients=3, provisioned=world.site.fleet), tmp_path / "load", lambda sentence: None)


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "interval"), [(300, 5), (10_000, 45)])
def test_every_report_of_a_large_fleet_is_accounted_for(tmp_path, clients, interval):
    options = LoadOptions(clients=clients, interval=interval, slots=4, ramp_up=clients / 500, faults={"kill": 0.001})
    result = run(options, tmp_path, lambda sentence: None)
    print(result.as_json())
    assert result.accounts.holds, result.accounts.examples
    assert result.sent >= clients * 4
    assert result.peak_megabytes < 1024
