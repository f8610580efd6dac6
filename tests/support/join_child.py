"""What tests of joining run in a process of its own."""

from pathlib import Path

from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.folder import Home
from undertone_operate import join_server
from undertone_operate.joining import Joining, Redemption


def serve(folder: str, header_seconds: float = 60.0) -> None:
    """Serve the listener of a server's folder; it looks for a new certificate twenty times a second."""
    join_server._HEADER_SECONDS, join_server._WATCH_SECONDS = header_seconds, 0.05
    join_server.serve_join(Home(Path(folder)), Journal())


def redeem(folder: str, asked: list[tuple[str, str]]) -> None:
    """Redeem codes, each with its key, in one batch."""
    Joining(Home(Path(folder))).redeem([Redemption.parse(*each) for each in asked])
