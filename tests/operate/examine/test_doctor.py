"""`undertone init` makes a folder that works without editing. `undertone doctor` says what is wrong with a folder."""

import contextlib
import errno
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.command import undertone
from support.many import PLAN, Running, undertone_process
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.base.files import write_private
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.signing import make_key
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.supervisor import alone
from undertone_aggregator.store.store import open_store
from undertone_device.core.ledger import DEFAULT_OUTBOX
from undertone_operate.examine import doctor, doctor_broker
from undertone_operate.examine.doctor import examine
from undertone_operate.examine.doctor_broker import OUTBOX
from undertone_shared.topics import config_topic
from undertone_simulator.mosquitto import Mosquitto


def results(folder: Path) -> dict[str, str]:
    return {finding.check: finding.result for finding in examine(folder)}


@pytest.fixture(autouse=True)
def mosquitto(mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    # On a busy machine, a broker answers late.
    monkeypatch.setattr(doctor_broker, "_WAIT_SECONDS", 60.0)
    # So long doctor waits for what must not happen: a message that the rules forbid, or the end of a connection.
    monkeypatch.setattr(doctor_broker, "_QUIET_SECONDS", 0.1)


@contextlib.contextmanager
def broker_of(folder: Path, mosquitto_binary: str) -> Iterator[None]:
    """The broker that runs with the files of `init`."""
    command = [mosquitto_binary, "-c", str(folder / "broker/mosquitto.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        try:
            yield
        finally:
            child.terminate()


def test_the_devices_port_is_examined_before_the_first_campaign(tmp_path: Path, free_port: Callable[[], int]) -> None:
    folder, port = tmp_path / "home", free_port()
    assert undertone("init", str(folder), "--port", str(port)).returncode == 0
    ports = [finding.sentence for finding in examine(folder) if finding.check == "ports"]
    assert f"devices: 127.0.0.1:{port} is free; no program listens there" in ports


def test_a_server_that_waits_for_its_first_campaign_is_said_to_run(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder)).returncode == 0

    def said() -> list[str]:
        return [finding.sentence for finding in examine(folder) if finding.check == "server"]

    assert said() == ["no server runs on this folder now"]
    with alone(Home(folder)):
        assert said() == ["a server runs on this folder, and has not begun a campaign yet"]
    assert said() == ["no server runs on this folder now"]


def test_what_init_writes_is_served_and_healthy_without_editing(tmp_path: Path, free_port: Callable[[], int]) -> None:
    folder, port = tmp_path / "home", free_port()
    made = undertone("init", str(folder), "--port", str(port))
    assert made.returncode == 0, made.stderr
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    assert undertone("devices", "add", "1", "--home", str(folder)).returncode == 0
    running = Running(folder)
    try:
        wait_for(running.healthy)
        found = results(folder)
        assert found.pop("sync") in ("ok", "warning")
        # With slots of a second, devices keep reports for a short absence only, which doctor warns of.
        assert {check for check, result in found.items() if result != "ok"} == {"absence"}, found
    finally:
        running.end()


@pytest.mark.slow
@pytest.mark.waits
def test_what_init_writes_for_a_broker_is_served_and_healthy_without_editing(
    tmp_path: Path, mosquitto_binary: str, free_port: Callable[[], int]
) -> None:
    folder = tmp_path / "home"
    made = undertone("init", str(folder), "--broker", f"mqtt://127.0.0.1:{free_port()}")
    assert made.returncode == 0, made.stderr
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    assert undertone("init", str(folder)).returncode == 2, "nothing is replaced"
    for options in (("--health", "a b"), ("--page", "8080"), ("--host", "a b")):
        refused = undertone("init", str(tmp_path / "other"), *options)
        assert (refused.returncode, "'" + options[1] + "', expected" in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "other").exists()
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    with contextlib.ExitStack() as opened:
        opened.enter_context(broker_of(folder, mosquitto_binary))
        running = Running(folder)
        opened.callback(running.end)
        wait_for(running.healthy)
        broadcast = config_topic(Home(folder).config("power").broker.prefix, "power")
        wait_for(lambda: running.server.outlet.heard.get(broadcast), what="the campaign at the broker")  # type: ignore[union-attr]
        examined = undertone_process("doctor", str(folder), "--json")
        results = {row["check"]: row["result"] for row in json.loads(examined.stdout)}
        # The speed of a disk that other programs use says nothing about this folder.
        assert results.pop("sync") in ("ok", "warning")
        assert set(results.values()) == {"ok"}, examined.stdout
        assert {"password", "access", "client ids", "broadcast of power", "store of power"} <= set(results)
        assert examined.returncode == 0
        rung = {event for _, event in running.server.journal.alarm_counts}  # type: ignore[union-attr]
        assert rung <= {"silent"}, "doctor disturbs no running server; the only alarm may be that nobody reports"
        assert {"broker's file", "ports"} <= set(results)
        # From here on, the folder has another key than the one that signed the campaign.
        key = folder / "signing.key"
        key.rename(folder / "kept.key")
        make_key(key)
        broken = {finding.check: finding for finding in examine(folder) if finding.result == "failure"}
        assert list(broken) == ["broadcast of power"]
    assert "is not signed by the key in" in broken["broadcast of power"].sentence


def test_a_certificate_that_has_ended_is_a_warning_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "certificate_ends", lambda _: {"tls/server.crt": int(time.time()) - 3 * 86400})
    (finding,) = doctor._certificates(None)  # type: ignore[arg-type]
    assert (finding.result, finding.sentence) == ("warning", "tls/server.crt has ended")
    assert finding.fix == "run undertone authority renew, or put a new certificate there"


def test_init_of_a_direct_endpoint_with_certificates_is_served(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, port, websocket = tmp_path / "home", free_port(), free_port()
    broker = ("--broker", "mqtts://meters.example.org")
    for options in (
        ("--certificates",),
        ("--broker", "meters.example.org"),
        ("--broker", "mqtt://meters.example.org"),
        ("--broker", "mqtts://meters.example.org:x"),
        ("--broker", "wss://meters.example.org"),
        *((*broker, *more) for more in (("--tls",), ("--certificates",), ("--host", "a"), ("--port", "1"))),
        (*broker, "--websocket-port", "8443"),
        ("--tls", "--page", "127.0.0.1:8443"),
        ("--tls", "--join-port", "8883"),
        ("--port", "9464"),
        ("--join-port", "8080", "--page", "127.0.0.1:8080"),
        ("--websocket-port", "65536"),
    ):
        refused = undertone("init", str(folder), *options)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), (options, refused.stderr)
    wanted = ("--tls", "--certificates", "--host", "localhost", "--port", str(port), "--websocket-port", str(websocket))
    made = undertone("init", str(folder), *wanted, "--health", "127.0.0.1:0")
    assert made.returncode == 0, made.stderr
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    assert undertone("devices", "add", "2", "--home", str(folder)).returncode == 0
    device = folder / "fleets/power/devices/power-002"
    settings = json.loads((device / "device.json").read_text(encoding="utf-8"))["broker"]
    assert settings == {"host": "localhost", "port": port, "tls": {"ca": "ca.crt", "identity": "device"}}
    assert not (device / "password").exists()
    running = Running(folder)
    try:
        wait_for(running.healthy)
        context = ssl.create_default_context(cafile=str(device / "ca.crt"))
        context.load_cert_chain(str(device / "device.crt"), str(device / "device.key"))
        with (
            socket.create_connection(("127.0.0.1", port), 60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            # This CONNECT has the device's name as client id and as user, and no password. The endpoint answers with a
            # CONNACK that accepts the connection.
            name = b"power-002"
            connect = b"\x00\x04MQTT\x04\x82\x00\x3c" + (len(name).to_bytes(2, "big") + name) * 2
            secure.sendall(bytes([0x10, len(connect)]) + connect)
            assert secure.recv(4) == b"\x20\x02\x00\x00"
        client = mqtt.Client(CallbackAPIVersion.VERSION2, "power-002", transport="websockets")
        client.username_pw_set("power-002")
        client.tls_set(str(device / "ca.crt"), str(device / "device.crt"), str(device / "device.key"))
        client.connect("localhost", websocket)
        client.loop_start()
        wait_for(client.is_connected)
        leave(client)
        assert websocket_findings(folder) == [("ok", f"websocket: 0.0.0.0:{websocket} answers")]
        wait_for(lambda: results(folder)["server"] == "ok", what="the state that is written every second")
    finally:
        running.end()
    monkeypatch.setattr(doctor, "_WAIT_SECONDS", 0.1)
    with socket.create_server(("0.0.0.0", websocket)):
        ((result, sentence),) = websocket_findings(folder)
        assert result == "failure"
        assert "cannot be used" in sentence


def websocket_findings(folder: Path) -> list[tuple[str, str]]:
    findings = [finding for finding in examine(folder) if finding.check == "ports"]
    return [(each.result, each.sentence) for each in findings if each.sentence.startswith("websocket")]


def test_what_is_wrong_is_a_failure_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every message that doctor waits for comes here, perhaps late, so doctor waits long.
    monkeypatch.setattr(doctor_broker, "_QUIET_SECONDS", 60.0)
    folder = tmp_path / "home"
    missing = undertone("doctor", str(folder))
    assert missing.returncode == 1
    assert missing.stdout.count("undertone init") == 1
    assert undertone("init", str(folder), "--broker", "mqtt://127.0.0.1").returncode == 0
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    assert results(folder)["broker"] == "failure", "nobody listens there"
    access = tmp_path / "access"
    access.write_text("pattern readwrite #\n", encoding="utf-8")
    with Mosquitto(tmp_path / "b", passwords=folder / "broker/passwords", access=access, own_client_ids=True) as broker:
        server = folder / "server.toml"
        server.write_text(
            server.read_text(encoding="utf-8").replace("port = 1883", f"port = {broker.port}"), encoding="utf-8"
        )
        checks = results(folder)
        assert {check for check, result in checks.items() if result == "failure"} == {"access", "client ids"}
        assert checks["broadcast of power"] == "warning", "the server does not run"
        separate = server.read_text(encoding="utf-8")
        server.write_text(separate.replace("[broker]\n", "[broker]\nworker_users = false\n"), encoding="utf-8")
        assert "access" not in results(folder), "the server's own user publishes campaigns"
        server.write_text(separate, encoding="utf-8")
        write_private(folder / "aggregator.password", "another\n")
        assert results(folder)["password"] == "failure"
    (folder / "signing.key").chmod(0o644)
    assert results(folder)["modes"] == "failure"
    text = undertone("doctor", str(folder)).stdout
    assert f"(fix: chmod 600 {folder / 'signing.key'})" in text


def test_init_for_a_broker_of_ones_own(tmp_path: Path, mosquitto_binary: str, free_port: Callable[[], int]) -> None:
    folder = tmp_path / "home"
    made = undertone("init", str(folder), "--broker", f"mqtts://localhost:{free_port()}")
    assert made.returncode == 0, made.stderr
    config = folder / "broker/mosquitto.conf"
    assert "use_username_as_clientid true" in config.read_text(encoding="utf-8")
    with subprocess.Popen([mosquitto_binary, "-c", str(config)], stderr=subprocess.DEVNULL) as child:
        try:
            Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
            wait_for(lambda: results(folder)["broker"] == "ok")
            assert "failure" not in results(folder).values()
        finally:
            child.terminate()


def test_a_port_that_says_nothing_has_refused_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_broker, "_WAIT_SECONDS", 0.3)
    folder = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        assert undertone("init", str(folder), "--broker", broker).returncode == 0
        Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
        (told,) = (finding for finding in examine(folder) if finding.result == "failure")
    assert told.check == "broker"
    assert "does not answer as a broker does (no answer): does this port expect TLS?" in told.sentence


def test_a_broker_that_forgets_is_seen_by_its_file_and_a_damaged_store_by_a_look_at_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder), "--broker", "mqtt://127.0.0.1").returncode == 0
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    assert results(folder)["broker's file"] == "ok"
    config = folder / "broker/mosquitto.conf"
    config.write_text(
        config.read_text(encoding="utf-8").replace("persistence true", "persistence false"), encoding="utf-8"
    )
    told = next(finding for finding in examine(folder) if finding.check == "broker's file")
    assert told.result == "failure"
    assert told.sentence.endswith("does not set persistence true")
    store = folder / "stores/power.sqlite"
    store.parent.mkdir(exist_ok=True)
    with open_store(store, campaign="power") as opened:
        opened.set_meta({"campaign": "power", "filler": "x" * 50_000})
    assert results(folder)["store of power"] == "ok"
    data = bytearray(store.read_bytes())
    data[-4096 * 4 : -4096] = bytes(4096 * 3)
    store.write_bytes(data)
    assert results(folder)["store of power"] == "failure"
    with open_store(tmp_path / "other.sqlite", campaign="heat") as other:
        other.set_meta({"campaign": "heat"})
        other.backup(tmp_path / "copy.sqlite")
    (tmp_path / "copy.sqlite").replace(store)
    told = next(finding for finding in examine(folder) if finding.check == "store of power")
    assert told.sentence.endswith("holds the campaign heat, expected power: use another store")
    assert told.fix == "", "the sentence says what to do"
    config.unlink()
    assert results(folder)["broker's file"] == "warning", "what cannot be known is said"


