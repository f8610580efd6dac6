"""The web page and the listener for joining beside a server: separate processes, so that reports come first."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.folder import Home

_AGAIN_SECONDS = 5.0
_STOP_SECONDS = 5.0
# Process priority (nice value). If there are too few cores, the processes that take in reports get them first.
_NICE = 10


@contextlib.contextmanager
def run_page(home: Home, journal: Journal) -> Iterator[None]:
    """Run `undertone web` as [server] page and page_token say, and restart it when it ends. Without page do nothing."""
    options = home.server
    if options.page is None:
        yield
        return
    web = ["web", "--home", str(home.folder), "--listen", options.page, "--attached"]
    for name in options.page_names:
        web += ["--name", name]
    if options.page_token is not None:
        web += ["--token", str(home.folder / options.page_token)]
    with _beside("page", "the page", f"http://{options.page}", web, journal):
        yield


@contextlib.contextmanager
def run_join(home: Home, journal: Journal) -> Iterator[None]:
    """Run the listener of [join], and restart it when it ends. Without listen do nothing."""
    options = home.join
    if options.listen is None:
        yield
        return
    words = ["join", "serve", "--home", str(home.folder), "--attached"]
    with _beside("join", "the listener for joining", f"{options.url}/join", words, journal):
        yield


@contextlib.contextmanager
def _beside(event: str, what: str, where: str, words: list[str], journal: Journal) -> Iterator[None]:
    """Run ``undertone WORDS`` in a process of its own, and start it again whenever it ends."""
    command = [sys.executable, "-m", "undertone", *words]
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(command, event, what, where, journal, stop), name=event, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run(command: list[str], event: str, what: str, where: str, journal: Journal, stop: threading.Event) -> None:
    journal.say(event, f"{what} is at {where}")
    while not stop.is_set():
        try:
            ended = _once(command, stop)
        except OSError as wrong:
            # If the machine has no memory or no process left, the process cannot be started. That is temporary.
            journal.say_once(event, f"{what} cannot be started, trying again: {wrong}")
        else:
            if ended is None:
                return
            journal.say_once(event, f"{what} ended with code {ended}: it is started again")
        stop.wait(_AGAIN_SECONDS)


def _once(command: list[str], stop: threading.Event) -> int | None:
    """Run the process once; return its exit code, or None if ``stop`` ended it. Raises OSError."""
    # The process writes to this server's output. With ``--attached`` it ends when its standard input closes. That
    # happens when this server ends, even if it is killed.
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        while process.poll() is None and not stop.wait(0.2):
            pass
        if process.returncode is not None:
            return process.returncode
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    return None
