"""Load tests, and what a machine says that has too few descriptors."""

import resource

import pytest

from undertone_shared.errors import Invalid
from undertone_simulator.fleet import allow_connections
from undertone_simulator.load import Options, run


def test_too_few_descriptors_are_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    with pytest.raises(Invalid, match=r"10000 connections need 10256 open files.*4096 at most.*ulimit -Hn 10256"):
        allow_connections(10_000)


def test_a_soft_limit_is_raised(monkeypatch):
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: raised.append(limits))
    allow_connections(10_000)
    assert raised == [(10_256, 20_000)]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(("clients", "interval"), [(300, 5), (10_000, 45)])
def test_every_report_of_a_large_fleet_is_accounted_for(tmp_path, mosquitto_binary, monkeypatch, clients, interval):
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    options = Options(clients=clients, interval=interval, slots=4, ramp_up=clients / 500, faults={"kill": 0.001})
    found = run(options, tmp_path, lambda sentence: None)
    print(found.as_json())
    assert found.accounts.holds, found.accounts.examples
    assert found.sent >= clients * 4
    assert found.peak_megabytes < 1024
