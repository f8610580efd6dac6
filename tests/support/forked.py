"""Child processes that need not import the server again.

Each test worker has one process that imports the server, and forks it. For the tests, a child is as good as a new
interpreter: it has its own files, threads and locks, and can be killed at any moment. It starts in a tenth of a second
instead of two seconds.
"""

import multiprocessing
import multiprocessing.forkserver
import os
import resource
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Modules that a server imports when it runs a campaign.
PRELOADED = [
    "support.serving",
    "undertone_aggregator.campaign.coordinator",
    "undertone_aggregator.campaign.rounds",
    "undertone_aggregator.mqtt.signing",
    "undertone_aggregator.store.migrations",
    "undertone_aggregator.store.sqlite_store",
    "undertone_simulator.mosquitto",
    "undertone_aggregator.mqtt.endpoint.source",
]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(PRELOADED)


class Child:
    """A process that runs ``work(*arguments)`` with its output in ``log``.

    It has the methods of `subprocess.Popen` that tests need. ``environment`` is its whole environment.
    ``largest_file``: how many bytes its files may have, or None for no limit.
    """

    def __init__(
        self,
        work: Callable[..., None],
        *arguments: Any,
        log: Path,
        environment: Mapping[str, str],
        largest_file: int | None = None,
    ) -> None:
        # The numerical libraries must start no threads in the process that is forked, because a fork would lose them.
        with patch.dict(os.environ, OPENBLAS_NUM_THREADS="1"):
            multiprocessing.forkserver.ensure_running()
        given = (work, arguments, str(log), dict(environment), largest_file)
        # The log exists before the process starts, so that a test can read it at any time.
        log.touch()
        self._process = _context.Process(target=_begin, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait for the end of the process; return the exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"process {self.pid} has not ended within {seconds} s"
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _begin(
    work: Callable[..., None], arguments: tuple[Any, ...], log: str, environment: dict[str, str], largest: int | None
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    soft = resource.RLIM_INFINITY if largest is None else largest
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
    work(*arguments)
