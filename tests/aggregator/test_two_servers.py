"""What a restart or a second server may do to a running campaign, tried over a real broker.

A change of a plan is shown before anything is changed.
"""

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import deliveries
from support.child_server import Server
from support.factory import policy_of
from support.refusal import refused
from support.serving import serve
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.ingest.ingest import IngestPlan
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.sessions import open_intake
from undertone_aggregator.settings.config import parse_config
from undertone_aggregator.store.store import open_store
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import Mosquitto

PREFIX = "undertone-test/two"


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mosquitto]:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with deliveries.open_broker(tmp_path / "b") as made:
        yield made


def run(
    broker: Mosquitto,
    folder: Path,
    store: str,
    then: Callable[[io.StringIO], None] = lambda _: None,
    **options: object,
) -> list[dict[str, object]]:
    """Run a server until it broadcasts its campaign, call ``then`` with its log, and return the log's records."""
    (folder / "password").write_text(deliveries.PASSWORD, encoding="utf-8")
    take_over, apply = bool(options.pop("take_over", False)), bool(options.pop("apply", False))
    plan = {"epsilon": 1, "bound": 1000, "slot_seconds": 1, "rounds": [40], "cells": 16, **options}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in plan.items())
    config = parse_config(
        f'[broker]\nmode = "external"\nport = {broker.port}\npassword_file = "password"\nprefix = "{PREFIX}"\n'
        f'[store]\npath = "{store}"\n[campaign]\nname = "meters"\nsensor = "load"\nunit = "Wh"\n{lines}\n',
        folder,
    )
    log, stop = io.StringIO(), threading.Event()

    def end() -> None:
        try:
            wait_for(lambda: stop.is_set() or '"epoch"' in log.getvalue() or '"resumed"' in log.getvalue())
            if not stop.is_set():
                then(log)
        finally:
            stop.set()

    ending = threading.Thread(target=end)
    ending.start()
    try:
        serve(config, stop, Journal(log, as_json=True), apply=apply, take_over=take_over)
    finally:
        stop.set()
        ending.join()
    return [json.loads(line) for line in log.getvalue().splitlines()]


def alarms(log: list[dict[str, object]]) -> list[object]:
    # No device reports here, which raises the alarm "silent" on a slow machine.
    return [line["event"] for line in log if line.get("level") == "alarm" and line["event"] != "silent"]


def test_another_store_does_not_take_a_live_campaign(broker: Mosquitto, tmp_path: Path) -> None:
    assert alarms(run(broker, tmp_path, "s.sqlite")) == []
    with refused(tmp_path / "typo.sqlite", "--take-over"):
        run(broker, tmp_path, "typo.sqlite")
    with open_store(tmp_path / "typo.sqlite", read_only=True) as store:
        assert store.epoch_count() == 0, "nothing was broadcast"
    assert alarms(run(broker, tmp_path, "s.sqlite")) == [], "the first one goes on"
    assert alarms(run(broker, tmp_path, "typo.sqlite", take_over=True)) == ["take_over"]