@pytest.mark.parametrize(("seconds", "span", "result"), [(1800, "48 hours", "ok"), (5, "8 minutes", "warning")])
def test_how_long_a_direct_server_may_be_away_is_said(tmp_path: Path, seconds: int, span: str, result: str) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder)).returncode == 0
    plan = PLAN.format(name="power", epsilon=1)
    slots = f"slot_seconds = {seconds}"
    plan = re.sub(r"slot_seconds = \d+", slots, plan) if "slot_seconds" in plan else f"{plan}\n{slots}\n"
    Home(folder).write_plan("power", plan)
    credentials.write_passwords(folder / "passwords", {"d1": "secret"})
    (folder / "server.toml").write_text('[broker]\nmode = "direct"\npasswords = "passwords"\n', encoding="utf-8")
    absence = next(finding for finding in examine(folder) if finding.check == "absence")
    assert absence.result == result
    assert OUTBOX == DEFAULT_OUTBOX
    assert span in absence.sentence


def test_what_cannot_be_examined_is_a_finding_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder), "--page", "[::1]:0").returncode == 0
    Home(folder).write_plan("power", PLAN.format(name="power", epsilon=1))
    assert results(folder)["store of power"] == "ok", "its server makes it"
    plan = folder / "campaigns/power.toml"
    without = plan.read_text(encoding="utf-8")
    plan.write_text(f'{without}\n[landing]\nfolder = "landed"\n', encoding="utf-8")
    told = [finding.fix for finding in examine(folder) if finding.check == "privacy of power"]
    assert told == [f"if nobody needs these files, remove [landing] from {plan}"]
    plan.write_text(without, encoding="utf-8")
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        assert results(folder)["ports"] == "ok"

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "TemporaryFile", full)
        assert results(folder)["sync"] == "failure"
    (folder / "broker/passwords").rename(folder / "broker/elsewhere")
    assert results(folder)["passwords"] == "failure", "without the file no device can log in"
    (folder / "server.toml").write_text("[server]\nworkers = 0\n", encoding="utf-8")
    told = [finding for finding in examine(folder) if finding.result == "failure"]
    assert [(finding.check, finding.fix) for finding in told] == [("server", f"edit {folder / 'server.toml'}")]


