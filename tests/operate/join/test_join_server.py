"""The listener through which people join: TLS, cut connections, many clients at once, and kills at any moment."""

import asyncio
import contextlib
import io
import json
import os
import random
import secrets
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support import join_child
from support.command import undertone
from support.forked import Child
from support.ports import free_port
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.credentials import servers_names
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.page_process import run_join
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.join_codes import REDEEMED, JoinCodes
from undertone_operate.join.joining import Joining, JoinRefused, Redemption
from undertone_operate.join.server import Listening, serve_join
from undertone_shared.errors import Invalid

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")
NOW = int(time.time())
DAY = 86400


def run(*words: object) -> str:
    done = undertone(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "home"
    run("init", folder, "--host", "localhost", "--tls", "--join-port", 8444)
    run("campaign", "create", folder, "power", *CREATE)
    return folder


class Site:
    """A server's folder, the port of its listener, and the authority that a client needs to trust it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.port = free_port()
        settings = folder / "server.toml"
        text = settings.read_text(encoding="utf-8").replace("0.0.0.0:8444", f"127.0.0.1:{self.port}")
        settings.write_text(text.replace("localhost:8444", f"localhost:{self.port}"), encoding="utf-8")
        self.context = ssl.create_default_context(cafile=str(folder / "tls/ca.crt"))
        self.log = folder.parent / "join.log"

    def codes(self, count: int) -> list[str]:
        return JoinCodes(self.home.folder).create("power", count, "all", "", NOW, NOW + DAY)

    @contextmanager
    def running(self, header_seconds: float = 60.0) -> Iterator[None]:
        folder = str(self.home.folder)
        child = Child(join_child.serve, folder, header_seconds, log=self.log, environment=os.environ)
        try:
            wait_for(lambda: self.answers(child), what="the listener")
            yield
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(60)

    def answers(self, child: Child) -> bool:
        assert child.poll() is None, self.log.read_text(encoding="utf-8")
        return self.connects()

    def connects(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    @contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        with (
            socket.create_connection(("localhost", self.port), timeout=60) as plain,
            self.context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            yield connection

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the head of an answer."""
        with self.connected() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        head = answer.partition(b"\r\n\r\n")[0].decode().lower()
        return int(head.split()[1]), head

    def names(self) -> list[str]:
        with open_store(self.home.config("power").store_url, campaign="power", read_only=True) as store:
            return sorted(store.devices())

    def gate(self) -> Gate:
        folder = self.home.folder / "broker"
        return Gate(folder / "passwords", servers_names(), folder / "access")


@pytest.fixture
def site(template: Path, tmp_path: Path) -> Site:
    shutil.copytree(template, tmp_path / "home")
    return Site(tmp_path / "home")


def test_connections_are_counted_before_tls() -> None:
    """Clients that never begin TLS are counted. The third connection of one address and the fifth of all are closed."""
    listening = Listening(socket.create_server(("127.0.0.1", 0)))
    listening.most = (4, 2)
    address = listening.getsockname()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def ends(reader: asyncio.StreamReader) -> bool:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(reader.read(1), 0.5) == b""
        return False

    async def hold() -> None:
        async def connect(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection(*address, local_addr=(host, 0))

        server = await asyncio.start_server(lambda reader, writer: None, sock=listening, ssl=context)
        async with server:
            held = [await connect("127.0.0.1") for _ in range(3)]
            assert [await ends(reader) for reader, _ in held] == [False, False, True]
            others = [await connect(f"127.0.0.{number}") for number in (2, 3, 4)]
            assert [await ends(reader) for reader, _ in others] == [False, False, True], "four in all"
            for _, writer in [*held, *others]:
                writer.close()
            # Closed connections are no longer counted.
            while listening.counted:
                await asyncio.sleep(0.01)
            reader, writer = await connect("127.0.0.1")
            assert not await ends(reader)
            writer.close()

    asyncio.run(hold())


def request(code: str, key: str) -> bytes:
    body = json.dumps({"code": code, "key": key}).encode()
    head = (
        f"POST /api/join/redeem HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def send(site: Site, data: bytes, cut: float | None) -> tuple[int, Any] | None:
    """Send a request; return the status and the JSON of its answer, or None for a connection that was cut.

    ``cut``: below 1, the share of the request that is sent before the connection is cut; from 1 on, the request is sent
    whole, and above 1 up to 1000 (``cut`` - 1) + 1 bytes of the answer are read.
    """
    reader, writer = await asyncio.open_connection("localhost", site.port, ssl=site.context)
    try:
        writer.write(data if cut is None or cut >= 1 else data[: int(cut * len(data))])
        await writer.drain()
        if cut is not None:
            if cut > 1:
                await reader.read(int((cut - 1) * 1000) + 1)
            writer.transport.abort()
            return None
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def join(site: Site, code: str, key: str, cut: float | None) -> tuple[int, Any]:
    """Redeem a code: try again with the same key until there is an answer whose status is neither 429 nor 503."""
    data = request(code, key)
    if cut is not None:
        with contextlib.suppress(OSError):
            await send(site, data, cut)
    while True:
        try:
            answer = await send(site, data, None)
        except (OSError, asyncio.IncompleteReadError, IndexError):
            answer = None
        if answer is not None and answer[0] not in (429, 503):
            return answer
        await asyncio.sleep(0.2)


def many_join(site: Site, count: int) -> None:
    """Redeem ``count`` codes at once. A tenth have their first connection cut, and a tenth are tried with two keys."""
    rng = random.Random(count)
    codes = site.codes(count)
    cuts = {code: rng.uniform(0, 2) for code in rng.sample(codes, count // 10)}
    twice = set(rng.sample(codes, count // 10))
    tries = [(code, secrets.token_hex(32), cuts.get(code)) for code in codes]
    tries += [(code, secrets.token_hex(32), None) for code in twice]
    rng.shuffle(tries)

    async def all_at_once() -> list[tuple[int, Any]]:
        return await asyncio.gather(*(join(site, *each) for each in tries))

    with site.running():
        answers = asyncio.run(all_at_once())
    assert {status for status, _ in answers} <= {200, 409}
    devices: dict[str, str] = {}
    gate = site.gate()
    for (code, _, _), (status, answer) in zip(tries, answers, strict=True):
        if status == 200:
            assert code not in devices, "a code is one device"
            devices[code] = answer["device"]
            assert gate.admits(answer["device"], answer["files"]["password"].strip())
        else:
            assert code in twice
            assert answer["reason"] == "used"
    assert len(devices) == count, "no code is lost"
    assert sorted(devices.values()) == site.names(), "each device is of one code"
    assert len(set(devices.values())) == count
    stored = JoinCodes(site.home.folder).codes()
    assert {code.state(NOW) for code in stored} == {REDEEMED}
    assert {code.device for code in stored} == set(devices.values())
    written = site.log.read_text(encoding="utf-8")
    assert not [code for code in codes if code in written or code.replace("-", "") in written]


def test_a_hundred_codes_at_once(site):
    many_join(site, 100)


@pytest.mark.slow
def test_a_thousand_codes_at_once(site):
    many_join(site, 1000)


def killed_at_any_moment(site: Site, kills: int) -> None:
    """Kill ``kills`` processes at random points, each while it redeems three codes.

    Afterwards, each code is redeemed by its first key.
    """
    tries = [(code, secrets.token_hex(32)) for code in site.codes(3 * (kills + 2))]
    batches = [tries[start : start + 3] for start in range(0, len(tries), 3)]
    child = Child(
        join_child.redeem_and_kill, str(site.home.folder), batches, kills, log=site.log, environment=os.environ
    )
    assert child.wait(240 + 3 * kills) == 0
    assert int(site.log.read_text(encoding="utf-8")) > 0
    replies = Joining(site.home).redeem([Redemption.parse(*each) for each in tries])
    assert not [reply for reply in replies if isinstance(reply, JoinRefused)]
    names = [reply["device"] for reply in replies if not isinstance(reply, JoinRefused)]
    assert sorted(names) == site.names()
    folders = sorted(path.name for path in (site.home.fleet("power") / "devices").iterdir())
    assert folders == site.names()
    gate = site.gate()
    for reply in replies:
        assert not isinstance(reply, JoinRefused)
        assert gate.admits(reply["device"], reply["files"]["password"].strip())
    others = Joining(site.home).redeem([Redemption.parse(code, secrets.token_hex(32)) for code, _ in tries])
    assert {reply.reason for reply in others if isinstance(reply, JoinRefused)} == {"used"}


def test_a_killed_redemption_loses_nothing(site):
    killed_at_any_moment(site, 8)


@pytest.mark.slow
def test_two_hundred_killed_redemptions_lose_nothing(site):
    killed_at_any_moment(site, 200)


@pytest.mark.waits
def test_a_killed_listener_loses_nothing(site):
    """The listener is killed and started again.

    A client repeats its request, with its key, until there is an answer.
    """
    tries = [(code, secrets.token_hex(32)) for code in site.codes(10)]

    async def begin() -> None:
        await asyncio.gather(*(send(site, request(*each), 1.0) for each in tries))

    with site.running():
        asyncio.run(begin())
    with site.running():
        answers = asyncio.run(_join_all(site, tries))
    assert {status for status, _ in answers} == {200}
    assert sorted(answer["device"] for _, answer in answers) == site.names()


async def _join_all(site: Site, tries: list[tuple[str, str]]) -> list[tuple[int, Any]]:
    return await asyncio.gather(*(join(site, *each, None) for each in tries))


def test_a_command_adds_devices_while_people_join(site):
    tries = [(code, secrets.token_hex(32)) for code in site.codes(20)]
    child = Child(join_child.redeem, str(site.home.folder), tries, log=site.log, environment=os.environ)
    added = [json.loads(run("devices", "add", 2, "--home", site.home.folder, "--json"))["devices"] for _ in range(3)]
    assert child.wait(240) == 0, site.log.read_text(encoding="utf-8")
    replies = Joining(site.home).redeem([Redemption.parse(*each) for each in tries])
    joined = [reply["device"] for reply in replies if not isinstance(reply, JoinRefused)]
    names = [*joined, *(name for each in added for name in each)]
    assert len(set(names)) == 26
    assert sorted(names) == site.names()


def ended(connection: socket.socket, begun: bytes) -> bool:
    """Whether the server ends a connection without an answer after these bytes."""
    try:
        connection.sendall(begun)
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_tls_is_needed_and_slow_or_idle_clients_are_ended(site):
    with site.running(0.3):
        for begun in (b"", b"POST /api/join/offer HTTP/1.1\r\nHost"):
            with site.connected() as slow:
                assert ended(slow, begun)
        with socket.create_connection(("localhost", site.port), timeout=60) as plain:
            assert ended(plain, b"GET /join/ HTTP/1.1\r\nHost: localhost\r\n\r\n"), "there is no HTTP without TLS"


def test_the_pages_and_nothing_else_of_the_folder(site):
    with site.running():
        assert site.get("/join")[0] == 308
        status, head = site.get("/join/")
        assert status == 200
        assert "\r\nserver:" not in head
        status, head = site.get("/api/join/ca.crt")
        assert (status, "\r\ncontent-type: application/x-pem-file" in head) == (200, True)
        for path in ("/join/../server.toml", "/join/%2e%2e/%2e%2e/server.toml", "/../server.toml", "/join//etc/passwd"):
            assert site.get(path)[0] == 404


def test_a_renewed_certificate_is_taken_up(site):
    def serial() -> str:
        with site.connected() as connection:
            shown = connection.getpeercert()
            assert shown is not None
            return str(shown["serialNumber"])

    with site.running():
        before = serial()
        run("authority", "renew", site.home.folder)
        wait_for(lambda: serial() != before, what="the renewed certificate")
        (site.home.folder / "broker/server.key").write_text("no key", encoding="utf-8")
        wait_for(
            lambda: "keeps its old certificate" in site.log.read_text(encoding="utf-8"),
            what="the refusal of a damaged key",
        )
        assert site.get("/join")[0] == 308


def test_an_address_that_is_taken_is_a_sentence(site):
    with socket.create_server(("127.0.0.1", site.port)), pytest.raises(Invalid, match="cannot be used"):
        serve_join(site.home, Journal())


@pytest.mark.slow
@pytest.mark.waits
def test_serve_runs_the_listener_in_a_process_of_its_own(site):
    (code,) = site.codes(1)
    with run_join(site.home, Journal(io.StringIO())):
        wait_for(site.connects, what="the listener")
        assert asyncio.run(_join_all(site, [(code, secrets.token_hex(32))]))[0][0] == 200
    assert not site.connects()
    assert site.names() == ["power-001"]
