"""A phone in Chromium, the site that serves the phone's app, a broker with WebSocket, and a receiver of its reports."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support import paho_client
from support.chromium import MISSING, browser, find_chromium
from support.ci import unavailable
from support.factory import policy_of
from support.mosquitto import MISSING as NO_MOSQUITTO
from support.mosquitto import find_mosquitto
from support.phone_site import CODE, PATIENCE, PhoneSite, Receiver, WebSocketBroker, offer, write_tone


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if find_chromium() is None:
        unavailable(MISSING)
    tone = tmp_path_factory.mktemp("microphone") / "tone.wav"
    write_tone(tone)
    # The browser's microphone hears the tone. The browser asks nobody for permission, and accepts the tests'
    # certificates.
    options = (
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={tone}",
        "--use-fake-ui-for-media-stream",
        "--ignore-certificate-errors",
    )
    with browser(*options) as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[WebSocketBroker]:
    binary = find_mosquitto()
    if binary is None:
        unavailable(NO_MOSQUITTO)
    with WebSocketBroker(binary, tmp_path, free_port(), free_port()) as running:
        yield running


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
    limits = policy_of(measures=["last"], cap=[2719, 1000], theta=[100, 1000], lifetime=1000 << 20, unit="Wh")
    files = {"device.json": json.dumps(device), "policy.json": json.dumps(limits), "password": "secret\n"}
    running = PhoneSite(free_port(), f"ws://localhost:{broker.websocket}", files, offer(files["policy.json"]))
    yield running
    running.close()


class Phones:
    """Opens the app as a phone shows it. ``trouble``: errors, and what the page's security policy forbade, in words."""

    def __init__(self, chromium: Any, site: PhoneSite, stack: ExitStack) -> None:
        self._chromium = chromium
        self._site = site
        self._stack = stack
        self.trouble: list[str] = []
        # Words of messages that the browser itself logs when the test cuts connections. They are no trouble.
        self.expected: tuple[str, ...] = ()
        self.hosts: set[str] = set()
        self.allowed = {f"localhost:{site.port}", site.websocket.removeprefix("ws://")}

    def context(self, **options: Any) -> Any:
        """Return a new phone: a browser with its own profile."""
        made = self._chromium.new_context(viewport={"width": 390, "height": 844}, **options)
        made.set_default_timeout(PATIENCE * 1000)
        self._stack.callback(made.close)
        return made

    def watch(self, page: Any) -> Any:
        """Note the page's errors."""
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.hosts.add(request.url.partition("//")[2].partition("/")[0]))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective))"
        )
        return page

    def __call__(self, context: Any = None, fragment: str = f"#{CODE}") -> Any:
        """Open the app in a tab."""
        page = self.watch((context or self.context()).new_page())
        page.goto(self._site.address + fragment)
        return page

    def _hear(self, said: Any) -> None:
        if said.type in ("error", "warning") and not any(words in said.text for words in self.expected):
            self.trouble.append(said.text)


@pytest.fixture
def phones(chromium: Any, site: PhoneSite) -> Iterator[Phones]:
    with ExitStack() as stack:
        opened = Phones(chromium, site, stack)
        yield opened
        assert opened.trouble == []
        assert opened.hosts <= opened.allowed


@pytest.fixture
def now() -> int:
    return int(time.time())
