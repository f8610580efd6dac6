"""The page in a real browser: a server for it, and pages whose errors and warnings make the test fail."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# How many seconds a test waits for a browser or a page.
PATIENCE = 120


class PageServer:
    """`undertone web` as a process."""

    def __init__(self, store: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/"
        self._port = port
        self._command = [sys.executable, "-m", "undertone", "web", str(store), "--listen", f"127.0.0.1:{port}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(10 * PATIENCE):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            assert self._process.poll() is None, self._process.communicate()[1].decode()
            time.sleep(0.1)
        pytest.fail("the page did not start")

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextlib.contextmanager
def pages(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Yields a function that opens a page.

    At the end, errors and warnings of pages, and what their policy forbade, make the test fail.
    """
    trouble: list[str] = []
    with contextlib.ExitStack() as stack:

        def open_it(fragment: str = "", losing: bool = False, prepare: Any = None, **options: Any) -> Any:
            context = chromium.new_context(**options)
            context.set_default_timeout(PATIENCE * 1000)
            stack.callback(context.close)
            page = context.new_page()

            def heard(said: Any) -> None:
                # The browser itself logs connections that the test has cut, and requests that the server gave up when
                # the test stopped it (status 500). These messages are no fault of the page.
                cut = losing and ("net::ERR_" in said.text or "Failed to load resource" in said.text)
                if said.type in ("error", "warning") and not cut:
                    trouble.append(said.text)

            page.on("console", heard)
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.add_init_script(
                "addEventListener('securitypolicyviolation', (e) => console.error('policy: ' + e.violatedDirective))"
            )
            if prepare is not None:
                prepare(page)
            page.goto(address + fragment)
            return page

        yield open_it
        assert trouble == []


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true. playwright's own function evaluates text, which the page's policy forbids."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.02)
