"""The figures of data and battery on the page about firmware are those that the code gives."""

import re
import ssl
from pathlib import Path

import pytest

import undertone
from support.micropython import REPO
from undertone_device.mqtt.packets import DEFAULT_KEEPALIVE
from undertone_device.setup.tls_context import verified_context
from undertone_operate.fleet.authority import private_authority
from undertone_simulator.planning.traffic import Traffic

TEXT = (REPO / "docs/firmware.md").read_text(encoding="utf-8")
SECTION = " ".join(TEXT.partition("### Data and battery\n")[2].partition("\n### ")[0].split())


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return undertone.plan(devices=100, epsilon=1, campaigns=1).traffic


def test_the_table_has_what_plan_says(traffic: Traffic) -> None:
    assert f"each half-hour | {traffic.reports} | {traffic.bytes:,} |" in SECTION
    assert f"(`--window 24h`) instead | about 1 | {traffic.bytes // traffic.reports} |" in SECTION
    assert f"copies of the campaign | 24 | {traffic.campaign_bytes:,} |" in SECTION
    pings = 86400 // (DEFAULT_KEEPALIVE // 2)
    assert f"`keepalive` ({DEFAULT_KEEPALIVE} s) of silence, at most | {pings:,} | {traffic.ping_bytes:,} |" in SECTION


def test_the_sums_add_up(traffic: Traffic) -> None:
    connected = traffic.bytes + traffic.campaign_bytes + traffic.ping_bytes
    assert f"up to {round(connected / 1000)} KB a day" in SECTION
    assert f"48 wakes of 5 s at 100 mA take {48 * 5 * 100 / 3600:.1f} mAh a day" in SECTION
    wake = sum(map(float, stated())) * 1000 / 2 + (traffic.bytes + 2 * traffic.campaign_bytes) / 48
    assert f"some {round(wake / 1000)} KB for each slot, or {48 * wake / 1e6:.1f} MB a day" in SECTION


def stated() -> tuple[str, str]:
    found = re.search(r"handshake \(([\d.]+) to ([\d.]+) KB", SECTION)
    assert found
    return found[1], found[2]


def handshake(folder: Path, version: ssl.TLSVersion) -> int:
    """The bytes of a handshake between a device and a server with a certificate of the server's own authority."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.maximum_version = version
    client = verified_context((folder / "ca.crt").read_bytes())
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    from_client, from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, from_client, server_hostname="localhost")
    other = server.wrap_bio(to_server, from_server, server_side=True)
    done, total = set(), 0
    while len(done) < 2:
        for side in (one, other):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
        for source, target in ((from_client, to_server), (from_server, to_client)):
            data = source.read()
            total += target.write(data)
    return total


def test_a_handshake_takes_as_many_bytes(tmp_path: Path) -> None:
    private_authority(tmp_path / "tls", "localhost")
    for version, kilobytes in zip((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3), stated(), strict=True):
        # An OpenSSL from 3.5 on offers a post-quantum key as well: 2.3 KB more.
        assert 0.9 * float(kilobytes) < handshake(tmp_path / "tls", version) / 1000 < float(kilobytes) + 2.5
