"""A device logs in by its certificate, without a password, at mosquitto and at a server's own endpoint.

The device is that of a gateway, or has the code of a board.
"""

import json
import subprocess
import sys
import time

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from rig import DAY, make_campaign

from support import direct
from support import micropython as mp
from support.factory import policy_of
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_device import __main__ as command
from undertone_operate.fleet.authority import device_certificate, private_authority
from undertone_shared.off_board import issue

BROKER = """\
listener {port} 127.0.0.1
cafile {folder}/tls/ca.crt
certfile {folder}/tls/server.crt
keyfile {folder}/tls/server.key
require_certificate true
use_identity_as_username true
allow_anonymous false
acl_file {folder}/access
user root
"""
POLICY = policy_of(boots_per_day=1000, write_seconds=1)


@pytest.fixture
def site(mosquitto_binary, tmp_path, free_port):
    """A broker that accepts only certificates. Yields (function that writes a device's configuration, reports)."""
    port = free_port()
    authority = private_authority(tmp_path / "tls", "localhost")
    for name in ("server", "meter-1"):
        for ending, text in zip((".crt", ".key"), device_certificate(authority, name), strict=True):
            (tmp_path / f"{name}{ending}").write_text(text, encoding="utf-8")
    rules = (
        "pattern read undertone/v2/+/config\npattern write undertone/v2/+/+/%u/report\nuser server\ntopic readwrite #\n"
    )
    (tmp_path / "access").write_text(rules, encoding="utf-8")
    (tmp_path / "mosquitto.conf").write_text(BROKER.format(port=port, folder=tmp_path), encoding="utf-8")
    process = subprocess.Popen([mosquitto_binary, "-c", str(tmp_path / "mosquitto.conf")], stderr=subprocess.DEVNULL)
    heard = []
    server = paho.Client(CallbackAPIVersion.VERSION2, "server")
    server.tls_set(str(authority), str(tmp_path / "server.crt"), str(tmp_path / "server.key"))
    server.on_message = lambda client, data, message: heard.append((message.topic, message.payload))
    wait_for(lambda: connects(server, port), what="the broker")
    server.loop_start()
    server.subscribe("undertone/v2/+/+/+/report", 1)
    now = int(time.time())
    campaign = issue.pack(make_campaign(slot_seconds=1, epoch=now, last_slot=now + DAY, cycle=1), now)
    server.publish("undertone/v2/load/config", campaign, qos=1, retain=True).wait_for_publish(10)
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")

    def device(identity="meter-1"):
        broker = {"host": "localhost", "port": port, "tls": {"ca": "tls/ca.crt", "identity": identity}}
        config = {"name": "meter-1", "broker": broker, "campaigns": ["load"], "policy": "policy.json", "state": "state"}
        config |= {"source": {"kind": "constant", "value": 7}, "publish": {"spread_percent": 10}}
        (tmp_path / "device.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path / "device.json"

    yield device, heard
    leave(server)
    process.kill()
    process.wait()


def connects(client, port):
    try:
        client.connect("localhost", port)
    except OSError:
        return False
    return True


def test_a_gateway_shows_its_certificate(site):
    device, heard = site
    run = [sys.executable, "-m", "undertone_device", "run", "--config", str(device())]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as process:
        try:
            wait_for(lambda: len(heard) >= 2 or process.poll() is not None)
            assert process.poll() is None, process.communicate()
        finally:
            process.terminate()
    assert {topic.split("/")[-2] for topic, _ in heard} == {"meter-1"}


def test_the_boards_code_shows_its_certificate(site, micropython, tmp_path):
    device, heard = site
    script = mp.REPO / "device/examples/unix_device.py"
    result = micropython(script, str(device()), "2", "1,2,3", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    # The broker has acknowledged the messages, but the test's client gets them a little later.
    wait_for(lambda: len(heard) >= 2)
    assert len(set(heard)) == len(heard)


@pytest.mark.parametrize("board", [False, True])
def test_the_direct_endpoint_takes_a_certificate(micropython, tmp_path, board):
    authority = private_authority(tmp_path / "tls", "localhost")
    certificate, key = device_certificate(authority, "meter-1")
    (tmp_path / "meter-1.crt").write_text(certificate, encoding="utf-8")
    (tmp_path / "meter-1.key").write_text(key, encoding="utf-8")
    credentials.write_passwords(tmp_path / "passwords", {"meter-1": credentials.ShownCertificate(certificate)})
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    listener = Listener(
        port=0, certificate=tmp_path / "tls/server.crt", key=tmp_path / "tls/server.key", authority=authority
    )
    heard = []
    with direct.open_endpoint(tmp_path / "passwords", listener=listener) as endpoint:
        now = int(time.time())
        campaign = make_campaign(name=direct.CAMPAIGN, slot_seconds=1, epoch=now, last_slot=now + DAY, cycle=1)
        endpoint.publish(direct.CONFIG, issue.pack(campaign, now))
        broker = {"host": "localhost", "port": endpoint.port, "tls": {"ca": "tls/ca.crt", "identity": "meter-1"}}
        config = {"name": "meter-1", "broker": broker, "prefix": direct.PREFIX, "campaigns": [direct.CAMPAIGN]}
        config |= {"policy": "policy.json", "state": "state", "source": {"kind": "constant", "value": 7}}
        (tmp_path / "device.json").write_text(json.dumps(config), encoding="utf-8")
        command = [sys.executable, "-m", "undertone_device", "run", "--config", str(tmp_path / "device.json")]
        if board:
            script = mp.REPO / "device/examples/unix_device.py"
            path = ":".join(map(str, (".frozen", *mp.SOURCES)))
            command = ["env", f"MICROPYPATH={path}", mp.interpreter(), str(script), command[-1], "2", "1,2,3"]

        def two_reports():
            deliveries = endpoint.take(0.1)
            endpoint.acknowledge(deliveries)
            heard.extend(delivery.topic for delivery in deliveries)
            return len(heard) >= 2

        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as process:
            try:
                wait_for(two_reports)
            finally:
                process.terminate()
    assert heard[:2] == [direct.topic("meter-1")] * 2


def test_files_that_are_no_certificate_are_said(site, tmp_path, capsys):
    device, _ = site
    (tmp_path / "other.crt").write_text("nothing", encoding="utf-8")
    (tmp_path / "other.key").write_text("nothing", encoding="utf-8")
    assert command.main(["run", "--config", str(device("other"))]) == 2
    said = capsys.readouterr().err
    assert "tls.identity" in said
    assert said.count("\n") == 1
