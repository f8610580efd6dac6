"""Connections that have not logged in (strangers) are limited, so that devices can connect and stay connected."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.direct import PREFIX, password, write_passwords
from undertone_aggregator.mqtt import packets as mqtt
from undertone_aggregator.mqtt.endpoint import roster
from undertone_aggregator.mqtt.endpoint.connection import Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.roster import Roster
from undertone_aggregator.mqtt.endpoint.shares import Shares, network_of
from undertone_device.mqtt import packets

USERS = [f"meter-{number}" for number in range(300)]


class Wire:
    """A stream that keeps what is written to it."""

    certificate = None
    websocket = False

    def __init__(self) -> None:
        self.reader: Any = None
        self.closed = False
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def end(self, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.reader.ended(reason)

    def close(self) -> None:
        self.end()


class World:
    """A roster without sockets: connections come from any address that a test names."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        gate = Gate(write_passwords(folder / "passwords", USERS))
        self.said: list[str] = []
        self.roster = Roster(gate, limits, PREFIX, self.said.append)

    def stranger(self, address: str) -> Wire:
        wire: Any = Wire()
        Connection(self.roster, wire, address)
        return wire  # type: ignore[no-any-return]

    def connect(self, wire: Wire, user: str) -> Wire:
        """The device logs in with its password, so that it is no stranger any more."""
        wire.reader.received(packets.encode_connect(user, user, password(user), 60))
        return wire

    def accepted(self, wire: Wire, user: str) -> bool:
        is_online = user in self.roster.online and self.roster.online[user] is wire.reader
        return is_online and wire.written == mqtt.connack(mqtt.ACCEPTED)


@pytest.mark.slow_but("its own")
@pytest.mark.parametrize("at", ["its own", "the attackers'"])
def test_79_addresses_with_256_strangers_each_lock_no_device_out(tmp_path: Path, at: str) -> None:
    world = World(tmp_path, Limits())
    inside = world.connect(world.stranger("198.51.100.1"), "meter-0")
    attackers = [f"203.0.113.{number}" for number in range(1, 80)]
    for _ in range(256):
        for address in attackers:
            world.stranger(address)
    coming = world.stranger("192.0.2.1" if at == "its own" else attackers[0])
    # 40 more strangers come before the device's first packet. An attackers' address keeps at
    # least its newest 51 of the 4,096 connections, so the device's stays.
    for _ in range(40):
        world.stranger(attackers[0])
    world.connect(coming, "meter-1")
    assert world.accepted(coming, "meter-1")
    assert world.accepted(inside, "meter-0")
    assert len(world.roster.strangers) <= Limits().strangers
    assert len(world.roster.open) == len(world.roster.strangers) + 2


def test_the_log_says_in_words_why_connections_ended(tmp_path: Path) -> None:
    world = World(tmp_path, Limits(strangers=1))
    world.connect(world.stranger("192.0.2.1"), USERS[0]).end("silent")
    world.stranger("192.0.2.2")
    world.stranger("192.0.2.3")
    world.roster.sweep()
    assert world.said[-1].startswith(
        "devices online: 0; connections that the server refused or ended: 1 silent for longer than their keepalive"
        " allows, 1 closed before their login to make room; "
    )


def test_the_log_has_words_for_each_reason() -> None:
    endpoint = Path(roster.__file__).parent
    text = "".join(
        file.read_text(encoding="utf-8") for file in (*endpoint.glob("*.py"), endpoint.parent / "packets.py")
    )
    counted = re.findall(r'(?:ProtocolError|abort|\.end|_stream\.close)\("([a-z_]+)"', text)
    assert set(counted) == set(roster.REASONS)


def test_an_ipv6_network_counts_as_one_address(tmp_path: Path) -> None:
    world = World(tmp_path, Limits(strangers=1000, strangers_of_address=20))
    for number in range(500):
        world.stranger(f"2001:db8:0:1::{number:x}")
    assert len(world.roster.strangers) == 20
    world.stranger("2001:db8:0:2::1")
    assert len(world.roster.strangers) == 21


def test_300_devices_behind_one_address_all_get_in(tmp_path: Path) -> None:
    """After 256 strangers of this address, the devices come, up to 200 at a time, as after a power cut."""
    world = World(tmp_path, Limits())
    for _ in range(256):
        world.stranger("192.0.2.1")
    for first in range(0, len(USERS), 200):
        arrived = [(world.stranger("192.0.2.1"), user) for user in USERS[first : first + 200]]
        for wire, user in arrived:
            world.connect(wire, user)
    assert set(world.roster.online) == set(USERS)


def test_devices_have_a_limit_of_their_own(tmp_path: Path) -> None:
    world = World(tmp_path, Limits(connections=2, strangers=1, strangers_of_address=1))
    for user in ("meter-0", "meter-1"):
        assert world.accepted(world.connect(world.stranger("192.0.2.1"), user), user)
    third = world.connect(world.stranger("192.0.2.1"), "meter-2")
    assert third.written == mqtt.connack(mqtt.UNAVAILABLE)
    assert third.closed
    assert world.roster.refused == Counter(connections=1)
    assert world.roster.turned_away.keys() == {"meter-2"}
    again = world.connect(world.stranger("192.0.2.1"), "meter-1")
    assert world.accepted(again, "meter-1")
    assert len(world.roster.strangers) == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_shares_agree_with_a_plain_count() -> None:
    chance = random.Random(7)
    shares: Shares[int] = Shares()
    model: list[tuple[str, int]] = []
    for number in range(5000):
        if model and chance.random() < 0.48:
            network, member = model.pop(chance.randrange(len(model)))
            shares.remove(network, member)
        else:
            network = chance.choice("abcdefgh")
            shares.add(network, number)
            model.append((network, number))
        counts = Counter(network for network, _ in model)
        assert len(shares) == len(model)
        assert shares.largest == max(counts.values(), default=0)
        for network in "abcdefgh":
            members = [member for of, member in model if of == network]
            assert shares.count(network) == len(members)
            if members:
                assert shares.oldest(network) == members[0]
        if model:
            crowded = shares.most_crowded()
            network = next(of for of, member in model if member == crowded)
            assert counts[network] == shares.largest
            assert shares.oldest(network) == crowded
