"""While strangers and devices misbehave in many ways, the endpoint goes on serving an honest device."""

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.direct import CONFIG, Device, ended, open_endpoint, password, raw, topic, write_passwords
from support.private_broker import TLS
from support.waiting import wait_for
from undertone_aggregator.mqtt import packets as mqtt
from undertone_aggregator.mqtt.endpoint.connection import Connection
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_device.mqtt import packets

USERS = ["honest", "bad", "worse"]
COMMIT_SECONDS = 0.002


class Site:
    """An endpoint, a thread that commits its deliveries, and an honest device that reports all the time."""

    def __init__(self, path: Path, limits: Limits, listener: Listener | None = None) -> None:
        self._opened = open_endpoint(path, replace(limits), listener)
        self.taken: list[Any] = []
        self.committing = True
        # Set while ``committing`` is False and the committing thread takes nothing.
        self.paused = threading.Event()
        self.waits: list[float] = []
        self._context = None
        if listener is not None:
            self._context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self.opened: list[Device] = []

    def __enter__(self) -> "Site":
        self.endpoint = self._opened.__enter__()
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._commit, self._report)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._opened.__exit__(None, None, None)
        for device in self.opened:
            device.close()
        assert not self._failures, self._failures

    @property
    def port(self) -> int:
        return self.endpoint.port

    def refused(self, reason: str) -> int:
        return int(self.endpoint.facts()["refused"].get(reason, 0))

    def impatient(self, **limits: float) -> None:
        """Set limits of time, in seconds. They may be too short to connect, so the honest device connects before."""
        for name, seconds in limits.items():
            object.__setattr__(self.endpoint.limits, name, seconds)

    def honest_goes_on(self, reports: int = 5, seconds: float = 60.0) -> None:
        """Wait up to ``seconds`` until ``reports`` more reports of the honest device are acknowledged."""
        wanted = len(self.waits) + reports
        wait_for(lambda: len(self.waits) >= wanted or self._failures, seconds, "a report of the honest device")
        assert not self._failures, self._failures

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as wrong:
            self._failures.append(wrong)

    def _commit(self) -> None:
        while not self._stop.is_set():
            if not self.committing:
                self.paused.set()
                time.sleep(0.01)
                continue
            self.paused.clear()
            taken = self.endpoint.take(0.05)
            if taken:
                time.sleep(COMMIT_SECONDS)
                self.taken += [delivery for delivery in taken if delivery.payload != b"honest"]
                self.endpoint.acknowledge(taken)

    def _report(self) -> None:
        device = Device(self.port, "honest", context=self._context)
        device.wait("connected")
        while not self._stop.is_set():
            began = time.perf_counter()
            device.publish([b"honest"])
            while not self._stop.is_set():
                with contextlib.suppress(AssertionError):
                    device.wait("acked", 0.2)
                    self.waits.append(time.perf_counter() - began)
                    break
            time.sleep(0.005)
        device.close()


# The honest device reports as fast as it is acknowledged, which the usual limit of packets per second would not allow.
QUICK = Limits(per_second=1000.0)


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    return write_passwords(tmp_path / "passwords", USERS)


@pytest.fixture
def site(passwords: Path) -> Iterator[Site]:
    with Site(passwords, QUICK) as made:
        yield made


def entered(site: Site, user: str = "bad", **options: Any) -> Device:
    device = Device(site.port, user, **options)
    site.opened.append(device)
    device.wait("connected")
    return device