@pytest.mark.parametrize(("status", "result"), [(503, "ok"), (404, "failure")])
def test_a_server_that_hangs_still_holds_its_health_address(tmp_path: Path, status: int, result: str) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        folder = tmp_path / "home"
        assert undertone("init", str(folder)).returncode == 0
        text = f'[server]\nhealth = "127.0.0.1:{server.server_port}"\n'
        (folder / "server.toml").write_text(text, encoding="utf-8")
        found = [finding.result for finding in examine(folder) if finding.sentence.startswith("health: ")]
        server.shutdown()
    assert found == [result]


def test_init_goes_on_where_an_earlier_one_was_cut_short(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder)).returncode == 0
    key = (folder / "signing.key").read_bytes()
    (folder / "server.toml").unlink()
    assert undertone("init", str(folder)).returncode == 0
    assert (folder / "signing.key").read_bytes() == key


def test_absence_is_examined_for_every_campaign(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder)).returncode == 0
    for name, seconds in (("a", 1800), ("b", 5), ("c", 10)):
        plan = PLAN.format(name=name, epsilon=1)
        Home(folder).write_plan(name, re.sub(r"slot_seconds = \d+", f"slot_seconds = {seconds}", plan))
    found = [finding for finding in examine(folder) if finding.check == "absence"]
    assert [finding.result for finding in found] == ["warning", "warning"]
    assert ["of b" in finding.sentence for finding in found] == [True, False]
    for name in ("b", "c"):
        Home(folder).remove(name)
    (only,) = (finding for finding in examine(folder) if finding.check == "absence")
    assert (only.result, "of a" in only.sentence) == ("ok", True)


def test_a_signing_key_that_is_gone_is_a_failure_and_no_command_makes_a_second(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    assert undertone("init", str(folder)).returncode == 0
    Home(folder).write_plan("a", PLAN.format(name="a", epsilon=1))
    assert results(folder)["signing key"] == "ok"
    key = folder / "signing.key"
    key.rename(folder / "kept.key")
    assert results(folder)["signing key"] == "failure"
    server = folder / "server.toml"
    text = server.read_text(encoding="utf-8")
    server.write_text(re.sub("^#? ?signing_key = .*", 'signing_key = "kept.key"', text, flags=re.M), encoding="utf-8")
    assert results(folder)["signing key"] == "ok", "it is the file that the settings name"
    server.write_text(text, encoding="utf-8")
    assert undertone("doctor", str(folder)).returncode == 1
    devices = ("devices", "add", "2", "--home", str(folder), "--campaign", "a")
    refused = undertone(*devices)
    assert refused.returncode == 2, refused.stdout
    assert "signing.key is missing" in refused.stderr
    (folder / "kept.key").rename(key)
    assert undertone(*devices).returncode == 0
    assert list(folder.rglob("signing.key")) == [key]
