"""Commands add, rotate, revoke, forget and list devices: their effect on files, stores and a running endpoint."""

import json
import threading
import time
from collections import Counter
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.command import undertone
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.endpoint.access import read_access
from undertone_aggregator.mqtt.signing import make_key
from undertone_aggregator.mqtt.source import open_source
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_aggregator.settings.groups import keep_groups, read_groups
from undertone_aggregator.store.store import Batch, open_store
from undertone_operate.fleet import devices
from undertone_shared.topics import DEFAULT_PREFIX, report_topic


@pytest.fixture
def run(tmp_path, free_port):
    home = str(tmp_path / "home")

    def call(*words, code=0):
        at = ["--home", home] if words[0] == "devices" else []
        done = undertone(*words, *at)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    call("init", home, "--port", str(free_port()), "--audit")
    plan = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1", "--slot-seconds", "60")
    call("campaign", "create", home, "load", *plan)
    call("devices", "add", "3")
    return call


@pytest.mark.parametrize("where", [(), ("--broker", "mqtts://broker.example")], ids=["direct", "external"])
def test_at_the_servers_own_endpoint_every_device_is_tied_to_its_campaign(tmp_path, monkeypatch, where):
    """mosquitto is slow with many rules, so at a mosquitto, many devices share one pattern."""
    monkeypatch.setattr(devices.credentials, "EXACT_DEVICES", 2)
    home = tmp_path / "home"
    done = [undertone("init", str(home), *where)]
    plan = ("--unit", "Wh", "--bound", "10000", "--epsilon", "1", "--slot-seconds", "60")
    for name in ("load", "heat"):
        done += [
            undertone("campaign", "create", str(home), name, "--sensor", name, *plan),
            undertone("devices", "add", "2", "--home", str(home), "--campaign", name),
        ]
    assert [each.stderr for each in done if each.returncode] == []
    access = read_access(home / "broker/access")
    for name, other in (("load", "heat"), ("heat", "load")):
        device = f"{name}-001"
        assert access.may_publish(report_topic(DEFAULT_PREFIX, name, device), device)
        assert access.may_publish(report_topic(DEFAULT_PREFIX, other, device), device) == bool(where)
        assert not access.may_publish(report_topic(DEFAULT_PREFIX, other, f"{other}-001"), device)


