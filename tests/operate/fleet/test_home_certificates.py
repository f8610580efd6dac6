"""In a home of `undertone init --certificates`, devices log in by certificates from their first day to their last."""

import contextlib
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from support.command import undertone
from support.direct import Device
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.source import Source, open_source
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_device.mqtt.packets import ProtocolError
from undertone_operate.examine.doctor import examine

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")


def run(*words: object) -> None:
    done = undertone(*map(str, words))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def home(tmp_path: Path, free_port: Callable[[], int]) -> Home:
    folder = tmp_path / "home"
    ports = ("--port", free_port(), "--websocket-port", "0")
    run("init", folder, "--tls", "--certificates", "--host", "localhost", *ports)
    run("campaign", "create", folder, "power", *CREATE)
    run("devices", "add", "2", "--home", folder, "--campaign", "power")
    return Home(folder)


class Site:
    """The endpoint of a home, which runs without the home's campaigns. Devices connect to it."""

    def __init__(self, home: Home, source: Source, stack: contextlib.ExitStack) -> None:
        self._port = home.config("power").broker.port
        self._stack = stack
        self.facts = source.facts

    def connect(self, folder: Path) -> Device:
        """Connect with the certificate in a device's folder, and verify the server's certificate."""
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "device.crt", folder / "device.key")
        device = Device(self._port, folder.name.partition(".")[0], context=context)
        return self._stack.enter_context(contextlib.closing(device))


@pytest.fixture
def site(home: Home) -> Iterator[Site]:
    stop, journal = threading.Event(), Journal(StringIO())
    with contextlib.ExitStack() as stack, open_source(home.config("power"), journal) as source:
        source.endpoint.listen()  # type: ignore[attr-defined]
        watch_hang_up(source, journal, stop, lambda: True)
        yield Site(home, source, stack)
        stop.set()


def test_added_rotated_revoked_and_renewed_beside_a_running_endpoint(home: Home, site: Site) -> None:
    devices = home.folder / "fleets/power/devices"
    first, second = (site.connect(devices / name) for name in ("power-001", "power-002"))
    for device in (first, second):
        assert device.wait("connected")

    # If a device is added while the endpoint runs, it can log in once the endpoint has read the new entry.
    run("devices", "add", "1", "--home", home.folder, "--campaign", "power")

    def admitted() -> bool:
        try:
            return bool(site.connect(devices / "power-003").wait("connected"))
        except (ConnectionError, ProtocolError):
            # The endpoint has not read the new entry yet.
            return False

    wait_for(admitted, what="the login of a device that was added")

    # A new certificate ends the connection with the old one, which is refused from then on.
    shutil.copytree(devices / "power-001", home.folder / "power-001.old")
    run("devices", "rotate", "--home", home.folder, "--campaign", "power", "power-001")
    assert first.closed()
    assert site.connect(home.folder / "power-001.old").closed()
    again = site.connect(devices / "power-001")
    assert again.wait("connected")

    # A revocation has the same effect, even though the device still has its files.
    run("devices", "revoke", "--home", home.folder, "--campaign", "power", "power-002")
    assert second.closed()
    assert site.connect(devices / "power-002").closed()
    assert site.facts()["refused"]["removed"] == 2

    # When the server gets a new certificate, no connection ends, and devices verify the new one.
    run("authority", "renew", home.folder)
    renewed = ssl.PEM_cert_to_DER_cert((home.folder / "broker/server.crt").read_text(encoding="utf-8"))

    def shown() -> bytes | None:
        device = site.connect(devices / "power-003")
        assert device.wait("connected")
        assert isinstance(device.socket, ssl.SSLSocket)
        return device.socket.getpeercert(binary_form=True)

    wait_for(lambda: shown() == renewed, what="the new certificate")
    assert site.facts()["devices_online"] == 2
    assert site.facts()["refused"]["removed"] == 2


@pytest.mark.parametrize("name", ["tls/ca.key", "broker/server.key"])
def test_a_key_that_others_may_read_is_a_failure(home: Home, name: str) -> None:
    (home.folder / name).chmod(0o640)
    (finding,) = [finding for finding in examine(home.folder) if finding.result == "failure"]
    assert finding.check == "modes"
    assert name in finding.sentence
