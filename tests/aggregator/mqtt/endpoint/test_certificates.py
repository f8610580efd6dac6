"""Devices that show certificates at the direct endpoint."""

import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.direct import Device, open_endpoint, password, topic
from undertone_aggregator.mqtt import credentials
from undertone_aggregator.mqtt.credentials import ShownCertificate
from undertone_aggregator.mqtt.endpoint.endpoint import Endpoint
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.settings.broker_options import BrokerOptions, check_broker
from undertone_operate.fleet.authority import device_certificate, private_authority
from undertone_shared.errors import Invalid


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return private_authority(tmp_path / "tls", "localhost")


@pytest.fixture
def endpoint(tmp_path: Path, authority: Path) -> Iterator[Endpoint]:
    """An endpoint where load-1 shows a certificate and load-2 gives a password."""
    certificate = issue(tmp_path, authority, "load-1", "load-1")
    users = {"load-1": ShownCertificate(certificate), "load-2": password("load-2")}
    credentials.write_passwords(tmp_path / "passwords", users)
    listener = Listener(
        port=0, certificate=tmp_path / "tls/server.crt", key=tmp_path / "tls/server.key", authority=authority
    )
    with open_endpoint(tmp_path / "passwords", listener=listener) as made:
        yield made


def issue(folder: Path, authority: Path, name: str, file: str) -> str:
    certificate, key = device_certificate(authority, name)
    (folder / f"{file}.crt").write_text(certificate, encoding="utf-8")
    (folder / f"{file}.key").write_text(key, encoding="utf-8")
    return certificate


def device(endpoint: Endpoint, folder: Path, file: str | None, user: str, secret: str | None = None) -> Device:
    context = ssl.create_default_context(cafile=str(folder / "tls/ca.crt"))
    if file is not None:
        context.load_cert_chain(folder / f"{file}.crt", folder / f"{file}.key")
    return Device(endpoint.port, user, secret=secret, context=context)


def refusals(
    endpoint: Endpoint, folder: Path, file: str | None, user: str, secret: str | None = None
) -> dict[str, int] | None:
    """Return the refusals that are counted while this device connects, or None if its connection stays open."""
    before = Counter(endpoint.facts()["refused"])
    made = device(endpoint, folder, file, user, secret)
    ended = made.closed()
    made.close()
    return dict(Counter(endpoint.facts()["refused"]) - before) if ended else None


def test_a_device_enters_by_its_certificate_and_another_by_its_password(endpoint: Endpoint, tmp_path: Path) -> None:
    for file, user in (("load-1", "load-1"), (None, "load-2")):
        made = device(endpoint, tmp_path, file, user)
        made.wait("connected")
        made.publish([b"report"])
        deliveries = endpoint.take(60)
        assert [delivery.topic for delivery in deliveries] == [topic(user)]
        endpoint.acknowledge(deliveries)
        made.wait("acked")
        made.close()


def test_no_password_stands_for_a_certificate(endpoint: Endpoint, tmp_path: Path) -> None:
    line = (tmp_path / "passwords").read_text(encoding="utf-8").splitlines()[0].partition(":")[2]
    for guess in ("x", line, line.rpartition("$")[2]):
        assert refusals(endpoint, tmp_path, None, "load-1", guess) == {"password": 1}


def test_whose_name_is_not_its_own_is_refused(endpoint: Endpoint, authority: Path, tmp_path: Path) -> None:
    # Three certificates of the same authority: of a device that uses passwords, of an unknown device, and one of load-1
    # that the password file does not name.
    for number, name in enumerate(("load-2", "load-3", "load-1")):
        issue(tmp_path, authority, name, f"other-{number}")
        assert refusals(endpoint, tmp_path, f"other-{number}", name) == {"certificate": 1}
    # A device shows its own certificate and gives another device's name.
    assert refusals(endpoint, tmp_path, "load-1", "load-2") == {"certificate": 1}


def test_a_new_certificate_ends_the_old_ones_connection(endpoint: Endpoint, authority: Path, tmp_path: Path) -> None:
    made, other = device(endpoint, tmp_path, "load-1", "load-1"), device(endpoint, tmp_path, None, "load-2")
    made.wait("connected")
    other.wait("connected")
    renewed = ShownCertificate(issue(tmp_path, authority, "load-1", "renewed"))
    credentials.change_passwords(tmp_path / "passwords", {"load-1": renewed})
    endpoint.reload()
    assert made.closed()
    assert refusals(endpoint, tmp_path, "load-1", "load-1") == {"certificate": 1}
    again = device(endpoint, tmp_path, "renewed", "load-1")
    again.wait("connected")
    other.publish([b"x"])
    assert endpoint.take(60)
    for client in (made, again, other):
        client.close()


def test_what_is_wrong_is_said(tmp_path: Path, authority: Path) -> None:
    with pytest.raises(Invalid, match=r"expected broker\.certificate and broker\.key"):
        check_broker(BrokerOptions(mode="direct", passwords="passwords", ca_file="ca.crt"), 1)
    (tmp_path / "nothing.crt").write_text("nothing", encoding="utf-8")
    listener = Listener(
        certificate=authority.with_name("server.crt"),
        key=authority.with_name("server.key"),
        authority=tmp_path / "nothing.crt",
    )
    with pytest.raises(Invalid, match=r"the authority .* cannot be used"):
        listener.context()
