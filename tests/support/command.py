"""The ``undertone`` command in this process: what needs no process of its own takes no second to start."""

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
    """How a command ended: its exit code, standard output and standard error."""

    returncode: int
    stdout: str
    stderr: str


def undertone(*words: object, text: str = "") -> Done:
    """Run `undertone WORDS`, with ``text`` as standard input. What it raises and does not catch comes through."""
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
    """A command that runs until a signal comes sets handlers, which are not this process's."""
    before = {number: signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
