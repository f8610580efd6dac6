import json
import ssl
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509 import verification

from undertone_aggregator.mqtt.signing import ensure_key
from undertone_aggregator.settings.config import parse_config
from undertone_device.core.units import UNIT, epsilon_units
from undertone_device.mqtt.client import Platform
from undertone_device.setup import assembly
from undertone_device.setup.config import read_config
from undertone_operate.fleet.authority import private_authority
from undertone_operate.fleet.device_files import (
    Target,
    life_sentence,
    make_policy,
    outbox_for,
    reports_in_a_life,
    signers,
    target_of,
    write_device,
)
from undertone_operate.fleet.read_devices import read_provisioned
from undertone_shared.errors import Invalid
from undertone_shared.topics import shard

FILES = ["ca.crt", "ca.key", "server.crt", "server.key"]
CAMPAIGN = """
[broker]
port = 4711
[campaign]
name = "demo"
sensor = "load"
unit = "Wh"
bound = 10000
slot_seconds = 1800
epsilon = 1
"""


@pytest.fixture
def config(tmp_path):
    return parse_config(CAMPAIGN, tmp_path)


def written(config, folder, count=3, authority=None, target=None, outbox=None):
    """Write the files of ``count`` devices into this folder. Return the devices' secrets by name."""
    target = target or Target("127.0.0.1", 4711, authority)
    ensure_key(config.path(config.server.signing_key))
    policy = json.dumps(make_policy(config.campaign, insecure=target.authority is None, signers=signers(config)))
    (folder / "devices").mkdir(parents=True, mode=0o700)
    names = [f"load-{number:03d}" for number in range(1, count + 1)]
    return {name: write_device(config, name, folder / "devices" / name, target, policy, outbox) for name in names}


def test_devices_can_read_their_files(config, tmp_path):
    passwords = written(config, tmp_path / "out")
    member = read_config(str(tmp_path / "out/devices/load-002/device.json"))
    assert (member.name, member.broker.port, member.campaigns) == ("load-002", 4711, ("demo",))
    assert assembly.read_password(member.broker) == passwords["load-002"]
    policy = assembly.read_policy(member)
    assert policy.sensor == "load"
    assert policy.insecure
    # The policy's cap p/q is e^ε for ε = 1, to six digits.
    p, q = policy.cap
    assert 2.71828 < p / q < 2.718282
    assert [member.name for member in read_provisioned(tmp_path / "out")] == list(passwords)
    assert len(set(passwords.values())) == 3


def test_each_device_gets_the_broker_of_its_shard(tmp_path):
    hosts = 'mode = "external"\npassword_file = "p"\nhosts = ["127.0.0.1:4711", "127.0.0.1:4712"]'
    config = parse_config(CAMPAIGN.replace("port = 4711", f"{hosts}\n[server]\nworkers = 2"), tmp_path)
    names = written(config, tmp_path / "out", 20, target=target_of(config))
    ports = {name: read_config(str(tmp_path / f"out/devices/{name}/device.json")).broker.port for name in names}
    assert ports == {name: 4711 + shard(name) % 2 for name in names}
    assert set(ports.values()) == {4711, 4712}
    # A simulated fleet connects to the same ports.
    assert {member.name: member.place[1] for member in read_provisioned(tmp_path / "out")} == ports


def test_an_absence_of_the_server_sizes_what_devices_keep(config, tmp_path):
    plan = config.campaign
    for stride, seconds, reports in ((1, 1800, 2), (1, 2 * 86400, 97), (7, 2 * 86400, 15), (1, 1, 2)):
        window = None if stride == 1 else (stride - 1) * plan.slot_seconds
        assert outbox_for(replace(plan, window=window), seconds) == reports
    written(config, tmp_path / "out", 1, outbox=97)
    member = read_config(str(tmp_path / "out/devices/load-001/device.json"))
    platform = Platform(lambda: 0, lambda: 0, lambda _: None)
    client = assembly.make_client(member, assembly.read_policy(member), None, platform)
    assert client.reporter.ledger.outbox.capacity == member.outbox == 97


@pytest.mark.parametrize(
    ("slot_seconds", "absence", "sentence"),
    [
        (1800, 2 * 86400 + 1, "absence is 172801 s, expected 1 to 172800 s, because the server"),
        (3600, 96 * 3600 + 1, "expected 1 to 345600 s"),
        (
            5,
            86400,
            "in which a device may draw 17281 reports, expected at most 4096: for a longer absence,",
        ),
        (1800, 0, "absence is 0 s"),
    ],
)
def test_an_absence_that_no_outbox_covers_is_refused(config, slot_seconds, absence, sentence):
    with pytest.raises(Invalid) as caught:
        outbox_for(replace(config.campaign, slot_seconds=slot_seconds), absence)
    assert sentence in str(caught.value)


