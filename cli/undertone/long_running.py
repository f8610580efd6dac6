"""Shared parts of commands that run until they are stopped: the stop event, and the log."""

import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.base.log import Journal

FORMATS = ("text", "json")
Seconds = Annotated[float | None, typer.Option(help="Stop after this long; else at SIGTERM or Ctrl-C.")]
LogFormat = Annotated[str, typer.Option(help="text or json: one object a line.")]


def stop_event(seconds: float | None = None) -> threading.Event:
    """Return an event that is set at SIGTERM, at Ctrl-C, and after ``seconds``, if given. Raises Invalid for a wrong
    number.
    """
    if seconds is not None and not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise Invalid(f"--seconds is {seconds}, expected 0 or more")
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    return stop


def end_like_ctrl_c() -> None:
    """Make SIGTERM end the process like Ctrl-C, so that a command also ends its own brokers and servers."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def open_journal(log_format: str) -> "Journal":
    """Open the server's log: text to standard error, JSON to standard output. Raises Invalid for another format."""
    from undertone_aggregator.base.log import Journal

    if log_format not in FORMATS:
        raise Invalid(f"--log-format is {log_format!r}, expected text or json")
    as_json = log_format == "json"
    return Journal(sys.stdout if as_json else sys.stderr, as_json=as_json)