class Client:
    """A device's connection: whether the endpoint refuses it (``refused``), and whether it has ended (``out``)."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self.answer = threading.Event()
        self.out = threading.Event()
        self.refused = True
        self._client = paho.Client(CallbackAPIVersion.VERSION2, name, reconnect_on_failure=False)
        self._client.username_pw_set(name, password)
        self._client.on_connect = self._connected
        self._client.on_disconnect = lambda *_: self.out.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self.answer.wait(30)

    def _connected(self, client, data, flags, code, properties):
        self.refused = code.is_failure
        self.answer.set()

    def close(self) -> None:
        leave(self._client)


def password(tmp_path: Path, name: str) -> str:
    return (tmp_path / "home/fleets/load/devices" / name / "password").read_text(encoding="utf-8").strip()


def lets_in(port: int, name: str, secret: str, expected: bool) -> None:
    """Wait until the endpoint has read its files again and accepts the device, or refuses it if not ``expected``."""

    def as_expected():
        client = Client(port, name, secret)
        client.close()
        return client.refused != expected

    wait_for(as_expected, what=f"the endpoint's answer to {name}")


def test_add_rotate_and_revoke_at_a_running_endpoint(run, tmp_path):
    config = Home(tmp_path / "home").config("load")
    stop = threading.Event()
    with open(tmp_path / "log", "w", encoding="utf-8") as log, open_source(config, Journal(log)) as source:
        watch_hang_up(source, Journal(log), stop, lambda: True)
        source.endpoint.listen()
        try:
            port = config.broker.port
            before = password(tmp_path, "load-001")
            stolen = Client(port, "load-002", password(tmp_path, "load-002"))
            assert not stolen.refused

            assert "load-004 to load-005" in run("devices", "add", "2")
            lets_in(port, "load-005", password(tmp_path, "load-005"), True)

            run("devices", "rotate", "load-001")
            lets_in(port, "load-001", before, False)
            lets_in(port, "load-001", password(tmp_path, "load-001"), True)

            secret = password(tmp_path, "load-002")
            run("devices", "revoke", "load-002")
            assert stolen.out.wait(60), "the endpoint ends its connection"
            stolen.close()
            lets_in(port, "load-002", secret, False)
            lets_in(port, "load-003", password(tmp_path, "load-003"), True)
        finally:
            stop.set()


def test_names_are_never_given_twice(run, tmp_path):
    run("devices", "add", "1")
    run("devices", "revoke", "load-004")
    assert "only a revoked device can be forgotten" in run("devices", "forget", "load-001", code=2)
    run("devices", "forget", "load-004")
    assert not (tmp_path / "home/fleets/load/devices/load-004").exists()
    assert "load-005" in run("devices", "add", "1")
    names = [row["name"] for row in json.loads(run("devices", "list", "--json"))]
    assert names == ["load-001", "load-002", "load-003", "load-005"]
    for command in ("rotate", "revoke", "show"):
        assert "load-004 is not in the inventory" in run("devices", command, "load-004", code=2)
    assert "expected an active device" in run("devices", "revoke", "load-099", code=2)


def test_no_file_of_the_fleet_names_a_forgotten_device(run, tmp_path, monkeypatch):
    run("devices", "add", "2", "--group", "north")
    groups = tmp_path / "home/fleets/load/groups.csv"
    with open_store(Home(tmp_path / "home").config("load").store_url, campaign="load") as store:
        keep_groups(store, read_groups(groups))
    run("devices", "revoke", "load-004")
    assert read_groups(groups) == {"load-004": "north", "load-005": "north"}
    with monkeypatch.context() as patched:
        patched.setattr(devices, "tombstone", raiser("power cut"))
        assert "power cut" in run("devices", "forget", "load-004", code=2)
    # The name is also removed from lines with an editor's mistake or with bytes that are no UTF-8.
    groups.write_bytes(groups.read_bytes() + b"load-004,nor\xffth\r\nload-004\nload-40,south,\n\n")
    run("devices", "forget", "load-004")
    assert groups.read_bytes() == b"device,group\nload-005,north\nload-40,south,\n\n"
    assert groups.stat().st_mode & 0o777 == 0o600
    with open_store(Home(tmp_path / "home").config("load").store_url, campaign="load") as store:
        assert store.groups() == {"load-005": "north"}
    # The store's file keeps the bytes of a deleted row for a while.
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.parent.name != "stores"]
    assert [path for path in files if b"load-004" in path.read_bytes()] == []
    # To forget a device that is in no group leaves the file of groups as it is.
    before = groups.stat()
    run("devices", "revoke", "load-001")
    run("devices", "forget", "load-001")
    assert groups.stat().st_mtime_ns == before.st_mtime_ns


def raiser(words: str):
    def cut(*_):
        raise OSError(words)

    return cut


def test_a_revocation_that_was_cut_short_is_ended_by_another(run, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(devices.credentials, "change_passwords", raiser("power cut"))
        assert "power cut" in run("devices", "revoke", "load-001", code=2)
    assert "load-001:" in (tmp_path / "home/broker/passwords").read_text(encoding="utf-8")
    since = json.loads(run("devices", "show", "load-001", "--json"))
    assert since["state"] == "revoked", "admission comes first"
    run("devices", "revoke", "load-001")
    assert "load-001:" not in (tmp_path / "home/broker/passwords").read_text(encoding="utf-8")
    assert json.loads(run("devices", "show", "load-001", "--json")) == since


@pytest.mark.parametrize(("file", "sentence"), [("device.json", "is not JSON"), ("policy.json", "is not JSON")])
def test_a_first_device_whose_files_are_damaged_is_named(run, tmp_path, file, sentence):
    """A power cut may leave these files empty, because they are not synced one by one."""
    (tmp_path / "home/fleets/load/devices/load-001" / file).write_text("", encoding="utf-8")
    told = run("devices", "add", "1", code=2)
    assert f"{tmp_path / 'home/fleets/load/devices/load-001'}, the model of the new devices, cannot be read: " in told
    assert sentence in told


def test_who_is_lost(run, monkeypatch):
    """An active device is lost if it has been silent for so long that its unsent reports would come too late.

    A device that never sent a report is lost, too, unless it is new.
    """

    def lost():
        return [row["name"] for row in json.loads(run("devices", "list", "--lost", "--json"))]

    run("devices", "revoke", "load-001")
    run("devices", "add", "1")
    assert lost() == [], "one that is new is not lost"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3 * 86400)
    assert lost() == ["load-002", "load-003", "load-004"]
    last = {"load-002": int(now + 2 * 86400) // 60, "load-003": int(now) // 60, "load-004": None}
    monkeypatch.setattr(devices.FleetFiles, "last_slots", lambda _: last)
    assert lost() == ["load-003", "load-004"]


def test_the_inventory_is_listed_shown_and_exported(run, tmp_path):
    rows = json.loads(run("devices", "list", "--silent", "2d", "--json"))
    assert [row["last_report"] for row in rows] == [None] * 3
    shown = run("devices", "show", "load-002")
    assert "last_report  never" in shown
    assert "code         -" in shown
    run("devices", "export", "--output", str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[
        0
    ] == "name,group,state,since,last_report,code"
    assert (tmp_path / "out.csv").stat().st_mode & 0o777 == 0o600, "no other user may read when a household reported"
    assert run("devices", "conflicts").strip() == "none"
    assert "--silent is 'ever'" in run("devices", "list", "--silent", "ever", code=2)
    plan = tmp_path / "home/campaigns/load.toml"
    plan.write_text(
        "".join(line for line in plan.read_text(encoding="utf-8").splitlines(True) if not line.startswith("groups")),
        encoding="utf-8",
    )
    assert "has no groups" in run("devices", "add", "1", "--group", "north", code=2)
    assert "expected 1 to 100000" in run("devices", "add", "0", code=2)


def test_who_contradicts_itself_is_known_only_with_audit(run, tmp_path):
    config = Home(tmp_path / "home").config("load")

    def heard(count: int, *audit: tuple[str, bytes, str]) -> None:
        with open_store(config.store_url, campaign="load") as store:
            store.commit("worker", Batch(outcomes=Counter(conflict=count), audit=list(audit)))

    needed = "[store] audit in server.toml"
    log = "look in the server's log for 'sent a second, different report'"
    unnamed = f"but the store names no device, because {needed} was off: {log}"
    heard(1)
    said = run("devices", "conflicts", code=2)
    assert f"1 report contradicts another, {unnamed}" in said
    heard(2)
    assert f"3 reports contradict others, {unnamed}" in run("devices", "conflicts", "--json", code=2)
    plan = tmp_path / "home/campaigns/load.toml"
    before = plan.read_text(encoding="utf-8")
    plan.write_text(before + '\n[landing]\nfolder = "landing"\ncounts = "spark"\n', encoding="utf-8")
    by_spark = "3 reports contradict others, but the store names no device, because Spark counts the reports\n"
    assert run("devices", "conflicts", code=2).endswith(by_spark)
    plan.write_text(before, encoding="utf-8")
    heard(1, ("load-002", b"12345678", "conflict"), ("load-003", b"12345678", "counted"))
    home = ("devices", "conflicts", "--home", str(tmp_path / "home"))
    done = undertone(*home)
    assert (done.stdout, done.stderr) == ("load-002\n", "")
    settings = tmp_path / "home/server.toml"
    text = settings.read_text(encoding="utf-8")
    assert "audit = true" in text
    settings.write_text(text.replace("audit = true", "audit = false"), encoding="utf-8")
    done = undertone(*home, "--json")
    assert json.loads(done.stdout) == ["load-002"]
    assert done.stderr == f"{needed} is off now, so the list can lack devices: {log}\n"


def test_new_devices_know_the_servers_present_key(run, tmp_path):
    """After a change of the key, a device like the first one would refuse everything that the server signs."""
    home = tmp_path / "home"

    def signers(number: int) -> list[str]:
        path = home / f"fleets/load/devices/load-{number:03d}/policy.json"
        return json.loads(path.read_text(encoding="utf-8"))["signers"]

    (old,) = signers(1)
    (home / "signing.key").rename(tmp_path / "old.key")
    present = make_key(home / "signing.key").public
    run("devices", "add", "1")
    assert (signers(1), signers(4)) == ([old], [present])
    first = home / "fleets/load/devices/load-001/policy.json"
    fields = json.loads(first.read_text(encoding="utf-8"))
    first.write_text(json.dumps({**fields, "signers": [old, present]}), encoding="utf-8")
    run("devices", "add", "1")
    assert signers(5) == [old, present]
    (home / "signing.key").unlink()
    run("devices", "add", "1")
    assert signers(6) == [old, present]


def test_an_absence_sizes_what_new_devices_keep(run, tmp_path):
    told = run("devices", "add", "1", "--absence", "1h")
    assert "each device keeps its newest 61 reports, 1,464 bytes, while the server is away for up to 1h" in told
    device = json.loads((tmp_path / "home/fleets/load/devices/load-004/device.json").read_text(encoding="utf-8"))
    assert device["outbox"] == 61
    assert "absence is 259200 s, expected 1 to 172800 s" in run("devices", "add", "1", "--absence", "3d", code=2)
    assert "absence is 'long', expected" in run("devices", "add", "1", "--absence", "long", code=2)
