"""Many campaigns in one process, at its endpoint or at mosquitto: how they start and end, their health and metrics."""

import errno
import io
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from support.ci import absent
from support.command import undertone
from support.direct import Device, write_home
from support.many import PLAN, Running, undertone_process
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.binding import PAUSED, RUNNING
from undertone_aggregator.campaign.collection import cells_of
from undertone_aggregator.campaign.runner import RunOptions
from undertone_aggregator.campaign.state import FAILED, CampaignState, read_state
from undertone_aggregator.ingest.admission import OUTCOMES
from undertone_aggregator.ingest.ingest import IngestPlan
from undertone_aggregator.mqtt.link import Address
from undertone_aggregator.mqtt.sessions import take_over
from undertone_aggregator.mqtt.source import BrokerSource, Outgoing, Source
from undertone_aggregator.server import health
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.health import serve_health
from undertone_aggregator.server.lifecycle import change_state
from undertone_aggregator.server.metrics import FAMILIES
from undertone_aggregator.server.supervisor import Member, Server, _first
from undertone_aggregator.store.store import open_store
from undertone_device.mqtt.packets import MESSAGE
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import Mosquitto


@pytest.fixture
def folder(tmp_path: Path, free_port: Callable[[], int]) -> Path:
    write_home(tmp_path, free_port(), prefix="undertone-test/many")
    home = Home(tmp_path)
    for name in ("power", "water"):
        home.write_plan(name, PLAN.format(name=name, epsilon=1))
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[[], Running]]:
    started: list[Running] = []

    def begin() -> Running:
        running = Running(folder)
        started.append(running)
        # The whole server is ready: its campaigns, its connection to the broker and its disk.
        wait_for(lambda: running.healthy() and running.ready("power", "water"), what="a server that is ready")
        return running

    yield begin
    for running in started:
        running.end()


@pytest.mark.slow
@pytest.mark.waits
def test_two_campaigns_share_a_process_and_one_that_fails_stops_alone(
    folder: Path, start: Callable[[], Running]
) -> None:
    running = start()
    assert running.get("/healthz")[0] == 200
    for name in ("power", "water"):
        with open_store(folder / "stores" / f"{name}.sqlite", read_only=True) as store:
            wait_for(lambda store=store: store.epoch_count() == 1, what="the first epoch")
            said = json.loads(wait_for(lambda store=store: store.meta().get("status"), what="the status"))
            assert [alarm for alarm in said["alarms"] if "no report has come" not in alarm["sentence"]] == []
            assert said["devices"] == {"all": {"reporting": None, "silent": None, "lost": 0, "conflicting": 0}}
    Home(folder).write_plan("gas", PLAN.format(name="gas", epsilon=50))
    wait_for(lambda: running.states().get("gas", {}).get("state") == FAILED)
    status, body = running.get("/readyz")
    assert status == 503
    assert json.loads(body)["campaigns"]["gas"]["reason"].startswith("campaign.epsilon is '50'")
    assert json.loads(body)["campaigns"]["power"]["ready"]
    Home(folder).write_plan("gas", PLAN.format(name="gas", epsilon=1))
    wait_for(running.healthy)
    (folder / "campaigns" / "gas.toml").unlink()
    wait_for(lambda: "gas" not in running.states())


@pytest.mark.slow
def test_a_file_that_is_no_campaign_fails_alone(folder: Path, start: Callable[[], Running]) -> None:
    campaigns = folder / "campaigns"
    names = ("no name", "gone", "folder")

    def spoil() -> None:
        (campaigns / "no name.toml").write_text("", encoding="utf-8")
        (campaigns / "gone.toml").symlink_to(campaigns / "nowhere")
        (campaigns / "folder.toml").mkdir()
        # A lock file of an editor is not a plan.
        (campaigns / ".#power.toml").symlink_to("user@host.1234:5")

    running = start()
    spoil()
    wait_for(lambda: all(running.states().get(name, {}).get("state") == FAILED for name in names))
    assert running.states()["power"]["ready"]
    assert "is 'no name'" in running.states()["no name"]["reason"]
    assert running.states().keys() == {*names, "power", "water"}
    running.end()
    # A restart does not need every plan to be valid: the first plan here is not.
    running = Running(folder)
    try:
        wait_for(lambda: bool(running.port) and running.ready("power"))
        wait_for(lambda: all(running.states().get(name, {}).get("state") == FAILED for name in names))
        listed = undertone("campaign", "list", str(folder)).stdout
        assert "power: running" in listed
        assert "no name: " in listed
        examined = json.loads(undertone_process("doctor", str(folder), "--json").stdout)
        failed = [row["check"] for row in examined if row["fix"]]
        assert {f"campaign {name}" for name in names} <= set(failed)
        assert "server" in failed, "the running server reports the failures, too"
    finally:
        running.end()


