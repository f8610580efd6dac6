"""Each source is unplugged from a running gateway. Slots then report the public default, and the status says why."""

import contextlib
import http.server
import json
import os
import struct
import threading
import time

import paho.mqtt.client as paho
import pytest
from frames import SML, TELEGRAM
from paho.mqtt.enums import CallbackAPIVersion
from rig import DAY, make_campaign

from support.factory import policy_of
from support.paho_client import leave
from support.private_broker import PrivateBroker
from support.waiting import wait_for
from undertone_device.core.reporter import Reporter
from undertone_device.host.gateway import HostedDevice
from undertone_device.host.sources import buses
from undertone_device.sensors.crc import MODBUS, crc16
from undertone_device.sensors.iec62056 import SIGN_ON, answer_to, even
from undertone_device.setup.config import read_config
from undertone_shared.off_board import issue

DEFAULT = 999
POLICY = policy_of(measures=["last"])


def with_crc(frame):
    return frame + struct.pack("<H", crc16(frame, MODBUS, 0xFFFF))


class Repeated(threading.Thread):
    """Does something again and again until it is stopped."""

    def __init__(self, act, seconds=0.2):
        super().__init__(daemon=True)
        self._act, self._seconds, self._stop_it = act, seconds, threading.Event()
        self.start()

    def run(self):
        while not self._stop_it.is_set():
            try:
                self._act()
            except OSError:
                return
            time.sleep(self._seconds)

    def stop(self):
        self._stop_it.set()
        self.join(30)


def pushed(meter, frame, **fields):
    os.set_blocking(meter.end, False)

    def say():
        # The line is full if nobody reads it for a second. What the meter then sends is lost, and the meter goes on.
        with contextlib.suppress(BlockingIOError):
            meter.say(frame)

    talk = Repeated(say)

    def unplug():
        talk.stop()
        meter.unplug()

    return {"port": meter.path, **fields}, unplug


@pytest.fixture
def p1(meter):
    return pushed(meter, TELEGRAM, kind="p1", obis="1-0:1.8.1", scale=[1, 1000])


@pytest.fixture
def sml(meter):
    return pushed(meter, SML, kind="sml", obis="1-0:1.8.0", scale=[1, 1000])


@pytest.fixture
def iec62056(meter):
    lines = b"1.8.0(00123.456*kWh)\r\n!\r\n"
    check = 3
    for byte in lines:
        check ^= byte
    readout = even(b"\x02" + lines + b"\x03" + bytes([check & 0x7F]))
    name = even(b"/LGZ5\\2ZMD\r\n")
    meter.answer(*[(SIGN_ON, name), (answer_to(name)[0], readout)] * 100)
    return {"kind": "iec62056", "port": meter.path, "obis": "1.8.0", "scale": [1, 1]}, meter.unplug


@pytest.fixture
def modbus_rtu(meter):
    question, answer = b"\x11\x03\x00\x6b\x00\x02", b"\x11\x03\x04\x00\x00\x00\x05"
    meter.answer(*[(with_crc(question), with_crc(answer))] * 100)
    return {"kind": "modbus-rtu", "port": meter.path, "slave": 17, "address": 107}, meter.unplug


@pytest.fixture
def modbus_tcp(modbus_server):
    fields = {"kind": "modbus-tcp", "host": "127.0.0.1", "tcp_port": modbus_server.port, "slave": 1, "address": 20}
    return {**fields, "scale": [1, 1000]}, modbus_server.stop


@pytest.fixture
def mqtt(mosquitto_binary, tmp_path, free_port):
    with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as broker:
        client = paho.Client(CallbackAPIVersion.VERSION2, "home")
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        talk = Repeated(lambda: client.publish("plug", '{"energy": 5}'))
        yield (
            {"kind": "mqtt", "host": "127.0.0.1", "tcp_port": broker.port, "topic": "plug", "field": "energy"},
            talk.stop,
        )
        talk.stop()
        leave(client)


@pytest.fixture
def home_assistant(tmp_path):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"state": "5"}')

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def unplug():
        server.shutdown()
        server.server_close()
        thread.join()

    (tmp_path / "token").write_text("secret", encoding="utf-8")
    fields = {"url": f"http://127.0.0.1:{server.server_port}", "entity": "sensor.energy", "token_file": "token"}
    return {"kind": "home-assistant", **fields}, unplug


@pytest.fixture
def file(tmp_path):
    (tmp_path / "meter").write_text("5", encoding="utf-8")
    return {"kind": "file", "path": "meter"}, (tmp_path / "meter").unlink


@pytest.fixture
def command(tmp_path):
    (tmp_path / "meter").write_text("5", encoding="utf-8")
    return {"kind": "command", "command": ["cat", str(tmp_path / "meter")]}, (tmp_path / "meter").unlink


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pulses")
    writer = os.open(tmp_path / "pulses", os.O_RDWR)
    talk = Repeated(lambda: os.write(writer, b"5\n"))
    yield {"kind": "fifo", "path": "pulses"}, talk.stop
    talk.stop()
    os.close(writer)


def until(true, device):
    wait_for(lambda: device.step(20) or true())


pytestmark = pytest.mark.waits
KINDS = ("p1", "sml", "iec62056", "modbus_rtu", "modbus_tcp", "mqtt", "home_assistant", "file", "command", "fifo")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_unplugged_reports_the_default_and_is_said(kind, request, tmp_path, free_port, monkeypatch):
    monkeypatch.setattr(buses, "_ANSWER_SECONDS", 0.2)
    fields, unplug = request.getfixturevalue(kind)
    config = {"name": "m", "broker": {"host": "127.0.0.1", "port": free_port()}, "campaigns": ["load"]}
    config |= {"policy": "policy.json", "state": "state", "source": fields}
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    (tmp_path / "device.json").write_text(json.dumps(config), encoding="utf-8")
    device = HostedDevice(read_config(str(tmp_path / "device.json")), print, lambda *_: None)
    reporter = device._client.reporter
    now = int(time.time())
    campaign = make_campaign(slot_seconds=1, epoch=now, last_slot=now + DAY, cycle=1, measure="last", default=DEFAULT)
    reporter.accept(issue.pack(campaign, now), now)
    told = []

    def release(campaign, slot, value):
        told.append(value)
        return Reporter._release(reporter, campaign, slot, value)

    reporter._release = release
    try:
        until(lambda: told and told[-1] != DEFAULT and not device._state(int(time.time()))["source"], device)
        unplug()
        told.clear()
        until(lambda: told[-2:] == [DEFAULT, DEFAULT], device)
        assert device._state(int(time.time()))["source"].startswith("no sample: ")
    finally:
        device.finish()
