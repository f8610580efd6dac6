"""The phone's app on the loopback address: its files and the answers to a join code. The broker is a mosquitto."""

import functools
import gzip
import http.server
import json
import math
import queue
import secrets
import struct
import threading
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt

from support.private_broker import PrivateBroker
from undertone_device.tools.phone_app import media_type, phone_files, security_policy
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.off_board import issue
from undertone_shared.off_board.intake import Report, unpack
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.topics import DEFAULT_PREFIX, config_topic, report_topic

CODE = "TEST-CODE"
# How many seconds a test waits for a browser.
PATIENCE = 60
# The level of `write_tone` in the app. Its mean square is a hundredth of the largest one, which is at 96 dB.
LOUDNESS = 76
# Each report has epsilon = 1.
_PIECES = WindowMechanism(2721, 1001, 621, 4, 256, None, 2)


def offer(policy: str) -> dict[str, Any]:
    """Return what the code offers, with this policy."""
    return {
        "operator": "The town of Example",
        "campaign": "meters",
        "about": "What do meters say?",
        "policy": json.loads(policy),
        "credentials": "password",
        "websocket": "ws://localhost:1/mqtt",
        "code_expires": "2027-12-31T00:00:00Z",
    }


def write_tone(path: Path) -> None:
    """Write a second of a tone, as a browser's microphone can hear it again and again."""
    peak = 0.1 * math.sqrt(2) * 32767
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 48000, 0, "NONE", ""))
        file.writeframes(b"".join(struct.pack("<h", round(peak * math.sin(math.tau * i / 100))) for i in range(48000)))


class FastClock:
    """A clock that starts at ``begin`` and runs ``rate`` times as fast as the real one. `script` is the app's clock."""

    def __init__(self, begin: float, rate: float) -> None:
        self.begin, self._rate, self.at = begin, rate, time.time()

    def now(self) -> float:
        """Return the Unix seconds."""
        return self.begin + (time.time() - self.at) * self._rate

    def script(self, ahead: float = 0) -> bytes:
        """Return clock.js for a phone whose clock is ``ahead`` seconds fast."""
        return (
            f"const passed = () => (Date.now() / 1000 - {self.at}) * {self._rate};\n"
            f"export const unixSeconds = () => Math.floor({self.begin + ahead} + passed());\n"
            "export const monotonicMilliseconds = () => Math.floor(passed() * 1000);\n"
        ).encode()


