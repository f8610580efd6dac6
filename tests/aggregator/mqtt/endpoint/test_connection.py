"""Many reports that arrive in one piece have the same effect as if they arrived byte by byte.

In one piece, they are not parsed one by one.
"""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from support.direct import CAMPAIGN, PREFIX, password, topic, write_passwords
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.endpoint.connection import Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.roster import Roster
from undertone_aggregator.mqtt.packets import PING
from undertone_device.mqtt import packets
from undertone_shared.report import LENGTH


class Wire:
    """Stands for the stream below a connection: it sends nothing, and keeps whether it is paused or closed."""

    reader: Any
    unread = 0
    websocket = pending = closed = paused = False
    certificate = None

    def write(self, data: bytes) -> None:
        pass

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def end(self, reason: str = "") -> None:
        self.closed = True
        self.reader.ended(reason)

    close = end


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    folder: Path = tmp_path_factory.mktemp("gate")
    credentials.write_access_rules(folder / "access", PREFIX, {"load-1": [CAMPAIGN]})
    return Gate(write_passwords(folder / "passwords", ["load-1"]), (), folder / "access")


def publication(number: int, *, first: int = 0x32, payload: int = LENGTH, to: str = topic("load-1")) -> bytes:
    body = struct.pack(">H", len(to)) + to.encode() + struct.pack(">H", number) + number.to_bytes(payload, "big")
    return bytes((first, len(body))) + body


def connected(gate: Gate, limits: Limits) -> tuple[Roster, Connection, Wire]:
    """Return a roster, a connection that has sent one report (so that its topic is known), and the stream below it."""
    roster, wire = Roster(gate, limits, PREFIX, lambda _: None), Wire()
    roster.now = lambda: 0.0
    roster.queues[CAMPAIGN] = Queue(CAMPAIGN)
    connection = Connection(roster, wire, "192.0.2.1")  # type: ignore[arg-type]
    connection.received(packets.encode_connect("load-1", "load-1", password("load-1"), 60))
    connection.received(publication(1))
    return roster, connection, wire


PACKETS = some.one_of(
    *[some.builds(publication, some.integers(0, 3))] * 4,
    some.builds(publication, some.integers(1, 3), first=some.sampled_from((0x33, 0x3A, 0x30))),
    some.builds(publication, some.integers(1, 3), payload=some.integers(LENGTH - 1, LENGTH + 1)),
    some.builds(publication, some.integers(1, 3), to=some.sampled_from((topic("load-2"), "elsewhere"))),
    some.just(PING),
)


@settings(max_examples=200)
@given(
    sent=some.lists(PACKETS, max_size=8),
    limits=some.builds(
        Limits, burst=some.integers(1, 9), unacknowledged=some.integers(1, 9), backlog=some.integers(1, 9)
    ),
)
def test_reports_in_one_piece_are_handled_as_byte_by_byte(gate: Gate, sent: list[bytes], limits: Limits) -> None:
    outcomes = []
    data = b"".join(sent)
    for pieces in ([data] if data else [], [data[at : at + 1] for at in range(len(data))]):
        roster, connection, wire = connected(gate, limits)
        for piece in pieces:
            if not wire.paused and not wire.closed:
                connection.received(piece)
        taken = [
            (each.topic, each.payload, each.retained, each.receipt[1])  # type: ignore[index]
            for each in roster.queues[CAMPAIGN].waiting
        ]
        outcomes.append((taken, connection.waiting, connection.stalled, wire.closed, roster.refused, roster.unknown))
    assert outcomes[0] == outcomes[1]


def test_a_piece_of_more_reports_than_a_limit_allows_is_taken_as_far_as_it_goes(gate: Gate) -> None:
    data = b"".join(publication(number) for number in range(2, 7))
    for limits in (Limits(burst=4), Limits(unacknowledged=4), Limits(backlog=4)):
        roster, connection, wire = connected(gate, limits)
        connection.received(data)
        assert len(roster.queues[CAMPAIGN].waiting) == 4
        assert connection.stalled
        assert wire.paused


def test_reports_in_one_piece_are_not_parsed_one_by_one(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    roster, connection, _ = connected(gate, Limits())
    monkeypatch.delattr(Connection, "_handle_publish")
    connection.received(b"".join(publication(number) for number in range(2, 7)))
    assert [int.from_bytes(each.payload, "big") for each in roster.queues[CAMPAIGN].waiting] == list(range(1, 7))
