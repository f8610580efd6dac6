"""The schedule of the long test with faults, and its judge. `make chaos` runs the test itself."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from support import server
from support.factory import FIRST
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_simulator.wire.faults import FAULTS
from undertone_simulator.wire.ledger import Sent
from undertone_simulator.wire.verify import Accounts, digest_key
from undertone_studies.chaos import __main__ as chaos
from undertone_studies.chaos import judge
from undertone_studies.chaos.judge import failures, refused_in_absence
from undertone_studies.chaos.schedule import EVENTS, QUIET, Event, device_faults, schedule


def test_the_seed_makes_the_schedule():
    events = schedule(7, 600)
    assert events == schedule(7, 600) != schedule(8, 600)
    assert {event.name for event in events} == set(EVENTS)
    # There is one fault at a time, with a pause after it, and none near the end.
    for event, following in pairwise(events):
        assert following.second >= event.second + event.seconds + 2.9
    assert events[-1].second + events[-1].seconds <= 600 - QUIET


def test_the_faults_of_devices_are_known():
    faults = device_faults(7, 3600, ["a", "b"])
    assert faults == device_faults(7, 3600, ["a", "b"])
    assert {name for _, name, _ in faults} <= set(FAULTS)
    assert len(faults) > 300


@pytest.mark.parametrize("more", [[], ["--direct"]])
def test_the_printed_options_repeat_the_run(more, monkeypatch, capsys):
    monkeypatch.setattr(chaos, "soak", lambda *_, direct: int(direct))
    monkeypatch.setattr(chaos.signal, "signal", lambda *_: None)
    given = ["--seed", "7", "--minutes", "2", "--devices", "20", *more]
    assert chaos.main(given) == len(more)
    printed = capsys.readouterr().out.partition("repeat this run with ")[2].split()
    assert set(printed) == set(given)


def soak(log=(), refusals=(), ended=()):
    return SimpleNamespace(plan=None, log=lambda: list(log), refusals=list(refusals), ended=list(ended))


def accounts(**fields):
    return Accounts(counted=10, deliveries={"received": 12, "counted": 10, "malformed": 2}, **fields)


GOOD = {
    "log": [
        "resuming campaign demo with 3 epochs",
        "worker x ended with code -9: starting it again",
        "connected again to the broker",
        "the store cannot be written, trying again: full",
    ],
    "refusals": [
        ("edit", 'campaign.epsilon "4" -> "1/2". Nothing was changed: undertone serve --apply'),
        ("second-server", "error: another server serves /tmp/home: stop it first"),
        ("other-store", "does not know, so perhaps another server issued it"),
    ],
}


@pytest.mark.parametrize(
    ("changes", "of", "said"),
    [
        ({}, accounts(), None),
        ({"log": GOOD["log"][1:]}, accounts(), "aggregator-kill: no line of the server"),
        ({"log": GOOD["log"][:1]}, accounts(), "disk-full: no line of the server"),
        ({"refusals": [("edit", "it went on")]}, accounts(), "edit: the server said 'it went on'"),
        ({"ended": ["the server ended by itself with code 1"]}, accounts(), "ended by itself"),
        ({}, accounts(unexplained={"drawn twice": 1}), "unexplained reports: 1 drawn twice"),
        ({}, Accounts(), "no report was counted"),
        ({}, Accounts(counted=1, deliveries={"received": 1, "counted": 1}), "flood: the server rejected no report"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(changes, of, said, monkeypatch):
    monkeypatch.setattr(judge, "_thetas", lambda plan, timeline: iter(()))
    events = [Event(1.0, name, 0.0) for name in EVENTS]
    store = SimpleNamespace(epochs=lambda: [])
    wrong = list(failures(soak(**{**GOOD, **changes}), events, of, store))
    assert wrong == [] if said is None else any(said in sentence for sentence in wrong), wrong


def test_a_report_refused_for_an_epoch_of_its_devices_absence_is_a_fault():
    """Epochs are issued at FIRST - 10, FIRST + 90 and FIRST + 190.

    A device that was offline then cannot know the new epoch, so the refusal of its report is a fault.
    """
    first, second, third = (server.campaign(FIRST + 100 * n, theta=500 + n) for n in range(3))
    epochs = Timeline([Epoch(first, FIRST - 10), Epoch(second, FIRST + 90), Epoch(third, FIRST + 190)])

    def faults(made, offline):
        sent = Sent(faults=[(1000 * (FIRST + at), name, "-") for at, name in offline])
        judged = {}
        for device, issued, outcome in made:
            key = (device, server.delivery(issued, "d1", FIRST + 150)[1])
            sent.sent[key] = 0
            judged[digest_key(key)] = outcome
        return list(refused_in_absence(sent, judged, epochs, "hostile"))

    refused = [("d1", first, "other_campaign"), ("d2", first, "other_campaign"), ("d3", first, "counted")]
    (sentence,) = faults(refused, [(80, "offline"), (95, "online")])
    assert sentence.endswith("refused 2 of their reports")
    assert str(second.epoch) in sentence
    assert len(faults(refused, [(80, "offline")])) == 1, "still offline"
    assert not faults(refused, [(80, "offline"), (89, "online"), (91, "offline")])
    assert len(faults(refused, [(89, "offline"), (95, "online")])) == 1, "the epoch came one second after they had gone"
    assert not faults([("hostile", first, "other_campaign"), ("d1", third, "other_campaign")], [(0, "offline")])


def timeline(theta, low, high, epochs=1):
    rule = SimpleNamespace(ranges=((0, 0, theta),))
    threshold = SimpleNamespace(theta=theta, low=low, high=high)
    return SimpleNamespace(epochs=[SimpleNamespace(campaign=SimpleNamespace(rule=rule), threshold=threshold)] * epochs)


@pytest.mark.parametrize(("theta", "fine"), [(100, True), (199, True), (201, False), (49, False)])
def test_the_middle_theta_of_many_epochs_is_compared_with_peace(theta, fine, monkeypatch):
    monkeypatch.setattr(judge, "_undisturbed", lambda plan: timeline(100, 80, 130))
    assert (list(judge._thetas(None, timeline(theta, theta, theta, judge.MANY))) == []) is fine
    assert list(judge._thetas(None, Timeline(()))) == ["no report epoch began"]


@pytest.mark.parametrize(
    ("low", "high", "fine"), [(90, 120, True), (260, 900, True), (262, 900, False), (10, 40, True), (10, 39, False)]
)
def test_of_a_few_epochs_it_is_what_the_server_states_for_theta(low, high, fine, monkeypatch):
    monkeypatch.setattr(judge, "_undisturbed", lambda plan: timeline(100, 80, 130))
    assert (list(judge._thetas(None, timeline((low + high) // 2, low, high))) == []) is fine


def test_without_a_broker_nothing_happens_to_one():
    events = {event.name for event in schedule(5, 3600.0, direct=True)}
    assert events == set(EVENTS) - {
        *("broker-kill", "broker-term", "broker-stop", "worker-kill", "worker-stop", "other-store")
    }
