"""Devices of a server's folder: made by commands alone, for two campaigns on one TLS broker of the operator's own."""

import io
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.paho_client import leave
from undertone.__main__ import main
from undertone_aggregator.broker_process import running_pid
from undertone_shared.topics import report_topic

PREFIX = "undertone/v2"
CAMPAIGNS = {"electricity": "load", "water": "flow"}


def said(*words: str, code: int = 0) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["undertone", *words]):
        assert main() == code, err.getvalue()
    return (err if code else out).getvalue()


def accepted(home: Path, port: int, name: str, password: str, topic: str | None = None) -> bool | None:
    """Whether the broker lets it in; with a topic, whether what it publishes there reaches the server's worker."""
    told: dict[str, bool] = {}
    answered, heard = threading.Event(), threading.Event()

    def client(user: str, secret: str) -> paho.Client:
        made = paho.Client(CallbackAPIVersion.VERSION2, user, reconnect_on_failure=False)
        made.username_pw_set(user, secret)
        made.tls_set_context(ssl.create_default_context(cafile=str(home / "tls/ca.crt")))
        made.on_connect = lambda _c, _d, _f, code, _p: (told.update({user: not code.is_failure}), answered.set())
        answered.clear()
        made.connect("localhost", port)
        made.loop_start()
        assert answered.wait(10)
        return made

    device = client(name, password)
    try:
        if not told[name] or topic is None:
            return told[name]
        from undertone_aggregator.collect.link import worker_password

        worker = client(
            "aggregator-0", worker_password((home / "aggregator.password").read_text().strip(), "aggregator-0")
        )
        subscribed = threading.Event()
        worker.on_subscribe = lambda *_: subscribed.set()
        worker.on_message = lambda *_: heard.set()
        worker.subscribe(topic, 1)
        assert subscribed.wait(10)
        device.publish(topic, b"x", qos=1)
        arrived = heard.wait(1)
        leave(worker)
        return arrived
    finally:
        leave(device)


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int], mosquitto_binary: str) -> Iterator[Path]:
    folder, port = tmp_path / "home", free_port()
    said("init", str(folder), "--tls", "--host", "localhost", "--port", str(port))
    for name, sensor in CAMPAIGNS.items():
        said("campaign", "create", str(folder), name, "--sensor", sensor, "--unit", "u", "--bound", "100",
             "--epsilon", "1", "--slot-seconds", "2")  # fmt: skip
    config = folder / "broker/mosquitto.conf"
    with subprocess.Popen([mosquitto_binary, "-c", str(config)], stderr=subprocess.DEVNULL) as child:
        end = time.monotonic() + 10
        while running_pid(folder / "broker") is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        (folder / "port").write_text(str(port))
        yield folder
        child.terminate()


@pytest.mark.broker
def test_two_campaigns_get_devices_of_one_broker(home: Path) -> None:
    port = int((home / "port").read_text())
    assert "expected one of" in said("devices", "add", "1", "--home", str(home), code=2), "which campaign is not said"
    for name in CAMPAIGNS:
        told = said("devices", "add", "2", "--home", str(home), "--campaign", name)
        assert f"{name}-001 to {name}-002" in told
        assert "the broker has read its files again" in told
    password = (home / "fleets/electricity/devices/electricity-001/password").read_text().strip()
    own, other = (report_topic(PREFIX, name, "electricity-001") for name in CAMPAIGNS)
    assert accepted(home, port, "electricity-001", password, own)
    assert not accepted(home, port, "electricity-001", password, other), "the rules name one topic of one campaign"

    at = ("--home", str(home), "--campaign", "electricity")
    said("devices", "rotate", "electricity-001", *at)
    renewed = (home / "fleets/electricity/devices/electricity-001/password").read_text().strip()
    assert renewed != password
    assert not accepted(home, port, "electricity-001", password)
    assert accepted(home, port, "electricity-001", renewed, own)
    said("devices", "revoke", "electricity-002", *at)
    revoked = (home / "fleets/electricity/devices/electricity-002/password").read_text().strip()
    assert not accepted(home, port, "electricity-002", revoked)
    assert "electricity-003" in said("devices", "add", "1", *at)
    assert "user water-002" in (home / "broker/access").read_text(), "the other campaign's devices stay"

    before = (home / "aggregator.password").read_text().strip()
    assert "start the server again" in said("broker", "rotate", str(home))
    assert (home / "aggregator.password").read_text().strip() != before
    assert not accepted(home, port, "aggregator", before)
    assert accepted(home, port, "electricity-001", renewed, own), "a worker with its new password hears it"
    assert "expected aggregator or analyst" in said("broker", "rotate", str(home), "water-001", code=2)


@pytest.mark.broker
def test_who_refuses_a_changed_plan_is_asked_of_the_campaigns_own_devices(home: Path) -> None:
    said("devices", "add", "3", "--home", str(home), "--campaign", "water")
    from undertone_aggregator.binding import refusals_of
    from undertone_aggregator.home import Home

    opened = Home(home)
    text = opened.file("water").read_text()
    assert "0 of 3 known policies" in refusals_of(opened.config("water", text), int(time.time()))
    dearer = opened.config("water", text.replace('epsilon = "1"', 'epsilon = "2"'))
    assert "3 of 3 known policies" in refusals_of(dearer, int(time.time()))
