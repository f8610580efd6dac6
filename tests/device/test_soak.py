"""The device as a board runs it (.mpy, a board's heap) for many slots against a real broker: nothing grows or is lost.

The heap is 64 KB of 32-bit words; the 64-bit interpreter here has words twice as long, so `64wk` gives it 128 KB.
"""

import subprocess
import threading
import time
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from rig import make_campaign

from support import micropython as mp
from support.private_broker import PrivateBroker
from undertone_shared import intake, issue
from undertone_shared.campaign import Cohort, ReportRule
from undertone_shared.mechanism import Hybrid, WindowMechanism

SCRIPT = Path(__file__).with_name("soak_device.py")
HEAP = "64wk"
CONFIG = "undertone/v1/load/config"


class Server:
    """Counts reports, and republishes the campaign every four hours of the device's time."""

    def __init__(self, port: int, slot_seconds: int) -> None:
        now = int(time.time())
        first = now // slot_seconds
        edges = tuple(range(0, 257 * 15, 15))
        self.campaign = make_campaign(
            slot_seconds=slot_seconds,
            bound=4000,
            epoch=first * slot_seconds,
            last_slot=first + 20000,
            cohort=Cohort(bytes(16), 1 << 22, WindowMechanism(2721, 1001, 65, 1, 255, edges)),
            report=ReportRule(
                0,
                3000,
                Hybrid(
                    25784,
                    WindowMechanism(2721, 1001, 1, 1, 1),
                    WindowMechanism(2721, 1001, 621, 4, 256, None, 2),
                ),
            ),
        )
        self.payloads: list[bytes] = []
        self._every = 4 * 3600 // slot_seconds
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "server")
        self._client.on_message = self._on_message
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe("undertone/v1/load/+/+/report", 1)
        assert subscribed.wait(10)
        self._publish(now)

    def _publish(self, issued_at: int) -> None:
        self._client.publish(CONFIG, issue.pack(self.campaign, issued_at), qos=1, retain=True)

    def _on_message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.payloads.append(message.payload)
        slot = intake.unpack(message.payload).slot
        if slot % self._every == 0:
            self._publish(slot * self.campaign.slot_seconds)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What boards load, as .mpy."""
    out = tmp_path_factory.mktemp("mpy")
    mp.compile_boards(out)
    return out


@pytest.fixture
def soak(micropython, mosquitto_binary, tmp_path, free_port, compiled):
    def run(slots: int, kind: str) -> None:
        with PrivateBroker(mosquitto_binary, tmp_path, free_port()) as broker:
            server = Server(broker.port, 60 if kind == "injected" else 1)
            try:
                state = tmp_path / "state"
                result: subprocess.CompletedProcess[str] = micropython(
                    SCRIPT,
                    "127.0.0.1",
                    str(broker.port),
                    "soak",
                    str(slots),
                    str(state),
                    kind,
                    heap=HEAP,
                    paths=[compiled],
                    timeout=900,
                )
                time.sleep(0.2)
            finally:
                server.close()
        assert result.returncode == 0, result.stdout + result.stderr
        lines = [line.split() for line in result.stdout.splitlines()]
        print(result.stdout)
        check(slots, lines, server.payloads)

    return run


def check(slots, lines, payloads):
    assert lines[-1][:6] == ["end", str(len(payloads)), str(len(payloads)), "0", "0", "None"], lines[-1]
    assert len(payloads) >= slots
    numbers = [intake.unpack(payload).slot for payload in payloads]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each slot once, none left out"
    free = [int(line[1]) for line in lines if line[0] == "free"]
    assert len(free) >= 5
    # 256 bytes: a dictionary or a buffer may be at another point of its life, none may grow from tenth to tenth.
    assert min(free[1:]) >= free[1] - 256, free
    assert len({line[2] for line in lines if line[0] == "free"}) == 1, "descriptors"


def test_a_few_hundred_slots_on_an_injected_clock(soak):
    soak(250, "injected")


def test_a_few_slots_on_the_real_clock(soak):
    soak(5, "real")


@pytest.mark.slow
def test_ten_thousand_slots_on_an_injected_clock(soak):
    soak(10_000, "injected")


@pytest.mark.slow
def test_sixty_slots_on_the_real_clock(soak):
    soak(60, "real")
