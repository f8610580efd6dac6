import contextlib
import subprocess
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import Mosquitto, find_mosquitto


class User:
    """A client that remembers whether the broker refused it, and the messages it gets."""

    def __init__(self, broker: Mosquitto, name: str, password: str) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.refused: bool | None = None
        self.acknowledged = 0
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"test-{name}")
        self.client.username_pw_set(name, password)
        self.client.on_connect = self._on_connect
        self.client.on_message = lambda _c, _d, message: self.heard.append((message.topic, message.payload))
        self.client.connect(broker.host, broker.port)
        self.client.loop_start()
        wait_for(lambda: self.refused is not None)

    def _on_connect(self, _c: object, _d: object, _f: object, reason: mqtt.ReasonCode, _p: object) -> None:
        self.refused = reason.is_failure

    def listen(self, *topics: str) -> None:
        done: list[int] = []
        self.client.on_subscribe = lambda *_: done.append(1)
        self.client.subscribe([(topic, 1) for topic in topics])
        wait_for(lambda: bool(done))

    def publish(self, topic: str, *, retain: bool = False) -> None:
        self.client.publish(topic, b"x", qos=1, retain=retain).wait_for_publish(60)

    def __enter__(self) -> "User":
        return self

    def __exit__(self, *_: object) -> None:
        leave(self.client)


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Mosquitto:  # type: ignore[misc]
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    passwords = tmp_path / "passwords"
    credentials.write_passwords(passwords, {**credentials.server_users("a"), "grafana": "b", "d1": "c", "d2": "d"})
    access = tmp_path / "access"
    credentials.write_access_rules(access, "t")
    credentials.write_readers(access, "t", ["grafana"])
    made = Mosquitto(tmp_path / "broker", free_port(), passwords=passwords, access=access)
    with made:
        yield made


def test_who_may_do_what(broker: Mosquitto) -> None:
    with (
        User(broker, "aggregator", "a") as server,
        User(broker, "aggregator-0", credentials.server_users("a")["aggregator-0"]) as worker,
        User(broker, "grafana", "b") as reader,
        User(broker, "d1", "c") as d1,
    ):
        server.listen("t/#")
        worker.listen("t/#")
        reader.listen("t/#")
        d1.listen("t/#", "t/c/config")
        for topic in ("t/c/5/d1/report", "t/c/5/d2/report", "t/c/config", "t/c/aggregate/all", "x/c/5/d1/report"):
            d1.publish(topic)
        reader.publish("t/c/aggregate/all")
        server.publish("t/c/config", retain=True)
        server.publish("t/c/aggregate/all", retain=True)
        everybody = (server, worker, reader, d1)
        # The forged messages were published before these public ones, so they would have arrived by now.
        wait_for(lambda: all(("t/c/config", b"x") in client.heard for client in everybody))
        wait_for(lambda: all(("t/c/aggregate/all", b"x") in client.heard for client in everybody))
        assert sorted(topic for topic, _ in server.heard) == ["t/c/aggregate/all", "t/c/config"]
        # Only the worker gets the report. All four get the public messages.
        assert {topic for topic, _ in worker.heard} == {"t/c/5/d1/report", "t/c/config", "t/c/aggregate/all"}
        assert {topic for topic, _ in reader.heard} == {"t/c/aggregate/all", "t/c/config"}
        assert {topic for topic, _ in d1.heard} == {"t/c/aggregate/all", "t/c/config"}


