"""A network between a board and its broker that forwards bytes late, in small parts, or not at all."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path


class SlowNetwork:
    """Listens on ``port`` and connects each caller to ``behind``, a port of the loopback address.

    Bytes to the board come in parts of ``part`` bytes with ``pause`` seconds after each, until ``slow`` bytes of a
    connection have passed, and then at once. The first ``silent`` connections get nothing. While the file ``radio`` has
    the word "down", no byte passes in either direction. As with TCP, these bytes pass later.
    """

    def __init__(
        self,
        behind: int,
        *,
        part: int = 65536,
        pause: float = 0,
        slow: int = 0,
        silent: int = 0,
        radio: Path | None = None,
    ) -> None:
        self._behind = behind
        self._part = part
        self._pause = pause
        self._slow = slow
        self._silent = silent
        self._radio = radio
        self._end = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.1)
        self._threads = [threading.Thread(target=self._accept)]
        self.port: int = self._server.getsockname()[1]
        self.connections = 0

    def __enter__(self) -> "SlowNetwork":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.ExitStack() as stack:
            while not self._end.is_set():
                try:
                    near = stack.enter_context(self._server.accept()[0])
                except TimeoutError:
                    continue
                self.connections += 1
                near.settimeout(0.1)
                if self.connections <= self._silent:
                    continue
                far = stack.enter_context(socket.create_connection(("127.0.0.1", self._behind)))
                far.settimeout(0.1)
                self._start(near, far, lambda data: [data], 0)
                self._start(far, near, self._parts, self._slow)
            for thread in self._threads[1:]:
                thread.join()

    def _start(
        self, source: socket.socket, sink: socket.socket, cut: Callable[[bytes], list[bytes]], slow: int
    ) -> None:
        thread = threading.Thread(target=self._pass_on, args=(source, sink, cut, slow))
        self._threads.append(thread)
        thread.start()

    def _parts(self, data: bytes) -> list[bytes]:
        return [data[i : i + self._part] for i in range(0, len(data), self._part)]

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, cut: Callable[[bytes], list[bytes]], slow: int
    ) -> None:
        with contextlib.suppress(OSError):
            while not self._end.is_set():
                try:
                    data = source.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    break
                for part in cut(data) if slow > 0 else [data]:
                    self._until_up()
                    sink.sendall(part)
                    if slow > 0:
                        slow -= len(part)
                        self._end.wait(self._pause)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _until_up(self) -> None:
        while self._radio is not None and self._radio.exists() and self._radio.read_text(encoding="utf-8") == "down":
            if self._end.wait(0.02):
                return
