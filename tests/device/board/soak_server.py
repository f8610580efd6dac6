"""The server of test_soak.py and test_heap.py: sends a campaign over a real broker, and keeps the reports it gets."""

import threading
import time

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from rig import make_campaign

from support.paho_client import leave
from support.waiting import wait_for
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule

CONFIG = "undertone/v2/load/config"


class Server:
    """Keeps reports, and publishes the campaign again every four hours of the device's time."""

    def __init__(self, port: int, slot_seconds: int, bins: int) -> None:
        now = int(time.time())
        first = now // slot_seconds
        step = 3840 // bins
        edges = tuple(range(0, step * (bins + 1), step))
        self.campaign = make_campaign(
            slot_seconds=slot_seconds,
            bound=4000,
            epoch=first * slot_seconds,
            last_slot=first + 20000,
            cohort=Cohort(WindowMechanism(2721, 1001, bins // 4 + 1, 1, bins - 1, edges)),
            schedule=Schedule(bytes(16), 1, 5),
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
        self._client.subscribe("undertone/v2/load/+/+/report", 1)
        assert subscribed.wait(30)
        self._publish(now)

    def _publish(self, issued_at: int) -> None:
        self._client.publish(CONFIG, issue.pack(self.campaign, issued_at), qos=1, retain=True)

    def _on_message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.payloads.append(message.payload)
        slot = intake.unpack(message.payload).slot
        if slot % self._every == 0:
            self._publish(slot * self.campaign.slot_seconds)

    def check(self, slots: int, sent: int, *, injected: bool) -> None:
        """Check that reports for at least ``slots`` slots have arrived, one for each slot.

        An injected clock waits for the device, so no slot may be missing.
        """
        wait_for(lambda: len(self.payloads) >= sent, what="the last report")
        numbers = [intake.unpack(payload).slot for payload in self.payloads]
        if injected:
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each slot once, none left out"
        # With the real clock, a slot lasts a second. The device skips a slot if the machine is too busy for a second.
        assert numbers == sorted(set(numbers)), "each slot once"
        assert len(numbers) == sent >= slots

    def close(self) -> None:
        leave(self._client)
