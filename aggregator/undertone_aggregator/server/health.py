"""HTTP server of /metrics, /healthz and /readyz, which a scraper and a load balancer read."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from undertone_aggregator.settings.options import family_of, split_address
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.supervisor import Server

TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"
# HTTP status, content type and body.
Answer = tuple[int, str, bytes]


def answer(server: "Server", path: str) -> Answer:
    """Return the answer to a path.

    ``/healthz`` tells whether the server makes progress. ``/readyz`` tells whether reports are accepted and stored, see
    `problems` of `undertone_aggregator.campaign.state.ServerState`.
    """
    if path == "/metrics":
        from undertone_aggregator.server.metrics import text

        return 200, TEXT, text(server)
    now, state = time.time(), server.state()
    if path == "/healthz":
        alive = state.alive(now)
        row = {"status": "ok" if alive else "hangs", "campaigns": len(state.campaigns)}
        return 200 if alive else 503, JSON, _json(row)
    if path == "/readyz":
        row = state.row(now)
        return 200 if row["ready"] else 503, JSON, _json(row)
    return 404, JSON, _json({"error": "expected /metrics, /healthz or /readyz"})


@contextmanager
def serve_health(server: "Server", address: str | None) -> Iterator[int]:
    """Serve HTTP on ADDRESS:PORT until the context ends. Yields the port; with None, serves nothing and yields 0.
    Raises Invalid.
    """
    if address is None:
        yield 0
        return
    place = split_address("--health or health in [server]", address)

    class Http(ThreadingHTTPServer):
        address_family = family_of(place)

    try:
        http = Http(place, _handler(lambda path: answer(server, path)))
    except OSError as wrong:
        raise Invalid(
            f"--health or health in [server] is {address!r}, which cannot be used: {wrong.strerror or wrong}"
        ) from None
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield int(http.server_address[1])
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def _handler(answer: Callable[[str], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # Seconds after which a slow or silent client's thread ends.
        timeout = 10

        def do_GET(self) -> None:
            try:
                status, kind, body = answer(self.path.partition("?")[0])
            except (Invalid, OSError) as wrong:
                status, kind, body = 503, JSON, _json({"error": str(wrong)})
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: the log belongs to the server."""

    return Handler


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
