"""The server's own decisions, without a broker."""

import io
import threading
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from support import server
from support.refusal import refused
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.binding import changes
from undertone_aggregator.campaign.election import Unopposed
from undertone_aggregator.campaign.runner import Running, RunOptions
from undertone_aggregator.ingest.ingest import IngestPlan
from undertone_aggregator.ingest.intake import Intake
from undertone_aggregator.mqtt.addresses import external_addresses
from undertone_aggregator.mqtt.endpoint.passwords import password_entry
from undertone_aggregator.mqtt.signing import make_key
from undertone_aggregator.mqtt.source import BrokerSource
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_aggregator.settings.config import Config, parse_config
from undertone_aggregator.store.store import open_store

CAMPAIGN = '[campaign]\nname = "meters"\nsensor = "load"\nunit = "Wh"\nbound = 1000\nepsilon = 1\n'


def config(folder: Path, broker: str) -> Config:
    (folder / "password").write_text("secret\n", encoding="utf-8")
    return parse_config(f'[broker]\nmode = "external"\npassword_file = "password"\n{broker}\n{CAMPAIGN}', folder)


@pytest.mark.parametrize(
    ("broker", "tls", "port"),
    [
        ('host = "broker.example.org"', True, 8883),
        ('host = "192.0.2.7"', True, 8883),
        ('host = "broker.example.org"\nport = 1883', True, 1883),
        ('host = "broker.example.org"\ninsecure = true', False, 1883),
        ('host = "localhost"', False, 1883),
        ('host = "127.8.9.10"', False, 1883),
        ('host = "::1"', False, 1883),
        ('host = "localhost.example.org"', True, 8883),
    ],
)
def test_the_password_leaves_this_machine_only_in_tls(tmp_path: Path, broker: str, tls: bool, port: int) -> None:
    (address,) = external_addresses(config(tmp_path, broker))
    assert (address.tls_context() is not None, address.port) == (tls, port)
    context = address.tls_context()
    assert context is None or (context.check_hostname and context.verify_mode)


def replace(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that the server never reads it while it is empty."""
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").replace(path)


def test_who_watches_the_passwords_survives_what_is_none(tmp_path: Path) -> None:
    """While the file is half written or of another format, the server keeps the old passwords.

    It reads the file once it is whole.
    """
    path, log, stop, read = tmp_path / "passwords", io.StringIO(), threading.Event(), threading.Event()
    path.write_text("", encoding="utf-8")
    source = BrokerSource(external_addresses(config(tmp_path, "")), [path], read.set, outlives=True)
    try:
        watch_hang_up(source, Journal(log), stop, lambda: True)
        wait_for(read.is_set)
        for number, data in enumerate((b"aggregator:$6$salt$hash\n", b"aggregator:\n", b"aggregator:$7$0$a$b\n")):
            read.clear()
            replace(path, data)
            wait_for(lambda number=number: log.getvalue().count("were not read again") == number + 1)
            assert not read.is_set()
        replace(path, ("# comment\n\n\xff:\n" + password_entry("aggregator", "secret")).encode("latin-1"))
        wait_for(read.is_set)
    finally:
        stop.set()


def test_the_endpoints_passwords_are_read_again_while_a_campaign_hangs(tmp_path: Path) -> None:
    path, stop, read = tmp_path / "passwords", threading.Event(), threading.Event()
    path.write_text("", encoding="utf-8")
    source = BrokerSource(external_addresses(config(tmp_path, "")), [path], read.set, outlives=False)

    def changed() -> bool:
        replace(path, password_entry("load-1", "secret").encode())
        return read.is_set()

    try:
        watch_hang_up(source, Journal(io.StringIO()), stop, lambda: False)
        wait_for(changed)
    finally:
        stop.set()


def test_a_server_that_fails_coordinates_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that fails gives up the coordination, so that another server can take over."""

    class Leading(Unopposed):
        closed = False

        def close(self) -> None:
            self.closed = True

    class Failing:
        heard: ClassVar[dict[str, bytes]] = {}

        def retained(self, *_: object) -> None: ...

        def take_over(self, _store: object, plan: IngestPlan, *_: object) -> IngestPlan:
            return plan

        def open_intake(self, *_: object) -> Intake:
            raise RuntimeError("no intake")

    election, failing = Leading(), cast(Any, Failing())
    monkeypatch.setattr(Running, "_election", lambda *_: election)
    running = Running(server.config(tmp_path), failing, Journal(io.StringIO()), RunOptions())
    with pytest.raises(RuntimeError, match="no intake"):
        running.run(failing, threading.Event())
    assert election.closed


def test_a_signing_key_that_is_lost_is_an_alarm(tmp_path: Path) -> None:
    """Devices that know the key refuse messages without a signature, so a lost key is an alarm.

    Where there never was a key, one line at the start is enough.
    """
    journal = Journal(io.StringIO())
    running = Running(server.config(tmp_path), cast(Any, None), journal, RunOptions())
    with open_store(tmp_path / "s.sqlite") as store:
        assert running._sign(store) is None
        assert not journal.alarm_counts
        make_key(tmp_path / "signing.key")
        assert running._sign(store) is not None
        assert not journal.alarm_counts
        (tmp_path / "signing.key").unlink()
        assert running._sign(store) is None
    assert list(journal.alarm_counts) == [("", "unsigned")]


def test_before_a_campaign_has_begun_nothing_of_its_plan_is_applied() -> None:
    """The plan's file may change while the server still waits for room on the disk, or for the broker."""
    assert changes({}, server.plan(), None) == []


def test_insecure_beside_an_authority_is_a_mistake(tmp_path: Path) -> None:
    with refused("broker.insecure", "broker.ca_file", "TLS"):
        config(tmp_path, 'host = "x"\ninsecure = true\nca_file = "ca.crt"')


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        ('hosts = ["a::c"]', None),
        ('hosts = ["a", "b:70000"]', ("broker.hosts", "'b:70000'", "HOST:PORT")),
        ("hosts = [3]", ("broker.hosts", "[3]", "HOST:PORT")),
        ('hosts = ["a", "b"]', ("server.workers", 1, 2, "broker.hosts")),
        ('hosts = ["a", "b"]\n[server]\nworkers = 4', None),
        ('[store]\npath = "postgresql://u@h/d"\n[server]\nworkers = 9', ("server.partitions", 8)),
        (
            'hosts = ["a", "b", "c"]\n[store]\npath = "postgresql://u@h/d"',
            ("server.partitions", 8, 3),
        ),
        (
            'hosts = ["a", "b", "c"]\n[store]\npath = "postgresql://u@h/d"\n[server]\nworkers = 8',
            ("server.partitions", 8, 3),
        ),
    ],
)
def test_brokers_share_the_sessions_evenly(tmp_path: Path, lines: str, facts: tuple[object, ...] | None) -> None:
    if facts is None:
        assert config(tmp_path, lines).broker.hosts
    else:
        with refused(*facts):
            config(tmp_path, lines)


def test_each_broker_has_its_own_place(tmp_path: Path) -> None:
    lines = 'port = 1000\nhosts = ["127.0.0.1:2000", "::1", "[::1]:3000", "far.example"]\n[server]\nworkers = 4'
    addresses = external_addresses(config(tmp_path, lines))
    places = [(address.host, address.port, address.tls) for address in addresses]
    assert places == [
        ("127.0.0.1", 2000, False),
        ("::1", 1000, False),
        ("::1", 3000, False),
        ("far.example", 1000, True),
    ]
