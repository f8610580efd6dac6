"""The phone's app in a real Chromium."""

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from support import paho_client
from support.chromium import MISSING, browser, find_chromium
from support.ci import unavailable
from support.factory import policy_of
from support.mosquitto import find_mosquitto
from support.phone_site import CODE, PhoneSite, WebSocketBroker
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import issue
from undertone_shared.off_board.intake import unpack
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.topics import DEFAULT_PREFIX, config_topic, report_topic

pytestmark = pytest.mark.services
PATIENCE = 120
PIECES = WindowMechanism(2721, 1001, 621, 4, 256, None, 2)
OFFER = {
    "operator": "The town of Example",
    "campaign": "meters",
    "measures": {
        "text": "How much electricity homes use",
        "quantity": None,
        "unit": "Wh",
        "slot_seconds": 1,
        "low": "0",
        "high": "1000",
    },
    "reports": {"per_day": 48, "until": "2027-12-31T00:00:00Z"},
    "guarantee": {
        "day_epsilon": "1",
        "life_epsilon": "300",
        "sentence_day": "epsilon = 1 in any 24 hours",
        "sentence_life": "epsilon = 300 ever",
    },
    "code_expires": "2027-12-31T00:00:00Z",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if find_chromium() is None:
        unavailable(MISSING)
    with browser() as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[WebSocketBroker]:
    binary = find_mosquitto()
    assert binary is not None
    with WebSocketBroker(binary, tmp_path, free_port(), free_port()) as running:
        yield running


class Receiver:
    """A client of the broker that publishes a campaign and receives reports."""

    def __init__(self, port: int) -> None:
        self.reports: queue.Queue[bytes] = queue.Queue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda client, data, message: self.reports.put(message.payload)
        self.client.connect("127.0.0.1", port)
        self.client.subscribe(report_topic(DEFAULT_PREFIX, "meters", "phone-1"), 1)
        self.client.loop_start()

    def issue(self, now: int, **changes: Any) -> None:
        """Publish a campaign that began before ``now``."""
        fields = {
            "name": "meters",
            "sensor": "energy",
            "unit": "Wh",
            "measure": "last",
            "offset": 0,
            "bound": 1000,
            "slot_seconds": 1,
            "cycle": 4,
            "epoch": now - 100,
            "last_slot": now + 10_000_000,
            "default": 0,
            "cohort": Cohort(WindowMechanism(2721, 1001, 3, 1, 3, (0, 100, 200, 500, 1000))),
            "report": ReportRule(0, 300, Hybrid(25784, WindowMechanism(2721, 1001, 1, 1, 1), PIECES)),
        } | changes
        message = issue.pack(issue.build(**fields), now)
        self.client.publish(config_topic(DEFAULT_PREFIX, "meters"), message, 1, retain=True).wait_for_publish(PATIENCE)


@pytest.fixture
def receiver(broker: WebSocketBroker) -> Iterator[Receiver]:
    receiver = Receiver(broker.port)
    yield receiver
    paho_client.leave(receiver.client)


@pytest.fixture
def site(broker: WebSocketBroker, free_port: Callable[[], int]) -> Iterator[PhoneSite]:
    device = {
        "name": "phone-1",
        "broker": {"host": "127.0.0.1", "port": broker.port, "password_file": "password"},
        "campaigns": ["meters"],
        "policy": "policy.json",
        "state": "state",
    }
    files = {
        "device.json": json.dumps(device),
        "policy.json": json.dumps(policy_of(measures=["last"], cap=[2719, 1000], theta=[100, 1000])),
        "password": "secret\n",
    }
    running = PhoneSite(free_port(), f"ws://localhost:{broker.websocket}", files, OFFER)
    yield running
    running.close()


@pytest.fixture
def open_phone(chromium: Any, site: PhoneSite) -> Iterator[Callable[..., Any]]:
    """Opens the app as a phone shows it; errors and violations of its policy fail the test at its end."""
    trouble: list[str] = []
    with ExitStack() as stack:

        def open_it(context: Any = None, fragment: str = f"#{CODE}") -> Any:
            if context is None:
                context = chromium.new_context(viewport={"width": 390, "height": 844})
                context.set_default_timeout(PATIENCE * 1000)
                stack.callback(context.close)
            page = context.new_page()
            page.on("console", lambda said: trouble.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.add_init_script(
                "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective))"
            )
            page.goto(site.address + fragment)
            return page

        yield open_it
        assert trouble == []


def screen(page: Any, name: str) -> None:
    """Wait for a screen."""
    page.wait_for_selector(f"#screen[data-screen={name}]")


def take_part(page: Any) -> None:
    """Agree to what the link offers."""
    screen(page, "join")
    page.get_by_role("button", name="How am I protected?").click()
    page.get_by_role("button", name="I agree and take part").click()
    screen(page, "running")


def test_a_phone_takes_part_by_a_link(open_phone: Callable[..., Any], site: PhoneSite, receiver: Receiver) -> None:
    receiver.issue(int(time.time()))
    page = open_phone()
    take_part(page)
    reports = [unpack(receiver.reports.get(timeout=PATIENCE)) for _ in range(3)]
    assert [report.sequence for report in reports] == [1, 2, 3]
    assert len({report.slot for report in reports}) == 3
