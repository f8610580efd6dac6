"""Devices with certificates. Commands provision, rotate and revoke them, at a broker and at the server's endpoint."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from support.command import undertone
from support.paho_client import leave
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.source import open_source
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.hang_up import watch_hang_up

MOSQUITTO = """\
listener {port} 127.0.0.1
cafile {home}/tls/ca.crt
crlfile {home}/tls/ca.crl
certfile {home}/broker/server.crt
keyfile {home}/broker/server.key
require_certificate true
use_identity_as_username true
acl_file {home}/broker/access
user root
"""


class Site:
    """Commands for one fleet, and the endpoint or broker to which its devices connect."""

    def __init__(self, folder: Path, port: int) -> None:
        self.home = folder / "home"
        self.fleet = self.home / "fleets/load"
        self.port = port
        self.mosquitto: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> None:
        at = ["--home", str(self.home)] if words[0] == "devices" else []
        done = undertone(*words, *at)
        assert done.returncode == 0, done.stderr
        if self.mosquitto is not None:
            os.kill(self.mosquitto.pid, signal.SIGHUP)

    def connect(self, device: Path) -> "Client | None":
        """A device's connection, or None if the device is not let in."""
        try:
            client = Client(device, self.port)
        except OSError:
            return None
        if client.refused:
            client.close()
            return None
        return client

    def lets_in(self, device: Path) -> bool:
        client = self.connect(device)
        if client is not None:
            client.close()
        return client is not None


class Client:
    """A connection with a device's certificate and without a user name. ``out``: the connection was ended."""

    def __init__(self, device: Path, port: int) -> None:
        self.out = threading.Event()
        self.refused = True
        answered = threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, device.name, reconnect_on_failure=False)
        self._client.tls_set(str(device / "ca.crt"), str(device / "device.crt"), str(device / "device.key"))

        def connected(_c: object, _d: object, _f: object, code: paho.ReasonCode, _p: object) -> None:
            self.refused = code.is_failure
            answered.set()

        def ended(*_: object) -> None:
            self.out.set()
            answered.set()

        self._client.on_connect = connected
        self._client.on_disconnect = ended
        self._client.connect("localhost", port)
        self._client.loop_start()
        assert answered.wait(30)

    def close(self) -> None:
        leave(self._client)


@contextlib.contextmanager
def mosquitto(site: Site, binary: str) -> Iterator[None]:
    config = site.home / "certificates.conf"
    config.write_text(MOSQUITTO.format(port=site.port, home=site.home), encoding="utf-8")
    site.mosquitto = subprocess.Popen([binary, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        site.mosquitto.kill()
        site.mosquitto.wait()


@contextlib.contextmanager
def endpoint(site: Site, folder: Path) -> Iterator[None]:
    stop = threading.Event()
    with (
        open(folder / "log", "w", encoding="utf-8") as log,
        open_source(Home(site.home).config("load"), Journal(log)) as source,
    ):
        source.endpoint.listen()  # type: ignore[attr-defined]
        watch_hang_up(source, Journal(log), stop, lambda: True)
        yield
        stop.set()


@pytest.fixture(params=["direct", pytest.param("mosquitto", marks=pytest.mark.broker)])
def site(request: pytest.FixtureRequest, tmp_path: Path, free_port, mosquitto_binary: str) -> Iterator[Site]:
    made = Site(tmp_path, free_port())
    address = ("--host", "localhost", "--port", str(made.port), "--websocket-port", "0")
    made.command("init", str(made.home), "--tls", "--certificates", *address)
    plan = ("--sensor", "load", "--unit", "Wh", "--bound", "10000", "--epsilon", "1", "--slot-seconds", "60")
    made.command("campaign", "create", str(made.home), "load", *plan)
    made.command("devices", "add", "3")
    with endpoint(made, tmp_path) if request.param == "direct" else mosquitto(made, mosquitto_binary):
        yield made


@pytest.mark.slow_but("direct")
def test_a_certificate_is_rotated_and_revoked(site: Site, tmp_path: Path) -> None:
    own, stolen = (site.fleet / "devices" / f"load-00{number}" for number in (1, 2))
    wait_for(lambda: site.lets_in(own))
    before = tmp_path / "before" / own.name
    shutil.copytree(own, before)
    connected = site.connect(own)
    assert connected is not None

    site.command("devices", "rotate", "load-001")
    wait_for(lambda: not site.lets_in(before))
    wait_for(lambda: site.lets_in(own))
    if site.mosquitto is None:
        assert connected.out.wait(60), "the connection with the old certificate is ended"
    connected.close()
    assert (own / "device.key").stat().st_mode & 0o077 == 0

    # After a second rotation, the first certificate is still refused.
    site.command("devices", "rotate", "load-001")
    wait_for(lambda: site.lets_in(own))
    assert not site.lets_in(before)

    assert site.lets_in(stolen)
    site.command("devices", "revoke", "load-002")
    wait_for(lambda: not site.lets_in(stolen))
    assert site.lets_in(site.fleet / "devices/load-003")

    site.command("devices", "add", "1")
    wait_for(lambda: site.lets_in(site.fleet / "devices/load-004"))


def test_a_certificate_of_another_authority_is_none(site: Site, tmp_path: Path) -> None:
    from undertone_operate.fleet.authority import device_certificate, private_authority

    other = tmp_path / "other" / "load-001"
    shutil.copytree(site.fleet / "devices/load-001", other)
    wait_for(lambda: site.lets_in(other))
    certificate, key = device_certificate(private_authority(tmp_path / "tls", "localhost"), "load-001")
    (other / "device.crt").write_text(certificate, encoding="utf-8")
    (other / "device.key").write_text(key, encoding="utf-8")
    assert not site.lets_in(other)
