"""The command ``undertone``, run in this process: where no other process is needed, it starts without a delay."""

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from undertone.__main__ import main

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Done(NamedTuple):
    """The end of a command: its exit code, standard output and standard error."""

    returncode: int
    stdout: str
    stderr: str


def undertone(*words: object, text: str = "") -> Done:
    """Run `undertone WORDS` with ``text`` as standard input.

    Exceptions that the command does not catch reach the caller.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "stdin", io.StringIO(text)),
        patch.object(sys, "argv", ["undertone", *map(str, words)]),
        _signals_as_before(),
    ):
        code = main()
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """Restore this process's signal handlers after a command. A command that waits for a signal sets its own."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