class Receiver:
    """A client of the broker that issues a campaign and receives reports.

    ``received``: each report once, although a device repeats a report if it does not know the acknowledgement.
    ``payloads``: the reports' bytes.
    """

    def __init__(self, port: int) -> None:
        self._reports: queue.Queue[bytes] = queue.Queue()
        self.received: list[Report] = []
        self.payloads: set[bytes] = set()
        # A phone may reach a restarted broker before this client does. So the broker keeps messages for this session.
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, secrets.token_hex(8), clean_session=False)
        self.client.on_message = lambda client, data, message: self._reports.put(message.payload)
        self._subscribed = threading.Event()
        self.client.on_connect = lambda client, *_: client.subscribe(
            report_topic(DEFAULT_PREFIX, "meters", "phone-1"), 1
        )
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_disconnect = lambda *_: self._subscribed.clear()
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def issue(self, now: float, slot_seconds: int = 1, **changes: Any) -> None:
        """Publish a new campaign that began ten slots before ``now``. ``changes``: other fields."""
        second = int(now)
        fields: dict[str, Any] = {
            "name": "meters",
            "sensor": "energy",
            "unit": "Wh",
            "measure": "last",
            "offset": 0,
            "bound": 1000,
            "slot_seconds": slot_seconds,
            "cycle": 4,
            "epoch": (second // slot_seconds - 10) * slot_seconds,
            "last_slot": (second + 300 * 86400) // slot_seconds,
            "default": 0,
            "cohort": Cohort(WindowMechanism(2721, 1001, 3, 1, 3, (0, 100, 200, 500, 1000))),
            "report": ReportRule(0, 300, Hybrid(25784, WindowMechanism(2721, 1001, 1, 1, 1), _PIECES)),
        }
        self.campaign = issue.build(**(fields | changes))
        self.repeat(now)

    def repeat(self, now: float) -> None:
        """Publish the same campaign again, issued at ``now``."""
        message = issue.pack(self.campaign, int(now))
        topic = config_topic(DEFAULT_PREFIX, "meters")
        self.client.publish(topic, message, 1, retain=True).wait_for_publish(PATIENCE)

    def report(self, patience: float = PATIENCE) -> Report:
        """Wait for the next new report."""
        while True:
            payload = self._reports.get(timeout=patience)
            if payload not in self.payloads:
                self.payloads.add(payload)
                self.received.append(unpack(payload))
                return self.received[-1]

    def check(self) -> None:
        """Check that there are no two different reports for one slot or one sequence number."""
        assert len({report.slot for report in self.received}) == len(self.received)
        assert len({report.sequence for report in self.received}) == len(self.received)

    def wait_until_subscribed(self) -> None:
        """Wait until the broker has this client's subscription again."""
        assert self._subscribed.wait(PATIENCE)


class WebSocketBroker(PrivateBroker):
    """A mosquitto that also listens for MQTT over WebSocket."""

    def __init__(self, binary: str, folder: Path, port: int, websocket: int) -> None:
        self.websocket = websocket
        # Each change of a session is written at once, so sessions survive a kill.
        kept = [
            "persistence true",
            f"persistence_location {folder}/",
            "autosave_on_changes true",
            "autosave_interval 1",
        ]
        listener = [f"listener {websocket} 127.0.0.1", "protocol websockets"]
        super().__init__(binary, folder, port, further=[*kept, *listener])


@functools.cache
def app_for(websocket: str) -> dict[str, bytes]:
    """Return the app's files with this address of MQTT over WebSocket."""
    return phone_files(websocket)


class PhoneSite:
    """Serves the app at http://localhost:PORT/join/.

    ``files``: those of the device that the code gives. ``replaced``: other contents of the app's files. ``requests``:
    (method, path) of each request. ``keys``: those that redeemed the code. ``gone``: those whose devices have left.
    ``sent``: how many bytes of answers were sent. ``failures``: the statuses of the next answers to redeem and to
    leave; 0 cuts the connection after the server has taken the key. ``step``: a function that is called with WORD at
    each request of /step/WORD.
    """

    def __init__(self, port: int, websocket: str, files: dict[str, str], offer: dict[str, Any]) -> None:
        self.port = port
        self.websocket = websocket
        self.files = files
        self.offer = offer
        self.replaced: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.gone: list[str] = []
        self.failures: list[int] = []
        self.step: Callable[[str], None] = lambda word: None
        self.sent = 0
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.requests.append(("GET", self.path))
                if self.path.startswith("/step/"):
                    site.step(self.path.removeprefix("/step/"))
                    self._answer(200, b"", "text/plain")
                    return
                path = self.path.partition("?")[0].removeprefix("/join/") or "index.html"
                content = site.replaced.get(path, app_for(site.websocket).get(path))
                if content is None or not self.path.startswith("/join/"):
                    self._answer(404, b"", "text/plain")
                else:
                    self._answer(200, content, media_type(path))

            def do_POST(self) -> None:
                site.requests.append(("POST", self.path))
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if (status := site.answer(self.path, body)) is None:
                    self.close_connection = True
                    return
                self._answer(status[0], json.dumps(status[1]).encode(), "application/json")

            def _answer(self, status: int, content: bytes, kind: str) -> None:
                body = gzip.compress(content, 9, mtime=0)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-encoding", "gzip")
                self.send_header("content-length", str(len(body)))
                self.send_header("content-security-policy", security_policy(site.websocket))
                self.end_headers()
                self.wfile.write(body)
                site.sent += len(body)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def allow(self, **changes: Any) -> None:
        """Change fields of the policy, in the offer and in the device's files."""
        policy = self.offer["policy"] = self.offer["policy"] | changes
        self.files["policy.json"] = json.dumps(policy)

    @property
    def address(self) -> str:
        """The page's address without a code. Browsers trust this host name without TLS."""
        return f"http://localhost:{self.port}/join/"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return the status and the JSON value of an answer, or None to cut the connection."""
        if body["code"] != CODE:
            return 404, {"reason": "unknown", "error": "the code is unknown"}
        if path == "/api/join/offer":
            return 200, self.offer
        if path == "/api/join/redeem":
            self.keys.append(body["key"])
        if self.keys[0] != body["key"]:
            return 409, {"reason": "used", "error": "the code was used by another device"}
        if self.failures:
            status = self.failures.pop(0)
            return (status, {"reason": "slow_down", "error": "later"}) if status else None
        if path == "/api/join/leave":
            self.gone.append(body["key"])
            return 200, {"device": "phone-1"}
        addresses = {"mqtt": "mqtt://127.0.0.1:1883", "websocket": self.websocket}
        return 200, {"device": "phone-1", "files": self.files, "addresses": addresses}

    def close(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
