"""A stream over a pair of sockets: written bytes go out whole and in order, and a paused stream is not read."""

import selectors
import socket
from collections.abc import Iterator

import pytest

from undertone_aggregator.mqtt.endpoint.stream import Stream

LARGE = bytes(range(256)) * 4096


class Heard:
    def __init__(self) -> None:
        self.data = b""
        self.reasons: list[str] = []
        self.emptied = False

    def received(self, data: bytes) -> None:
        if data == b"a mistake":
            raise ZeroDivisionError
        self.data += data

    def ended(self, reason: str) -> None:
        self.reasons.append(reason)

    def drained(self) -> None:
        self.emptied = True


class Pair:
    """A stream, the device's socket at its other end, and the selector that serves the stream."""

    def __init__(self, unread: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.device = socket.create_connection(listening.getsockname())
            accepted, _ = listening.accept()
        self.device.settimeout(0.1)
        self.selector = selectors.DefaultSelector()
        self.stream = Stream(accepted, None, self.selector, unread)
        self.heard = self.stream.reader = Heard()

    def serve(self, seconds: float = 0.1) -> None:
        for key, _ in self.selector.select(seconds):
            key.data()

    def read(self) -> bytes:
        """Return what the device reads; empty if nothing comes within 0.1 s."""
        try:
            return self.device.recv(1 << 20)
        except TimeoutError:
            return b""

    def close(self) -> None:
        self.stream.end()
        self.device.close()
        self.selector.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(1 << 24)
    yield made
    made.close()


def test_what_the_other_side_reads_late_comes_whole_and_then_the_end(pair: Pair) -> None:
    sent = 0
    while not pair.stream._out:
        pair.stream.write(LARGE)
        sent += 1
    pair.stream.write(b"last")
    pair.stream.close()
    assert not pair.stream.closed
    came = bytearray()
    while len(came) < sent * len(LARGE) + 4:
        came += pair.read()
        pair.serve(0)
    assert came == LARGE * sent + b"last"
    assert pair.stream.closed
    pair.device.settimeout(60)
    assert pair.device.recv(1) == b""
    assert pair.heard.reasons == [""]


def test_what_is_paused_is_not_read_though_it_is_written(pair: Pair) -> None:
    pair.stream.pause()
    pair.device.sendall(b"first")
    while not pair.stream._out:
        pair.stream.write(LARGE)
    left = len(pair.stream._out)
    while len(pair.stream._out) == left:
        pair.read()
        pair.serve()
    assert pair.heard.data == b""
    pair.stream.resume()
    pair.serve(60)
    assert pair.heard.data == b"first"


def test_who_reads_nothing_is_cut_off() -> None:
    pair = Pair(1 << 16)
    while not pair.stream.closed:
        pair.stream.write(LARGE)
    assert pair.heard.reasons == ["unread"]
    pair.stream.write(b"nobody hears it")
    pair.stream.end("again")
    assert pair.heard.reasons == ["unread"]
    pair.close()


def test_a_mistake_of_ours_costs_the_connection(pair: Pair) -> None:
    pair.device.sendall(b"a mistake")
    with pytest.raises(ZeroDivisionError):
        pair.serve(60)
    assert pair.heard.reasons == ["system"]
    assert not pair.selector.get_map()