CONNECT = packets.encode_connect("bad", "bad", password("bad"), 60)
LONG = packets.encode_connect("bad", "bad", "x" * 600, 60)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not_connect"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "not_connect"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "not_connect"),
        (packets.encode_publish(1, "t", b"x"), "not_connect"),
        (b"\x10\xff\xff\xff\x7f", "oversized"),
        (b"\x10\xff\xff\xff\xff", "malformed"),
        (LONG, "oversized"),
        (CONNECT.replace(b"MQTT\x04", b"MQTT\x05"), "level"),
        (CONNECT.replace(b"MQTT\x04\xc2", b"MQTT\x04\xc0"), "flags"),
        (CONNECT.replace(b"MQTT\x04\xc2", b"MQTT\x04\xe6"), "malformed"),
        (CONNECT.replace(b"\xc2\x00\x3c", b"\xc2\x00\x00"), "keepalive"),
    ],
)
def test_who_is_no_device_is_sent_away_at_once(site: Site, data: bytes, reason: str) -> None:
    came = ended(raw(site.port, data))
    assert came is not None
    assert came in (b"", mqtt.connack(mqtt.WRONG_LEVEL))
    assert site.refused(reason) == 1
    site.honest_goes_on()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packets.encode_publish(1, topic("bad"), bytes(10_000)), "oversized"),
        (b"\x30" + packets.encode_publish(1, topic("bad"), b"x")[1:], "qos"),
        (b"\x34" + packets.encode_publish(1, topic("bad"), b"x")[1:], "qos"),
        (b"\x36" + packets.encode_publish(1, topic("bad"), b"x")[1:], "qos"),
        (b"\x32\x02\xff\xff", "malformed"),
        (b"\x32\x05\0\1t\0\0", "malformed"),
        (mqtt.unsubscribe(1, [CONFIG]), "packet"),
        (CONNECT, "packet"),
        (b"\x40\x02\0\1", "packet"),
        (b"\0\0", "packet"),
        (b"\xc0\x01x", "packet"),
        (b"\x82\x02\0\1", "malformed"),
    ],
)
def test_what_devices_have_no_use_for_ends_the_connection(site: Site, data: bytes, reason: str) -> None:
    device = entered(site)
    device.socket.sendall(data)
    assert device.closed()
    assert site.refused(reason) == 1
    assert site.taken == []
    site.honest_goes_on()


def test_slow_strangers_are_sent_away(site: Site) -> None:
    site.honest_goes_on()
    site.impatient(connect_seconds=0.6)
    slow = [raw(site.port, CONNECT[:7]) for _ in range(20)]
    silent = [raw(site.port, b"") for _ in range(20)]
    assert all(ended(stranger) == b"" for stranger in slow + silent)
    assert site.refused("slow_connect") == 40
    site.honest_goes_on()


def test_a_packet_byte_by_byte_is_cut_off(site: Site) -> None:
    device = entered(site)
    site.honest_goes_on()
    site.impatient(packet_seconds=0.6)
    data = packets.encode_publish(1, topic("bad"), bytes(200))
    with contextlib.suppress(OSError):
        for byte in data:
            device.socket.sendall(bytes((byte,)))
            time.sleep(0.05)
    assert device.closed()
    assert site.refused("slow_packet") == 1
    site.honest_goes_on()


def test_slow_but_whole_packets_are_not_cut_off(site: Site) -> None:
    """The clock of a packet starts with its first byte, not with the connection."""
    device = entered(site)
    roster = site.endpoint.roster
    # The connection is now older than a packet may become. Meanwhile, the honest device goes on sending.
    late = 3 * site.endpoint.limits.packet_seconds
    with site.endpoint.turn:
        roster.now = lambda: time.monotonic() + late
    data = packets.encode_publish(1, topic("bad"), b"x")
    device.socket.sendall(data[:5])
    wait_for(lambda: roster.online["bad"]._rest == data[:5])
    with site.endpoint.turn:
        roster.sweep()
    device.socket.sendall(data[5:])
    wait_for(lambda: len(site.taken) == 1)
    with site.endpoint.turn:
        roster.sweep()
    assert not device.closed(0.5)
    assert site.refused("slow_packet") == 0


def test_a_half_open_connection_ends(site: Site) -> None:
    device = entered(site, keepalive=1)
    assert device.closed()
    assert site.refused("silent") == 1
    site.honest_goes_on()


def test_strangers_of_one_address_are_limited_and_devices_are_not(passwords: Path) -> None:
    with Site(passwords, replace(QUICK, strangers_of_address=20, connect_seconds=600.0)) as site:
        site.honest_goes_on()
        strangers = [raw(site.port, b"") for _ in range(50)]
        wait_for(lambda: site.refused("strangers") >= 30)
        site.honest_goes_on()
        assert site.refused("strangers") == 30
        for stranger in strangers:
            stranger.close()
        wait_for(lambda: not site.endpoint.roster.strangers)
        entered(site)


def test_devices_are_limited_in_all(passwords: Path) -> None:
    with Site(passwords, replace(QUICK, connections=1)) as site:
        site.honest_goes_on()
        assert ended(raw(site.port, CONNECT)) == mqtt.connack(mqtt.UNAVAILABLE)
        assert site.refused("connections") == 1


