"""Stopping and logging, for commands that run until a signal stops them."""

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.base.log import Journal

FORMATS = ("text", "json")
Seconds = Annotated[
    float | None, typer.Option(help="Stop after this many seconds; without it, stop at SIGTERM or Ctrl-C.")
]
LogFormat = Annotated[str, typer.Option(help="Format of the log: text, or json with one object per line.")]


def stop_event(seconds: float | None = None) -> threading.Event:
    """Return an event that SIGTERM, Ctrl-C and the end of ``seconds`` set. Raises Invalid unless ``seconds`` is
    from 0 to `threading.TIMEOUT_MAX`.
    """
    if seconds is not None and not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise Invalid(f"--seconds is {seconds}, expected 0 to {threading.TIMEOUT_MAX:.0f}")
    stop = threading.Event()
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: stop.set())
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    return stop


def end_like_ctrl_c() -> None:
    """Let SIGTERM end the command as Ctrl-C does, so that the command also stops its brokers and servers."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def open_journal(log_format: str) -> "Journal":
    """Return a server's log: text on standard error, JSON on standard output. Raises Invalid for another format."""
    from undertone_aggregator.base.log import Journal

    if log_format not in FORMATS:
        raise Invalid(f"--log-format is {log_format!r}, expected text or json")
    as_json = log_format == "json"
    return Journal(sys.stdout if as_json else sys.stderr, as_json=as_json)


def end_with_input() -> None:
    """Start a thread that ends this process when standard input closes.

    `undertone serve` holds the other end of standard input, so this process ends when `undertone serve` ends.
    """

    def wait() -> None:
        # With sys.stdin, this thread would keep the lock of that file's buffer when the interpreter exits.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