def test_a_campaign_that_somebody_else_broadcasts_rings(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(broker, tmp_path, "s.sqlite")
    looks, look = Counter[str](), Coordinator.note_broker

    def counted(coordinator: Coordinator, *heard: Any) -> None:
        look(coordinator, *heard)
        looks["done"] += 1

    monkeypatch.setattr(Coordinator, "note_broker", counted)

    def broadcast(log: io.StringIO) -> None:
        outsider = deliveries.Sender(broker)
        # The server's first broadcast may replace the outsider's message before the server reads it. Then the outsider
        # publishes it again.
        while '"foreign"' not in log.getvalue():
            outsider.flush(outsider.send([(f"{PREFIX}/meters/config", b"not a campaign of ours")], retain=True))
            seen = looks["done"] + 5
            wait_for(lambda seen=seen: looks["done"] >= seen or '"foreign"' in log.getvalue())
        outsider.close()
        # The alarm comes once, however often the server looks.
        enough = looks["done"] + 10
        wait_for(lambda: looks["done"] >= enough)

    assert alarms(run(broker, tmp_path, "s.sqlite", broadcast)) == ["foreign"]


def test_a_changed_epsilon_is_shown_and_by_whom_it_would_be_refused(broker: Mosquitto, tmp_path: Path) -> None:
    run(broker, tmp_path, "s.sqlite")
    for name, cap in (("d1", [3, 1]), ("d2", [20, 1])):
        folder = tmp_path / "devices" / name
        folder.mkdir(parents=True)
        policy = policy_of(sensor="load", cap=cap, epoch_seconds=1)
        (folder / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    with pytest.raises(Invalid) as caught:
        run(broker, tmp_path, "s.sqlite", epsilon=2)
    said = str(caught.value)
    assert 'campaign.epsilon "1" -> "2"' in said
    assert "1 of 2 known policies refuse this campaign (epsilon: cohort.mechanism" in said
    assert "certificate 2564/347, expected at most 3/1" in said
    assert "Nothing was changed: undertone serve --apply" in said
    run(broker, tmp_path, "s.sqlite")
    run(broker, tmp_path, "s.sqlite", epsilon=2, apply=True)
    run(broker, tmp_path, "s.sqlite", epsilon=2)


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("levels", 128, True),
        ("cohort_share", 0.1, True),
        ("settle_slots", 3, True),
        ("bound", 2000, False),
        ("slot_seconds", 2, False),
    ],
)
def test_every_other_fact_is_shown_too(
    broker: Mosquitto, tmp_path: Path, option: str, value: object, allowed: bool
) -> None:
    run(broker, tmp_path, "s.sqlite")
    with pytest.raises(Invalid, match=rf"campaign\.{option} .* -> {value}") as caught:
        run(broker, tmp_path, "s.sqlite", **{option: value})
    assert ("--apply" in str(caught.value)) == allowed
    if not allowed:
        with refused(f"campaign.{option}", value):
            run(broker, tmp_path, "s.sqlite", apply=True, **{option: value})


def test_a_connection_that_ended_during_a_commit_is_a_lost_connection(broker: Mosquitto, tmp_path: Path) -> None:
    """A commit waits for a full disk, and meanwhile the broker ends the connection.

    Nothing raises, and all reports come again.
    """
    said: list[str] = []
    plan = IngestPlan(PREFIX, "meters", 1, cells_of)
    inbox = open_intake([deliveries.address(broker)], plan, said.append)
    wait_for(lambda: bool(inbox.take(0.05)) or inbox.ready)
    sender = deliveries.Sender(broker)
    sender.flush(sender.send([(f"{PREFIX}/meters/1/d1/report", b"x")]))
    sender.close()
    taken = inbox.take(60)
    assert len(taken) == 1
    broker.stop()
    inbox.acknowledge(taken)
    assert not inbox.take(0.2)
    inbox.acknowledge(taken)
    broker.start()
    came: list[Delivery] = []
    wait_for(lambda: bool(came.extend(inbox.take(0.05))) or bool(came))
    assert [delivery.payload for delivery in came] == [b"x"]
    assert any("was lost" in sentence for sentence in said)
    assert said[-1].startswith("connected again")
    inbox.close()


@pytest.mark.waits
def test_a_server_whose_workers_are_not_there_yet_is_not_joined_by_another(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """A server holds its store before its workers start. Otherwise a second server would count all reports as well."""
    credentials.write_passwords(tmp_path / "passwords", {"d1": "a password"})
    server = Server(tmp_path, f'mode = "direct"\nport = {free_port()}\npasswords = "passwords"')
    server.begin_campaign()
    with open_store(server.store, campaign="meters") as store, store.serving(0):
        server.start()
        wait_for(lambda: not server.running, what="the end of the second server")
        assert "another server uses the store" in server.log()
    server.start()
    wait_for(lambda: server.log().count("resuming campaign") > 0 or not server.running)
    assert server.end() == 0, server.log()