def test_strangers_leave_their_descriptors_to_devices(passwords: Path) -> None:
    """Strangers take all free descriptors and send nothing. A device can still connect."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Site(passwords, replace(QUICK, connect_seconds=600.0)) as site:
        site.honest_goes_on()
        strangers = [raw(site.port, b"") for _ in range(20)]
        wait_for(lambda: len(site.endpoint.roster.strangers) == 20)
        device = socket.socket()
        device.settimeout(60)
        used = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
            device.connect(("127.0.0.1", site.port))
            device.sendall(CONNECT)
            assert device.recv(4) == mqtt.connack(mqtt.ACCEPTED)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for open_socket in (device, *strangers):
                open_socket.close()


@pytest.mark.waits
def test_a_burst_is_read_no_faster_than_its_bucket_allows_and_nothing_is_dropped(passwords: Path) -> None:
    with Site(passwords, Limits(burst=100, per_second=40.0)) as site:
        device = entered(site)
        began = time.monotonic()
        device.publish([b"%04d" % number for number in range(300)])
        device.wait("acked", count=300)
        seconds = time.monotonic() - began
        assert [delivery.payload for delivery in site.taken] == [b"%04d" % number for number in range(300)]
        assert seconds > (300 - 100) / 40.0 - 0.5, "200 reports beyond the bucket take 5 s at 40 a second"
        assert site.endpoint.facts()["throttled"] >= 1
        device.close()


def test_a_new_connection_brings_no_new_bucket(passwords: Path) -> None:
    with Site(passwords, Limits(burst=100, per_second=10.0)) as site:
        began = time.monotonic()
        for _ in range(5):
            device = entered(site)
            device.publish([b"bad"] * 100)
            time.sleep(0.2)
            device.close()
        assert len(site.taken) <= 100 + 10 * (time.monotonic() - began) + 1
        # A bucket that would be full again is forgotten, so that devices which came only once take no memory.
        roster = site.endpoint.roster
        wait_for(lambda: "bad" in roster._left)
        roster.now = lambda: time.monotonic() + 10
        wait_for(lambda: "bad" not in roster._left)
        device = entered(site)
        device.publish([b"bad"] * 100)
        device.wait("acked", count=100)
        device.close()


def test_reports_without_acknowledgement_are_bounded_by_connection_and_in_all(passwords: Path) -> None:
    limits = Limits(per_second=1e6, burst=10_000, unacknowledged=50, backlog=120)
    with Site(passwords, limits) as site:
        site.honest_goes_on()
        site.committing = False
        assert site.paused.wait(60)
        first = Device(site.port, "bad")
        second, third = (entered(site, "worse") for _ in range(2))
        first.wait("connected")
        for device in (first, third):
            device.publish([b"%04d" % number for number in range(500)])
        # Wait until the endpoint reads neither of these two connections any more.
        online = site.endpoint.roster.online
        wait_for(lambda: online["bad"].stalled and online["worse"].stalled)
        assert 100 <= site.endpoint.facts()["backlog"] <= 120 + 1
        first.socket.sendall(mqtt.PING)
        site.committing = True
        first.wait("acked", count=500)
        third.wait("acked", count=500)
        second.close()
        for device in (first, third):
            device.close()


def test_a_flood_of_pings_that_nobody_reads(passwords: Path) -> None:
    """The endpoint stops reading the connection, or ends it, and goes on serving the honest device."""
    with Site(passwords, replace(QUICK, burst=20_000, unread_bytes=4096)) as site:
        device = entered(site)
        device.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        device.socket.settimeout(0.2)
        with contextlib.suppress(OSError):
            for _ in range(400):
                device.socket.sendall(mqtt.PING * 5000)
        site.honest_goes_on()
        wait_for(lambda: site.endpoint.facts()["throttled"] + site.refused("unread") >= 1)
        device.close()


def test_a_tls_storm(tmp_path: Path, passwords: Path) -> None:
    listener = Listener(port=0, certificate=TLS / "localhost.pem", key=TLS / "localhost.key")
    with Site(passwords, QUICK, listener) as site:
        site.honest_goes_on()
        broken = [raw(site.port, b"\x16\x03\x01" + bytes(40)) for _ in range(100)]
        silent = [raw(site.port, b"") for _ in range(100)]
        plain = [raw(site.port, CONNECT) for _ in range(20)]
        site.honest_goes_on()
        for stranger in broken + silent + plain:
            stranger.close()
        site.honest_goes_on()


def test_descriptors_used_up(passwords: Path) -> None:
    """While no further connection can be accepted, the honest device is served.

    Afterwards, other devices can connect.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Site(passwords, QUICK) as site:
        site.honest_goes_on()
        used = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 64
        clients = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
            with contextlib.suppress(OSError):
                for _ in range(200):
                    clients.append(raw(site.port, b""))
            assert len(clients) < 100
            site.honest_goes_on()
            wait_for(lambda: site.refused("without a free file") > 0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            client.close()
        # The endpoint tries again to accept connections when it next looks through those it has.
        entered(site)


# --- random bytes


def damaged(chance: random.Random) -> bytes:
    """Return what a connection sends: mostly a right CONNECT, then up to 7 packets, with up to 3 bytes changed."""
    whole = [
        packets.encode_publish(chance.randrange(1, 9), topic("bad"), chance.randbytes(24)),
        packets.encode_publish(1, topic("worse"), b""),
        packets.encode_subscribe(1, CONFIG),
        packets.encode_subscribe(2, "#"),
        mqtt.PING,
        mqtt.GOODBYE,
        mqtt.pubacks([1]),
        CONNECT,
        chance.randbytes(chance.randrange(60)),
    ]
    data = bytearray(CONNECT if chance.random() < 0.7 else chance.choice([LONG, b"", CONNECT[:9]]))
    for _ in range(chance.randrange(8)):
        data += chance.choice(whole)
    for _ in range(chance.choice([0, 0, 1, 3])):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


class Wire:
    """Stands for a stream; it ignores whatever is written."""

    reader: Connection
    certificate = None
    websocket = False
    closed = False

    def write(self, data: bytes) -> None:
        pass

    def end(self, reason: str = "") -> None:
        if not self.closed:
            self.closed = True
            self.reader.ended(reason)

    def close(self) -> None:
        self.end()

    def pause(self) -> None:
        pass

    resume = pause


def fuzz(endpoint: Endpoint, sequences: int, seed: int) -> int:
    """Feed damaged sequences to connections, in pieces, while the endpoint works; return their length in bytes."""
    chance = random.Random(seed)
    fed = 0
    for number in range(sequences):
        if number % 50 == 0:
            time.sleep(0.001)
        data = damaged(chance)
        fed += len(data)
        with endpoint.turn:
            wire: Any = Wire()
            connection = Connection(endpoint.roster, wire, "192.0.2.1")
            at = 0
            while at < len(data) and not wire.closed:
                step = chance.choice([1, 3, 50, 5000])
                connection.received(data[at : at + step])
                assert len(connection._rest) <= endpoint.limits.packet_bytes + 5005
                at += step
            connection.check(endpoint.roster.now() + chance.choice([0, 100]))
            wire.end()
    return fed


def fuzzed(passwords: Path, sequences: int, seed: int) -> tuple[int, np.ndarray]:
    with Site(passwords, replace(QUICK, burst=50)) as site:
        site.honest_goes_on()
        before = len(site.waits)
        fed = fuzz(site.endpoint, sequences, seed)
        site.honest_goes_on()
        for delivery in site.taken:
            assert delivery.topic in ("", topic("bad"), topic("worse"))
        assert site.endpoint.facts()["connections"] == 1, "only the honest device is left"
        assert len(site.endpoint.roster.strangers) == 0
        return fed, np.array(site.waits[before:])


def test_fuzzed_sequences(passwords: Path) -> None:
    fed, waits = fuzzed(passwords, 3000, 1)
    assert fed > 300_000
    assert len(waits) > 5


@pytest.mark.slow
def test_fuzzed_long(passwords: Path) -> None:
    """10^5 sequences with more than 10^7 bytes. 99 % of the honest device's reports are acknowledged within 100 ms."""
    fed, waits = fuzzed(passwords, 100_000, 2)
    assert fed > 10_000_000
    assert np.quantile(waits, 0.99) <= 0.1, np.quantile(waits, [0.5, 0.99])
