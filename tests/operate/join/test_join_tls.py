"""TLS of the listener through which people join: files are renewed together, and a link can name the authority."""

import hashlib
import re
import shutil
import ssl
from pathlib import Path

import pytest

from undertone_aggregator.settings.broker_options import BrokerOptions
from undertone_aggregator.settings.join_options import JoinOptions
from undertone_operate.fleet.authority import private_authority, renew_server
from undertone_operate.join.tls import JoinTls, fingerprint, join_link
from undertone_shared.errors import Invalid

OPTIONS = JoinOptions(certificate="broker/server.crt", key="broker/server.key")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with an authority, and with a certificate by it for the listener."""
    private_authority(tmp_path / "tls", "localhost")
    (tmp_path / "broker").mkdir()
    for name in ("server.crt", "server.key"):
        shutil.copy(tmp_path / "tls" / name, tmp_path / "broker")
    return tmp_path


def tls_of(home: Path) -> JoinTls:
    return JoinTls(home, OPTIONS, BrokerOptions())


class Client:
    """A client of the listener, in memory, that trusts one authority."""

    def __init__(self, tls: JoinTls, authority: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority)
        here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.connection = context.wrap_bio(here, there, server_hostname="localhost")
        self._server = tls.context.wrap_bio(there, here, server_side=True)

    def begin(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self.connection.do_handshake()

    def finish(self) -> str:
        """Finish the handshake; return the serial number of the server's certificate."""
        with pytest.raises(ssl.SSLWantReadError):
            self._server.do_handshake()
        self.connection.do_handshake()
        shown = self.connection.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def test_a_renewed_certificate_is_used_by_the_next_handshake(home):
    tls, authority = tls_of(home), ssl.PEM_cert_to_DER_cert((home / "tls/ca.crt").read_text(encoding="utf-8"))
    before, during = Client(tls, authority), Client(tls, authority)
    before.begin()
    first = before.finish()
    assert not tls.renew()
    during.begin()
    renew_server(home, [])
    assert tls.renew()
    second = during.finish()
    assert second != first
    (home / "broker/server.key").write_text("no key", encoding="utf-8")
    with pytest.raises(Invalid, match="cannot be used"):
        tls.renew()
    assert not tls.renew(), "a refusal is said once"
    after = Client(tls, authority)
    after.begin()
    assert after.finish() == second


def test_a_link_names_the_authority_that_issued_the_listeners_certificate(home):
    authority = tls_of(home).authority
    assert authority is not None
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(authority)).hexdigest()
    assert fingerprint(authority) == digest
    assert join_link("https://a", "ABCD", authority) == f"https://a/join#ABCD.{digest}"
    assert re.fullmatch("[0-9a-f]{64}", digest)


def test_a_link_of_a_listener_with_another_certificate_names_no_authority(home, tmp_path):
    # Another home may have an authority of the same name.
    private_authority(tmp_path / "other", "localhost")
    shutil.copy(tmp_path / "other/ca.crt", home / "tls/ca.crt")
    tls = tls_of(home)
    assert tls.authority is None
    assert join_link("https://a", "ABCD", tls.authority) == "https://a/join#ABCD"
    (home / "tls/ca.crt").unlink()
    assert tls_of(home).authority is None


def test_a_bundle_gives_the_authority_that_issued_the_certificate(home, tmp_path):
    private_authority(tmp_path / "other", "localhost")
    own = (home / "tls/ca.crt").read_text(encoding="utf-8")
    (home / "tls/ca.crt").write_text((tmp_path / "other/ca.crt").read_text(encoding="utf-8") + own, encoding="utf-8")
    assert tls_of(home).authority == own
