"""A server that starts on a full disk waits for room, as a running server does.

It does not end, and no report is lost.
"""

import errno
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import deliveries
from support.child_server import Server, external
from support.deliveries import Sender
from support.server import delivery
from support.waiting import wait_for
from undertone_aggregator.base.files import naming
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.store import disk_space
from undertone_aggregator.store.disk_space import retry_while_full
from undertone_aggregator.store.store import DiskFull, StoreError, open_store
from undertone_shared.errors import Invalid
from undertone_simulator.mosquitto import Mosquitto

SAID = "a file cannot be written, trying again: "


@pytest.fixture
def broker(tmp_path: Path, mosquitto_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mosquitto]:
    monkeypatch.setenv("UNDERTONE_MOSQUITTO", mosquitto_binary)
    with deliveries.open_broker(tmp_path / "b") as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Server]:
    credentials.write_passwords(tmp_path / "passwords", {"d1": "secret"})
    made = Server(tmp_path, f"port = {free_port()}")
    yield made
    if made.running:
        made.end(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("workers", [1, 2])
def test_what_waits_at_the_broker_is_counted_once_there_is_room(
    tmp_path: Path, broker: Mosquitto, server: Server, workers: int
) -> None:
    server = Server(tmp_path, external(broker), workers)
    campaign = server.begin_campaign()
    sender = Sender(broker)
    try:
        sender.flush(sender.send(delivery(campaign, f"d{i}", campaign.first_slot) for i in range(30)))
    finally:
        sender.close()
    server.start(full=True)
    wait_for(lambda: SAID in server.log() or not server.running)
    assert server.running, server.log()
    assert str(server.store) in server.log()
    assert server.deliveries() == 0
    server.make_room()
    wait_for(lambda: server.deliveries() == 30 or not server.running)
    assert server.end() == 0, server.log()
    assert "Traceback" not in server.log()


def test_a_store_that_cannot_be_made_is_made_once_there_is_room(server: Server) -> None:
    server.start(full=True)
    wait_for(lambda: SAID in server.log() or not server.running)
    assert server.running, server.log()
    server.make_room()
    wait_for(lambda: server.store.exists() or not server.running)
    wait_for(lambda: "threshold round 1" in server.log() or not server.running)
    assert server.end() == 0, server.log()


def test_a_server_that_waits_for_room_stops_when_it_is_asked(server: Server) -> None:
    server.start(full=True)
    wait_for(lambda: SAID in server.log() or not server.running)
    assert server.running, server.log()
    assert server.end() == 0, server.log()


def test_another_refusal_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store", encoding="utf-8")
    with pytest.raises(Invalid, match="cannot be used as a store"):
        open_store(tmp_path / "file")

    def fails() -> None:
        raise StoreError("the server is gone")

    with pytest.raises(StoreError, match="gone"):
        retry_while_full(fails, lambda _: None, threading.Event())


def full(number: int) -> Callable[[], None]:
    def fails() -> None:
        raise OSError(number, os.strerror(number), "passwords")

    return fails


def lacks() -> None:
    raise DiskFull("s.sqlite: database or disk is full")


@pytest.mark.parametrize("failing", [*map(full, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)), lacks])
def test_it_is_tried_again_less_and_less_often(failing: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    said: list[str] = []
    stop = threading.Event()

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return stop.is_set()

    monkeypatch.setattr(stop, "wait", wait)
    tries = iter(range(6))

    def act() -> str:
        if next(tries) < 5:
            failing()
        return "done"

    assert retry_while_full(act, said.append, stop) == "done"
    assert pauses == [1, 2, 4, 8, 16]
    assert len(set(said)) == 1
    assert said[0].startswith("alarm: ")
    assert ("s.sqlite: " if failing is lacks else "passwords: ") in said[0]
    stop.set()
    assert retry_while_full(act, said.append, stop) is None


def test_the_file_that_found_no_room_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with pytest.raises(OSError, match="too large") as caught, naming(path):
        raise OSError(errno.EFBIG, "File too large")
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match="No such") as caught, naming(path):
        raise OSError(errno.ENOENT, "No such file", "other")
    assert caught.value.filename == "other"
    assert not disk_space.is_full(caught.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_a_log_without_room_or_reader_does_not_end_the_server(number: int) -> None:
    class Failing(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, os.strerror(number))

    journal = Journal(Failing())
    journal.alarm("event", "a sentence")
    assert journal.alarm_counts == {("", "event"): 1}
