"""The phone's app on loopback: its files, and answers to a join code; the broker is a mosquitto."""

import gzip
import http.server
import json
import threading
from pathlib import Path
from typing import Any

from support.private_broker import PrivateBroker
from undertone_device.tools.phone_app import media_type, phone_files, security_policy

CODE = "TEST-CODE"
# The app's clock, at a rate: seconds pass `RATE` times as fast from `BEGIN` on, which the server knows, too.
FAST_CLOCK = """
const BEGIN = {begin}, LOADED = {loaded}, RATE = {rate};
const passed = () => (Date.now() / 1000 - LOADED) * RATE;
export const unixSeconds = () => Math.floor(BEGIN + passed());
export const monotonicMilliseconds = () => Math.floor(passed() * 1000);
"""


class WebSocketBroker(PrivateBroker):
    """A mosquitto that also listens for MQTT over WebSocket."""

    def __init__(self, binary: str, folder: Path, port: int, websocket: int) -> None:
        self.websocket = websocket
        super().__init__(binary, folder, port, further=[f"listener {websocket} 127.0.0.1", "protocol websockets"])


class PhoneSite:
    """Serves the app at http://localhost:PORT/join/. ``files``: those of the device that the code gives.

    ``replaced``: other contents of the app's files. ``requests``: (method, path) of each request; ``keys``: those that
    redeemed the code; ``sent``: bytes that answers had on the wire. ``failures``: status of the next answers to redeem;
    0 cuts the connection after the server has taken the key.
    """

    def __init__(self, port: int, websocket: str, files: dict[str, str], offer: dict[str, Any]) -> None:
        self.port = port
        self.websocket = websocket
        self.files = files
        self.offer = offer
        self.replaced: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.keys: list[str] = []
        self.failures: list[int] = []
        self.sent = 0
        self._app = phone_files()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.requests.append(("GET", self.path))
                path = self.path.partition("?")[0].removeprefix("/join/") or "index.html"
                content = site.replaced.get(path, site._app.get(path))
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

    @property
    def address(self) -> str:
        """The page's address without a code. The name is one that browsers trust without TLS."""
        return f"http://localhost:{self.port}/join/"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return the status and the JSON value of an answer; None to cut the connection."""
        if body["code"] != CODE:
            return 404, {"reason": "unknown", "error": "the code is unknown"}
        if path == "/api/join/offer":
            return 200, self.offer
        self.keys.append(body["key"])
        if self.keys[0] != body["key"]:
            return 409, {"reason": "used", "error": "the code was used by another device"}
        if self.failures:
            status = self.failures.pop(0)
            return (status, {"reason": "slow_down", "error": "later"}) if status else None
        addresses = {"mqtt": "mqtt://127.0.0.1:1883", "websocket": self.websocket}
        return 200, {"device": "phone-1", "files": self.files, "addresses": addresses}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
