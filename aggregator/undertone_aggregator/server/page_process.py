"""The web page beside a server: a separate process, so that readers never take computing time from the reports."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

from undertone_aggregator.base.log import Journal
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.plan_file import PlanFile
from undertone_shared.errors import Invalid

_AGAIN_SECONDS = 5.0
_STOP_SECONDS = 5.0
# Process priority (nice value): if there are too few cores, reports come first.
_NICE = 10


@contextlib.contextmanager
def run_page(home: Home | PlanFile, journal: Journal) -> Iterator[None]:
    """Run `undertone web` as [server] page and page_token say, restart it when it ends; do nothing without page."""
    options = home.server
    if options.page is None:
        yield
        return
    if options.page_token is not None and home.alone:
        raise Invalid("server.page_token is for a server's folder, as undertone init makes it, not for a single file")
    web = ["web", *home.page, "--listen", options.page, "--attached"]
    command = [sys.executable, "-m", "undertone", *web]
    for name in options.page_names:
        command += ["--name", name]
    if options.page_token is not None:
        command += ["--token", str(home.folder / options.page_token)]
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(command, options.page, journal, stop), name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _run(command: list[str], where: str, journal: Journal, stop: threading.Event) -> None:
    journal.say("page", f"the page is at http://{where}")
    while not stop.is_set():
        try:
            ended = _once(command, stop)
        except OSError as wrong:
            # The page's process cannot be started if the machine has no memory or process left, which is temporary.
            journal.say_once("page", f"the page cannot be started, trying again: {wrong}")
        else:
            if ended is None:
                return
            journal.say_once("page", f"the page ended with code {ended}: it is started again")
        stop.wait(_AGAIN_SECONDS)


def _once(command: list[str], stop: threading.Event) -> int | None:
    """Run the page once; return its exit code, or None if ``stop`` ended it. Raises OSError."""
    # The page writes to this server's output. Its standard input closes with this process, however that ends.
    with subprocess.Popen(command, stdin=subprocess.PIPE) as page:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, page.pid, _NICE)
        while page.poll() is None and not stop.wait(0.2):
            pass
        if page.returncode is not None:
            return page.returncode
        page.terminate()
        try:
            page.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            page.kill()
    return None