def test_secrets_are_private(config, tmp_path):
    written(config, tmp_path / "out")
    private = [f"devices/load-001/{name}" for name in ("device.json", "policy.json", "password")]
    assert {(tmp_path / "out" / name).stat().st_mode & 0o777 for name in private} == {0o600}
    assert (tmp_path / "out/devices").stat().st_mode & 0o777 == 0o700


def test_the_policy_allows_the_campaign_and_no_more(config):
    policy = make_policy(config.campaign, insecure=False, signers=["00" * 32], boots_per_day=9)
    assert policy["boots_per_day"] == 9
    assert policy["slot_seconds"] == 1800
    assert policy["theta"] == [1, 10000]
    assert policy["reports_per_period"] == 48
    with pytest.raises(Invalid, match="boots_per_day"):
        make_policy(config.campaign, insecure=False, signers=["00" * 32], boots_per_day=0)


def test_a_policy_bounds_a_life_by_the_plans_reports_and_a_tenth(config):
    for window in (None, 86400):
        plan = replace(config.campaign, window=window)
        policy = make_policy(plan, insecure=False, signers=["00" * 32])
        reports = reports_in_a_life(plan)
        planned = -(-(sum(plan.rounds) + plan.report_slots) // plan.stride)
        waiting = -(-(policy["duration_seconds"] // plan.slot_seconds) // plan.stride)
        assert planned * 1.1 <= reports <= -(-waiting * 11 // 10)
        assert policy["lifetime"] == reports * epsilon_units(*policy["cap"])
        epsilon = policy["lifetime"] / 2**20
        assert f"epsilon = {epsilon:.2f} in its whole life, which is {reports} reports" in life_sentence(policy)
    assert "not in its whole life" in life_sentence(dict(policy, lifetime=0))
    both = dict(policy, lifetime=0, stream={"lifetime": UNIT // 2})
    assert life_sentence(both).endswith(
        "not in its whole life; on streams, it may spend rho = 0.50000 in its whole life"
    )


@pytest.mark.parametrize("host", ["broker.example", "127.0.0.1"])
def test_private_authority(tmp_path, host):
    authority = private_authority(tmp_path / "tls", host)
    root, leaf = (x509.load_pem_x509_certificate((tmp_path / "tls" / name).read_bytes()) for name in FILES[::2])
    builder = verification.PolicyBuilder().store(verification.Store([root]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    builder.build_server_verifier(names[0]).verify(leaf, [])
    assert str(names[0].value) == host
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("another.example")).verify(leaf, [])
    ssl.create_default_context(cafile=str(authority))
    assert (tmp_path / "tls/server.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == FILES


def test_devices_get_the_authority(config, tmp_path):
    authority = private_authority(tmp_path / "tls", "localhost")
    written(config, tmp_path / "out", 1, authority)
    folder = tmp_path / "out/devices/load-001"
    assert json.loads((folder / "device.json").read_text(encoding="utf-8"))["broker"]["tls"] == {"ca": "ca.crt"}
    member = read_config(str(folder / "device.json"))
    assert assembly.tls_context(member.broker, assembly.read_policy(member)).verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("broker", "plain"),
    [
        ('mode = "external"\npassword_file = "p"', True),
        ('mode = "external"\npassword_file = "p"\nhost = "broker.example"\ninsecure = true', True),
        ('mode = "external"\npassword_file = "p"\nca_file = "ca.crt"', False),
        ('mode = "external"\npassword_file = "p"\nhost = "broker.example"\nca_file = "ca.crt"', False),
    ],
)
def test_devices_reach_a_broker_as_the_server_does(tmp_path, broker, plain):
    (tmp_path / "ca.crt").write_text("", encoding="utf-8")
    target = target_of(parse_config(CAMPAIGN.replace("port = 4711", broker), tmp_path))
    assert (target.authority is None, target.port) == ((True, 1883) if plain else (False, 8883))


@pytest.mark.parametrize(
    ("broker", "sentence"),
    [
        (
            'mode = "external"\npassword_file = "p"\nhost = "broker.example"',
            "ca_file is missing in",
        ),
        ('mode = "external"\npassword_file = "p"\nca_file = "nowhere.crt"', "nowhere.crt is not a file"),
        (
            'host = "0.0.0.0"\nreached_as = "meters.example"\ncertificate = "c"\nkey = "k"\npasswords = "p"',
            "meters.example: .*ca.crt is missing",
        ),
    ],
)
def test_a_broker_elsewhere_needs_an_authority(tmp_path, broker, sentence):
    with pytest.raises(Invalid, match=sentence):
        target_of(parse_config(CAMPAIGN.replace("port = 4711", broker), tmp_path))