def test_a_plan_of_a_folder_may_land_its_reports(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    home = Home(tmp_path)
    home.write_plan("power", PLAN.format(name="power", epsilon=1) + '[landing]\nfolder = "landed"\n')
    assert home.config("power").landing.folder == "landed"


@pytest.mark.slow
def test_a_second_server_of_a_folder_is_refused_as_a_whole(folder: Path, start: Callable[[], Running]) -> None:
    running = start()
    second = undertone_process("serve", str(folder))
    assert (second.returncode, "another server serves" in second.stderr) == (2, True), second.stderr
    assert running.get("/readyz")[0] == 200
    assert all(state["state"] == "running" for state in running.states().values())


@pytest.fixture
def mosquitto(
    folder: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> Iterator[Mosquitto]:
    """A running mosquitto, which the folder's server.toml names as its broker."""
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with Mosquitto(folder / "mosquitto", free_port(), prefix="undertone-test/many") as made:
        lines = f'mode = "external"\nport = {made.port}\npassword_file = "mosquitto/aggregator.password"\n'
        (folder / "server.toml").write_text(
            f'[broker]\n{lines}prefix = "undertone-test/many"\nkeepalive = 5\n', encoding="utf-8"
        )
        yield made


def test_each_campaign_has_a_broker_user_of_its_own(mosquitto: Mosquitto, start: Callable[[], Running]) -> None:
    server = start().server
    assert server is not None
    assert len(server.slots.held["power"] | server.slots.held["water"]) == 2
    text = health.answer(server, "/metrics")[2].decode()
    wait_for(lambda: "undertone_broker_stored " in health.answer(server, "/metrics")[2].decode(), what="what it holds")
    assert "undertone_broker_connected 1.0" in text


@pytest.mark.waits
def test_a_broker_that_is_gone_makes_the_server_not_ready(
    folder: Path, mosquitto: Mosquitto, start: Callable[[], Running]
) -> None:
    running = start()
    broker = mosquitto.pid
    assert broker is not None
    os.kill(broker, signal.SIGSTOP)
    try:
        # The server notices by its keepalive that the broker no longer answers.
        wait_for(lambda: running.get("/readyz")[0] == 503, what="a server that sees its broker gone")
        wait_for(lambda: "broker" in str(json.loads(running.get("/readyz")[1])["problems"]), what="the problem's name")
        wait_for(lambda: "broker" in str(read_state(folder / "state.json").problems(time.time())))  # type: ignore[union-attr]
    finally:
        os.kill(broker, signal.SIGCONT)
    wait_for(running.healthy)


@pytest.mark.slow
def test_a_campaign_that_chooses_theta_keeps_no_other_waiting(
    folder: Path, start: Callable[[], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, chosen = start(), threading.Event()
    assert running.server is not None
    power = running.server.members["power"].running
    wait_for(lambda: power is not None and power.coordinator is not None)
    assert power is not None and power.coordinator is not None  # noqa: PT018
    coordinator = power.coordinator
    monkeypatch.setattr(coordinator.issuing.rounds, "due", lambda *_: 1)
    monkeypatch.setattr(coordinator.issuing, "_examined", -1)
    monkeypatch.setattr(coordinator.issuing, "_choose", lambda *_: chosen.wait(240))
    try:
        wait_for(lambda: running.states()["power"]["state"] == "choosing")
        # Meanwhile, this campaign's plan is deleted, and another campaign's plan is written.
        (folder / "campaigns" / "power.toml").unlink()
        Home(folder).write_plan("gas", PLAN.format(name="gas", epsilon=1))
        wait_for(lambda: running.ready("gas"), what="the new campaign")
        wait_for(lambda: running.states()["power"]["state"] == "stopping")
    finally:
        chosen.set()


@pytest.mark.waits
def test_a_campaign_is_deleted_while_nothing_was_reported(folder: Path, start: Callable[[], Running]) -> None:
    running = start()
    wait_for(lambda: "epoch" in running.events("water"))
    done = undertone("campaign", "delete", str(folder), "water")
    assert done.returncode == 0, done.stderr
    # The command waits for the file of the state, which the server writes before its health page shows the change.
    wait_for(lambda: running.states().keys() == {"power"})
    assert not list((folder / "stores").glob("water*"))
    endpoint = running.server.source.endpoint  # type: ignore[union-attr]
    wait_for(lambda: not any("/water/" in topic for topic in tuple(endpoint.roster.retained)))


def test_the_loop_beats_unless_a_campaign_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    outlet = cast(Outgoing, SimpleNamespace(connected=True))
    server = Server(Home(tmp_path), BrokerSource(()), outlet, Journal(io.StringIO()), RunOptions())
    beats: list[int] = []
    monkeypatch.setattr(server._watchdog, "beat", lambda: beats.append(1))
    well, hung = SimpleNamespace(idle=1.0, state=CampaignState(RUNNING)), SimpleNamespace(idle=3600.0)
    member = Member.__new__(Member)
    member.failure, member.note = "", ""
    server.members["power"] = member
    for member.running, beaten, state in ((well, 1, RUNNING), (hung, 1, FAILED), (well, 2, RUNNING)):  # type: ignore[assignment]
        server._pass()
        assert len(beats) == beaten
        written = read_state(tmp_path / "state.json")
        assert written is not None
        assert written.campaigns["power"].state == state


def test_sessions_of_a_campaign_whose_plan_is_bad_or_gone_are_nobody_elses(tmp_path: Path) -> None:
    """If two campaigns shared a session, each would acknowledge the other's reports without counting them."""
    (tmp_path / "server.toml").write_text('[broker]\nmode = "direct"\n', encoding="utf-8")
    home = Home(tmp_path)
    home.write_plan("power", "bound = ")
    (tmp_path / "stores").mkdir()
    for name, slots in (("power", [0, 1]), ("gone", [2])):
        with open_store(tmp_path / "stores" / f"{name}.sqlite", campaign=name) as store:
            store.set_meta({"campaign": name, "broker_sessions": json.dumps([slots])})
    server = Server(home, cast(Source, None), cast(Outgoing, None), Journal(io.StringIO()), RunOptions())
    server._note_slots(threading.Event())
    assert server.slots.others("water") == {0, 1, 2}


def test_free_space_is_that_of_the_stores_disk(tmp_path: Path) -> None:
    folder, stores = tmp_path / "home", tmp_path / "disk" / "stores"
    folder.mkdir()
    (folder / "server.toml").write_text(f'[broker]\nmode = "direct"\n[store]\npath = "{stores}"\n', encoding="utf-8")
    stores.parent.mkdir()
    home = Home(folder)
    home.write_plan("power", PLAN.format(name="power", epsilon=1))
    assert home.disk == folder, "nothing is there yet"
    assert home.config("power").disk == stores
    assert home.disk == stores
    server = Server(home, cast(Source, None), cast(Outgoing, None), Journal(io.StringIO()), RunOptions())
    assert server.disk == stores


def test_a_session_that_became_another_campaigns_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    address = Address("127.0.0.1", 1, "aggregator", "")
    plan = IngestPlan("undertone-test/slots", "power", 1, cells_of)
    with open_store(tmp_path / "power.sqlite") as store:
        store.set_meta({"campaign": "power", "broker_sessions": "[[0]]"})
        taken = take_over(store, plan, [address], said.append, time.time, threading.Event(), {0, 1})
    assert taken.sessions.slots == (2,)
    assert "alarm: " in said[0]


def test_metrics_have_every_family_and_both_campaigns(folder: Path, start: Callable[[], Running]) -> None:
    # Slots last ten minutes, so that there is no alarm because nobody reports.
    for name in ("power", "water"):
        Home(folder).write_plan(
            name, PLAN.format(name=name, epsilon=1).replace("slot_seconds = 1", "slot_seconds = 600")
        )
    running = start()
    status, text = running.get("/metrics")
    assert status == 200
    for name, (kind, _, _) in FAMILIES.items():
        assert f"# TYPE {name}{'_total' if kind == 'counter' else ''} {kind}" in text
    for name in ("power", "water"):
        assert f'undertone_campaign_state{{campaign="{name}",state="running"}} 1.0' in text
        assert f'undertone_deliveries_received_total{{campaign="{name}"}} 0.0' in text
        assert f'undertone_reports_lost{{campaign="{name}",group="all"}} 0.0' in text
        assert f'undertone_commits_total{{campaign="{name}"}} ' in text
        # Each counter begins at 0: a series that begins at 1 would show no increase.
        for outcome in OUTCOMES:
            assert f'undertone_deliveries_total{{campaign="{name}",outcome="{outcome}"}} 0.0' in text
        assert f'undertone_alarms_all_total{{campaign="{name}"}} 0.0' in text
    assert 'undertone_alarms_all_total{campaign=""} 0.0' in text
    assert "undertone_ready 1.0" in text
    wait_for(lambda: running.get("/metrics")[1].count("\nundertone_campaign_signed{campaign=") == 2)
    assert "undertone_broker_connected 1.0" in text
    assert "undertone_endpoint_connections 0.0" in text
    assert running.get("/other")[0] == 404


def test_health_is_told_on_an_ipv6_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "answer", lambda *_: (200, health.TEXT, b"ok"))
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        absent("IPv6")
    with (
        serve_health(cast(Server, None), "[::1]:0") as port,
        urllib.request.urlopen(f"http://[::1]:{port}/healthz", timeout=60) as answered,
    ):
        assert answered.read() == b"ok"


def test_a_first_plan_that_cannot_be_read_keeps_no_other_from_starting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, read = Home(folder), Path.read_bytes
    home.write_plan("a", PLAN.format(name="a", epsilon=1))

    def denied(path: Path) -> bytes:
        if path.name == "a.toml":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(OSError, match=r"a\.toml"):
        home.config("a")
    assert _first(home, threading.Event(), Journal(io.StringIO())).campaign.name == "power"


def test_metrics_without_their_library_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with serve_health(cast(Server, None), "127.0.0.1:0") as port:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
        assert refused.value.code == 503
        assert json.load(refused.value)["error"].startswith("/metrics needs prometheus-client")


@pytest.mark.waits
def test_a_campaigns_life_by_the_commands(folder: Path, start: Callable[[], Running]) -> None:
    running = start()
    made = undertone("campaign", "create", str(folder), "heat", "--sensor", "heat", "--unit", "kWh", "--bound", "500",
                     "--epsilon", "1", "--slot-seconds", "1", "--set", "cells=16", "--set", "rounds=[99]")  # fmt: skip
    assert made.returncode == 0, made.stderr
    wait_for(lambda: "epoch" in running.events("heat"))
    again = undertone("campaign", "create", str(folder), "heat", "--sensor", "heat", "--unit", "kWh", "--bound", "500",
                      "--epsilon", "1")  # fmt: skip
    assert again.returncode == 2
    plan = folder / "changed.toml"
    plan.write_text(PLAN.format(name="power", epsilon=2), encoding="utf-8")
    shown = undertone("campaign", "diff", str(folder), "power", str(plan))
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (1, 'campaign.epsilon "1" -> "2"')
    # A plan that was changed by hand is reported, and not applied.
    Home(folder).write_plan("water", PLAN.format(name="water", epsilon=2))
    wait_for(lambda: "plan" in running.events("water"))
    wait_for(running.healthy)
    assert undertone("campaign", "apply", str(folder), "power", str(plan)).returncode == 0
    wait_for(lambda: running.events("power").count("resumed") == 1 and running.healthy())
    plan.write_text(PLAN.format(name="power", epsilon=2).replace("bound = 1000", "bound = 2000"), encoding="utf-8")
    refused = undertone("campaign", "apply", str(folder), "power", str(plan))
    assert refused.returncode == 2
    assert "campaign.bound 1000 -> 2000 (fixed since the campaign began)" in refused.stderr
    for verb, state in (("pause", "paused"), ("resume", "running"), ("retire", "retired")):
        assert undertone("campaign", verb, str(folder), "power").stdout.startswith(f"campaign power is set to {state}")
        wait_for(lambda state=state: running.states()["power"]["state"] == state)
    assert undertone("campaign", "resume", str(folder), "power").returncode == 2
    listed = json.loads(undertone("campaign", "list", str(folder), "--json").stdout)
    assert {row["campaign"]: row["state"] for row in listed} == {
        "heat": "running",
        "power": "retired",
        "water": "running",
    }


@pytest.mark.slow
def test_a_paused_campaign_is_broadcast_after_a_restart(tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    write_home(tmp_path, port, ["d1"], prefix="undertone-test/many")
    Home(tmp_path).write_plan("power", PLAN.format(name="power", epsilon=1))
    for paused in (False, True):
        running = Running(tmp_path)
        try:
            wait_for(lambda running=running: running.healthy() and running.ready("power"))
            assert (running.states()["power"]["state"] == "paused") is paused
            device = Device(port, "d1")
            try:
                device.subscribe("undertone-test/many/power/config")
                device.wait(MESSAGE)
            finally:
                device.socket.close()
            if not paused:
                change_state(Home(tmp_path), "power", PAUSED)
                wait_for(lambda running=running: running.states()["power"]["state"] == "paused")
        finally:
            running.end()


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"holds no server\.toml: make it with undertone init"):
        Home(tmp_path)


def test_the_same_sentence_is_said_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    log, now = io.StringIO(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    journal = Journal(log).of("power")
    for later in (0, 1, 599, 1):
        now[0] += later
        journal.say_once("store", "alarm: the disk is full")
    assert log.getvalue().count("[power] alarm: the disk is full") == 2
    assert [(alarm.campaign, alarm.event) for alarm in journal.alarms] == [("power", "store")] * 2
    journal.of("water").alarm("silent", "no report")
    journal.of("").alarm("room", "no room")
    rang = journal.recent_alarms(time.time() - 60)
    assert [alarm.sentence for alarm in rang] == ["alarm: no room", *["alarm: the disk is full"] * 2]
    assert journal.recent_alarms(time.time() + 60) == []
