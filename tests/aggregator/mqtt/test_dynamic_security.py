"""Why the broker's users are in files and not in mosquitto's dynamic security plugin: the tests show the reasons.

If one of these tests fails, one reason against the plugin is gone: consider the plugin again (aggregator/README.md).
"""

import base64
import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.ci import unavailable
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.passwords import ITERATIONS
from undertone_simulator.mosquitto import Mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.broker]
PLUGIN = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
DEVICES = 10_000
CONTROL = "$CONTROL/dynamic-security/v1"
ACLS = ("publishClientSend", "publishClientReceive", "subscribePattern")
CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous false
plugin {plugin}
plugin_opt_config_file {folder}/users.json
user root
"""


def rule(kind: str, topic: str) -> dict[str, object]:
    return {"acltype": kind, "topic": topic, "priority": 0, "allow": True}


def user(name: str, role: str) -> dict[str, object]:
    """A user of the plugin, with the name as the password."""
    digest = hashlib.pbkdf2_hmac("sha512", name.encode(), b"salt" * 3, ITERATIONS, 64)
    secret = {"password": base64.b64encode(digest).decode(), "salt": base64.b64encode(b"salt" * 3).decode()}
    return {"username": name, "roles": [{"rolename": role}], "iterations": ITERATIONS, **secret}


def role(name: str, *acls: dict[str, object]) -> dict[str, object]:
    return {"rolename": name, "acls": list(acls)}


class Plugged:
    """A mosquitto that runs the plugin, and the plugin's administrator."""

    def __init__(self, binary: str, folder: Path, port: int) -> None:
        self.file = folder / "users.json"
        self.heard: list[dict[str, object]] = []
        names = [f"device-{number:05d}" for number in range(DEVICES)]
        everything = [rule(kind, "#") for kind in ACLS]
        control = [rule(kind, "$CONTROL/#") for kind in ACLS]
        roles = [role("admin", *everything, *control), role("pattern", rule("publishClientSend", "own/%u"))]
        roles += [role(name, rule("publishClientSend", f"own/{name}")) for name in names]
        users = [
            user("admin", "admin"),
            user("listener", "admin"),
            user("patterned", "pattern"),
            *(user(name, name) for name in names),
        ]
        allowed = {"publishClientSend": False, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}
        self.file.write_text(
            json.dumps({"defaultACLAccess": allowed, "clients": users, "groups": [], "roles": roles}), encoding="utf-8"
        )
        config = folder / "mosquitto.conf"
        config.write_text(CONFIG.format(port=port, plugin=PLUGIN, folder=folder), encoding="utf-8")
        self.process = subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL)
        self.port = port
        self.admin = self.client("admin")
        self.answered = threading.Event()
        self.admin.on_message = self._on_message
        self.admin.subscribe(f"{CONTROL}/response")

    def client(self, name: str) -> paho.Client:
        made = paho.Client(CallbackAPIVersion.VERSION2, name)
        made.username_pw_set(name, name)
        wait_for(lambda: connects(made, self.port))
        made.loop_start()
        wait_for(made.is_connected)
        return made

    def _on_message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        self.heard.append(json.loads(message.payload))
        self.answered.set()

    def seconds(self, *commands: dict[str, object]) -> float:
        """Return how long the broker takes for these commands."""
        self.answered.clear()
        begun = time.monotonic()
        self.admin.publish(CONTROL, json.dumps({"commands": commands}), qos=1)
        assert self.answered.wait(60)
        assert "error" not in json.dumps(self.heard[-1]), self.heard[-1]
        return time.monotonic() - begun


def connects(client: paho.Client, port: int) -> bool:
    try:
        client.connect("127.0.0.1", port)
    except OSError:
        return False
    return True


@pytest.fixture
def plugged(mosquitto_binary: str, tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Plugged]:
    if PLUGIN is None:
        unavailable("this mosquitto comes without its dynamic security plugin")
    site = Plugged(mosquitto_binary, tmp_path, free_port())
    yield site
    leave(site.admin)
    site.process.kill()
    site.process.wait()


def test_it_knows_no_pattern_and_writes_its_users_in_place_at_every_change(plugged: Plugged) -> None:
    arrived: list[str] = []
    listener = plugged.client("listener")
    listener.on_message = lambda _c, _d, message: arrived.append(message.topic)
    subscribed = threading.Event()
    listener.on_subscribe = lambda *_: subscribed.set()
    listener.subscribe("own/#", 1)
    assert subscribed.wait(60)
    for name in ("patterned", "device-00001"):
        sender = plugged.client(name)
        sender.publish(f"own/{name}", b"x", qos=1).wait_for_publish(60)
        leave(sender)
    wait_for(lambda: bool(arrived))
    assert arrived == ["own/device-00001"], "the plugin takes %u literally, so each device needs a role of its own"
    leave(listener)
    before = plugged.file.stat()
    plugged.seconds({"command": "setClientPassword", "username": "device-00002", "password": "another"})
    after = plugged.file.stat()
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ino == before.st_ino, "the file is written in place, so after a kill -9 it may have no users"


def test_twenty_devices_cost_the_broker_more_than_reading_its_files_again(
    plugged: Plugged, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [
        plugged.seconds(
            {
                "command": "createRole",
                "rolename": f"new-{number}",
                "acls": [rule("publishClientSend", f"own/{number}")],
            },
            {"command": "createClient", "username": f"new-{number}", "password": "x"},
        )
        for number in range(20)
    ]
    names = [f"device-{number:05d}" for number in range(DEVICES)]
    users = {name: name for name in names}
    credentials.write_passwords(tmp_path / "passwords", users | credentials.server_users("secret"))
    credentials.write_access_rules(tmp_path / "access", "own", {name: ["campaign"] for name in names})
    files = Mosquitto(tmp_path / "files", passwords=tmp_path / "passwords", access=tmp_path / "access")
    with files:
        client = paho.Client(CallbackAPIVersion.VERSION2, names[0])
        client.username_pw_set(names[0], names[0])
        client.connect(files.host, files.port)
        client.loop_start()
        wait_for(client.is_connected)
        files.reload()
        longest, ends = 0.0, time.monotonic() + 5
        while time.monotonic() < ends:
            begun = time.monotonic()
            client.publish("own/x", b"x", qos=1).wait_for_publish(30)
            longest = max(longest, time.monotonic() - begun)
        leave(client)
    with capsys.disabled():
        print(f"\n{DEVICES} devices: adding one takes {sum(changes) / 20:.2f} s,")
        print(f"and reading the files again delays a message by {longest:.2f} s")
    assert longest < sum(changes)