def test_readers_read_home_assistants_discovery_at_once(
    tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    found, status = "homeassistant/device/undertone_c/config", "homeassistant/status"
    names = [f"reader-{number}" for number in range(4)]
    passwords, access = tmp_path / "passwords", tmp_path / "access"
    credentials.write_passwords(passwords, {**credentials.server_users("a"), **dict.fromkeys(names, "b")})
    credentials.write_access_rules(access, "t")
    credentials.write_readers(access, "t", names)
    with (
        Mosquitto(tmp_path / "broker", free_port(), passwords=passwords, access=access) as broker,
        contextlib.ExitStack() as stack,
    ):
        readers = [stack.enter_context(User(broker, name, "b")) for name in names]
        server = stack.enter_context(User(broker, "aggregator", "a"))
        for reader in readers:
            reader.listen("homeassistant/#")
        readers[0].publish(found, retain=True)
        readers[0].publish(status)
        server.publish(found, retain=True)
        wait_for(lambda: all((found, b"x") in reader.heard for reader in readers))
        for reader in readers:
            assert sorted(topic for topic, _ in reader.heard) == [found, status], "a reader cannot announce"


def test_readers_outlive_the_next_device_and_devices_the_next_reader(tmp_path: Path) -> None:
    path = tmp_path / "access"
    with pytest.raises(Invalid, match="expected the file that undertone init wrote"):
        credentials.write_readers(path, "t", ["grafana"])
    credentials.write_access_rules(path, "t", {"d1": ["c"]})
    assert credentials.readers_of(path) == []
    credentials.write_readers(path, "t", ["grafana", "home"])
    assert credentials.readers_of(path) == ["grafana", "home"]
    credentials.write_access_rules(path, "t", {"d1": ["c"], "d2": ["c"]}, home_assistant="ha")
    assert credentials.readers_of(path) == ["grafana", "home"]
    assert path.read_text(encoding="utf-8").count("topic read ha/#") == 2
    with_both = path.read_text(encoding="utf-8")
    credentials.write_readers(path, "t", ["home"], home_assistant="ha")
    assert credentials.readers_of(path) == ["home"]
    assert "user d2" in path.read_text(encoding="utf-8")
    credentials.write_readers(path, "t", ["grafana", "home"], home_assistant="ha")
    assert path.read_text(encoding="utf-8") == with_both


def test_the_operators_own_rules_outlive_the_next_device(tmp_path: Path) -> None:
    path = tmp_path / "access"
    credentials.write_access_rules(path, "t")
    lines = path.read_text(encoding="utf-8").splitlines()
    hint = lines.index(credentials._OWN_HINT)
    own = ["user grafana", "topic read t/+/aggregate/#"]
    path.write_text("\n".join([*lines[: hint + 1], *own, *lines[hint + 1 :]]) + "\n", encoding="utf-8")
    for devices in ({"d1": ["c"]}, {"d1": ["c"], "d2": ["c"]}, {}):
        credentials.write_access_rules(path, "t", devices)
        assert path.read_text(encoding="utf-8").splitlines()[hint + 1 : hint + 3] == own
        assert ("user d2" in path.read_text(encoding="utf-8")) == ("d2" in devices)
    path.write_text(path.read_text(encoding="utf-8").replace(credentials._OWN_END, ""), encoding="utf-8")
    before = path.read_text(encoding="utf-8")
    with pytest.raises(Invalid, match=r"is missing in .*, or their order is wrong"):
        credentials.write_access_rules(path, "t")
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("name", ["aggregator", "aggregator-0", "aggregator-63"])
def test_no_device_has_a_name_of_the_servers_users(name: str) -> None:
    with pytest.raises(Invalid, match=name):
        credentials.check_device_name(name)


def test_strangers_are_refused(broker: Mosquitto) -> None:
    for name, password in (("aggregator", "b"), ("nobody", "a")):
        with User(broker, name, password) as stranger:
            assert stranger.refused


def test_what_a_password_file_cannot_hold_is_refused() -> None:
    with pytest.raises(Invalid, match="user is 'a:b'"):
        credentials.password_entry("a:b", "x")
    with pytest.raises(Invalid, match="is empty"):
        credentials.password_entry("a", "")


def test_our_password_file_is_mosquittos(
    tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    path = tmp_path / "p"
    passwords = {f"d{number}": credentials.new_password() for number in range(2000)}
    credentials.write_passwords(path, passwords)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2000
    with Mosquitto(tmp_path / "broker", passwords=path) as broker:
        for name in ("d0", "d1000", "d1999"):
            with User(broker, name, passwords[name]) as user:
                assert not user.refused
        with User(broker, "d1", passwords["d0"]) as user:
            assert user.refused, "the password is another device's"


def test_generated_passwords_and_what_is_retained_are_kept(
    tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with Mosquitto(tmp_path, free_port()) as first:
        password = first.password("aggregator")
        with User(first, "aggregator", password) as user:
            user.publish("undertone/v2/c/config", retain=True)
        with pytest.raises(Invalid, match="no generated password for 'd1'"):
            first.password("d1")
    with Mosquitto(tmp_path, free_port()) as second:
        assert second.password("aggregator") == password
        with User(second, "aggregator", password) as user:
            user.listen("undertone/v2/c/config")
            wait_for(lambda: bool(user.heard))


def test_a_broker_that_cannot_start_says_why(
    tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with pytest.raises(Invalid, match="mosquitto did not start"):
        Mosquitto(tmp_path, passwords=tmp_path / "none", access=tmp_path / "none").start()
    with pytest.raises(Invalid, match="queued_messages is 0"):
        Mosquitto(tmp_path, queued_messages=0)


def test_the_binary_is_found_near_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / ".tools/bin/mosquitto"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setattr("undertone_simulator.mosquitto._PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("UNDERTONE_MOSQUITTO", raising=False)
    (tmp_path / "a/b").mkdir(parents=True)
    assert find_mosquitto(tmp_path / "a/b") == str(tool)
    assert subprocess.run([tool], check=False).returncode == 0
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", "/nowhere")
    with pytest.raises(Invalid, match="UNDERTONE_MOSQUITTO is '/nowhere'"):
        find_mosquitto()
    monkeypatch.delenv("UNDERTONE_MOSQUITTO")
    tool.unlink()
    with pytest.raises(Invalid, match="no mosquitto was found"):
        find_mosquitto(Path("/"))
