"""`undertone authority renew` gives the server a new certificate. Devices that trust its authority notice nothing."""

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from cryptography import x509

from support.command import undertone
from support.waiting import wait_for
from undertone_aggregator.base.log import Journal
from undertone_aggregator.mqtt.certificates import certificate_ends
from undertone_aggregator.mqtt.source import open_source
from undertone_aggregator.server.folder import Home
from undertone_aggregator.server.hang_up import watch_hang_up
from undertone_operate.examine.doctor import examine

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")


def run(*words: object, code: int = 0) -> str:
    done = undertone(*map(str, words))
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    run("init", tmp_path / "home", "--tls", "--host", "localhost", "--websocket-port", "0")
    run("campaign", "create", tmp_path / "home", "power", *CREATE)
    return Home(tmp_path / "home")


def shown(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def serial_at(port: int, trusted: ssl.SSLContext) -> int:
    """The serial number of the certificate that the server at this port shows."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"").serial_number


def test_the_new_certificate_has_the_old_names_and_the_same_authority(home: Home) -> None:
    place = home.folder / "broker/server.crt"
    before = shown(place)
    row = json.loads(run("authority", "renew", home.folder, "--json"))
    after = shown(place)
    assert row["names"] == ["localhost"]
    assert after.serial_number != before.serial_number
    after.verify_directly_issued_by(shown(home.folder / "tls/ca.crt"))
    assert certificate_ends(home.config("power"))["broker/server.crt"] == row["end"]
    assert (home.folder / "broker/server.key").stat().st_mode & 0o777 == 0o600
    row = json.loads(run("authority", "renew", home.folder, "--host", "new.example", "--host", "127.0.0.1", "--json"))
    assert row["names"] == ["new.example", "127.0.0.1"]


def test_a_running_endpoint_shows_the_new_certificate_to_a_device_of_the_old_one(home: Home, free_port) -> None:
    text = (home.folder / "server.toml").read_text(encoding="utf-8").replace("port = 8883", f"port = {free_port()}")
    (home.folder / "server.toml").write_text(text.replace('host = "0.0.0.0"', 'host = "127.0.0.1"'), encoding="utf-8")
    config = home.config("power")
    trusted = ssl.create_default_context(cafile=str(home.folder / "tls/ca.crt"))
    stop, journal = threading.Event(), Journal(StringIO())

    def serial() -> int:
        return serial_at(config.broker.port, trusted)

    with open_source(config, journal) as source:
        source.endpoint.listen()  # type: ignore[attr-defined]
        watch_hang_up(source, journal, stop, lambda: True)
        try:
            before = serial()
            assert before == shown(home.folder / "broker/server.crt").serial_number
            run("authority", "renew", home.folder)
            after = shown(home.folder / "broker/server.crt").serial_number
            wait_for(lambda: serial() == after, what="the new certificate")
            assert after != before
        finally:
            stop.set()


def test_a_running_mosquitto_of_the_folder_shows_the_new_certificate(
    tmp_path: Path, mosquitto_binary: str, free_port: Callable[[], int]
) -> None:
    folder, port = tmp_path / "home", free_port()
    run("init", folder, "--broker", f"mqtts://localhost:{port}")
    run("campaign", "create", folder, "power", *CREATE)
    trusted = ssl.create_default_context(cafile=str(folder / "tls/ca.crt"))
    stop, log = threading.Event(), StringIO()
    journal = Journal(log)
    command = [mosquitto_binary, "-c", str(folder.resolve() / "broker/mosquitto.conf")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as broker:
        try:
            wait_for(lambda: (folder / "broker/mosquitto.pid").is_file(), what="mosquitto")
            with open_source(Home(folder).config("power"), journal) as source:
                watch_hang_up(source, journal, stop, lambda: True)
                wait_for(lambda: "read again" in log.getvalue(), what="the reload at the start")
                # Mosquitto may be late for the reload at the start, and then reads the first new certificate anyway.
                for _ in range(2):
                    run("authority", "renew", folder)
                    after = shown(folder / "broker/server.crt").serial_number
                    wait_for(lambda after=after: serial_at(port, trusted) == after, what="the new certificate")
        finally:
            stop.set()
            broker.terminate()


def test_without_the_authoritys_key_nothing_changes(home: Home) -> None:
    (home.folder / "tls/ca.key").unlink()
    before = (home.folder / "broker/server.crt").read_bytes()
    assert "ca.key" in run("authority", "renew", home.folder, code=2)
    assert (home.folder / "broker/server.crt").read_bytes() == before
    (home.folder / "broker/server.crt").write_text("nothing", encoding="utf-8")
    assert "--host" in run("authority", "renew", home.folder, code=2)


def test_doctor_says_when_each_certificate_ends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def results() -> dict[str, str]:
        return {f.sentence.split()[0]: f.result for f in examine(home.folder) if f.check == "certificate"}

    assert results() == {"broker/server.crt": "ok", "tls/ca.crt": "ok"}
    end = certificate_ends(home.config("power"))["broker/server.crt"]
    monkeypatch.setattr("undertone_operate.examine.doctor.time.time", lambda: end - 59 * 86400)
    assert results() == {"broker/server.crt": "warning", "tls/ca.crt": "ok"}
