"""TLS with a private authority, at mosquitto and at a server's own endpoint, under CPython and MicroPython."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from support import micropython as mp
from support.private_broker import TLS, PrivateBroker
from undertone_aggregator.mqtt.credentials import write_passwords
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_device.host.paho_transport import PahoTransport
from undertone_device.setup import assembly, clock, tls_context
from undertone_device.setup.config import parse_config
from undertone_device.setup.tls_context import certificates, verified_context
from undertone_shared.errors import Invalid

PROBE = Path(__file__).with_name("tls_probe.py")
CONNECTED = "['connected', 'acked']"


@pytest.fixture(params=["cpython", "micropython"])
def probe(request):
    """Run tls_probe.py; return its output."""
    if request.param == "micropython":
        micropython = request.getfixturevalue("micropython")

        def run(*arguments):
            return micropython(PROBE, *arguments)
    else:

        def run(*arguments):
            path = os.pathsep.join(map(str, mp.SOURCES))
            return subprocess.run(
                [sys.executable, str(PROBE), *arguments],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                encoding="utf-8",
                timeout=60,
            )

    def outcome(port, ca, host="localhost"):
        result = run(host, str(port), str(TLS / ca))
        return result.stdout.strip() or result.stderr

    return outcome


@pytest.fixture(params=["mosquitto", "direct"])
def serving(request, tmp_path, free_port):
    """A function that starts a broker, or a server's own endpoint, with this certificate, and returns its port."""
    with contextlib.ExitStack() as stack:

        def serve(certificate):
            if request.param == "mosquitto":
                binary = request.getfixturevalue("mosquitto_binary")
                return stack.enter_context(PrivateBroker(binary, tmp_path, free_port(), certificate)).port
            return stack.enter_context(Committed(tmp_path, certificate)).port

        yield serve


class Committed:
    """A server's own endpoint, whose deliveries are acknowledged at once."""

    def __init__(self, folder, certificate):
        write_passwords(folder / "passwords", {"probe": "secret"})
        file = None if certificate is None else TLS / f"{certificate}.pem"
        key = None if certificate is None else TLS / f"{certificate}.key"
        listener = Listener(port=0, certificate=file, key=key)
        self._endpoint = Endpoint(listener, Gate(folder / "passwords"), Limits(), "undertone-test")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._commit)

    def __enter__(self):
        self._endpoint.__enter__()
        self._endpoint.listen()
        self._intake = self._endpoint.open("x", 3600)
        self.port = self._endpoint.port
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._endpoint.__exit__()

    def _commit(self):
        while not self._stop.is_set():
            self._intake.acknowledge(self._intake.take(0.05))


def test_the_right_authority_and_host(probe, serving):
    port = serving("localhost")
    assert probe(port, "ca.pem") == CONNECTED


def test_a_file_with_several_authorities(probe, serving, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes((TLS / "other-ca.pem").read_bytes() + (TLS / "ca.pem").read_bytes())
    assert probe(serving("localhost"), both) == CONNECTED


def test_der_as_boards_store_it(probe, serving, tmp_path):
    der = tmp_path / "ca.der"
    der.write_bytes(certificates((TLS / "ca.pem").read_bytes(), "ca.pem")[0])
    assert probe(serving("localhost"), der) == CONNECTED


def test_another_authority_is_refused(probe, serving):
    assert probe(serving("localhost"), "other-ca.pem").startswith("refused TLS")


def test_another_host_is_refused(probe, serving):
    assert probe(serving("elsewhere"), "ca.pem").startswith("refused TLS")


def test_a_broker_without_tls_is_refused(probe, serving):
    assert probe(serving(None), "ca.pem").startswith("refused")


# paho leaves the socket of a failed handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_paho_verifies_too(serving):
    def connect(port, ca):
        transport = PahoTransport(
            "localhost", port, "p", "probe", "secret", context=verified_context((TLS / ca).read_bytes())
        )
        transport.connect()
        events = []
        while not events:
            events = transport.poll(100)
        transport.close()
        return events

    port = serving("localhost")
    assert connect(port, "ca.pem") == [("connected",)]
    [(kind, why)] = connect(port, "other-ca.pem")
    assert kind == "lost"
    assert "CERTIFICATE_VERIFY_FAILED" in why
    gc.collect()


# --- what is refused before any connection


class _Policy:
    def __init__(self, insecure):
        self.insecure = insecure


def _broker(**broker):
    fields = {"name": "m", "broker": {"host": "h", **broker}, "campaigns": ["c"], "policy": "p", "state": "s"}
    return parse_config(json.dumps(fields).encode()).broker


def test_no_tls_only_by_the_policy():
    with pytest.raises(Invalid, match="insecure"):
        assembly.tls_context(_broker(), _Policy(False))
    assert assembly.tls_context(_broker(), _Policy(True)) is None


def test_an_insecure_policy_does_not_loosen_tls():
    context = assembly.tls_context(_broker(tls={"ca": str(TLS / "ca.pem")}), _Policy(True))
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.check_hostname


def test_the_systems_authorities_where_there_are_any(monkeypatch):
    assert assembly.tls_context(_broker(tls={}), _Policy(False)).verify_mode.name == "CERT_REQUIRED"
    monkeypatch.setattr(tls_context, "ssl", types.ModuleType("ssl"))
    with pytest.raises(Invalid, match=r"tls has no field ca"):
        assembly.tls_context(_broker(tls={}), _Policy(False))


def test_a_machine_that_cannot_verify_refuses(monkeypatch):
    """axTLS on the ESP8266 has no CERT_REQUIRED, and a board without TLS has no module ssl. Both refuse."""
    ca = (TLS / "ca.pem").read_bytes()
    for absent in (None, types.SimpleNamespace(SSLContext=object, PROTOCOL_TLS_CLIENT=0)):
        monkeypatch.setattr(tls_context, "ssl", absent)
        with pytest.raises(Invalid, match="cannot verify a server"):
            verified_context(ca)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nabc", b"-----BEGIN CERTIFICATE-----\n?a\n-----END CERTIFICATE-----"],
)
def test_what_is_no_certificate_is_refused(data):
    with pytest.raises(Invalid, match=r"^home/ca\.crt"):
        verified_context(data, "home/ca.crt")


def test_the_clock_is_the_same_everywhere(micropython):
    code = "from undertone_device.setup import clock; print(clock.unix_time())"
    assert abs(int(micropython(code).stdout) - clock.unix_time()) < 60
