"""Devices move to another campaign, group or server: what a signed hand-over asks, and how the folder changes."""

import json
import os
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.campaign.binding import open_campaign
from undertone_aggregator.campaign.handover import HandoverFile, leaving, read_handover, signed_handover
from undertone_aggregator.mqtt.credentials import servers_names
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.signing import read_key
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.groups import read_groups
from undertone_aggregator.store.inventory import refused_keys
from undertone_aggregator.store.store import open_store
from undertone_shared import handover
from undertone_shared.ed25519 import verify
from undertone_shared.errors import Invalid
from undertone_shared.handover import device_key
from undertone_shared.topics import report_topic

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")


def run(*words: object, code: int = 0) -> str:
    done = undertone(*map(str, words))
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder = tmp_path / "home"
    run("init", folder, "--host", "old.example")
    (folder / "groups.csv").write_text("device,group\n", encoding="utf-8")
    for name in ("power", "heat"):
        run("campaign", "create", folder, name, *CREATE, "--set", "groups=groups.csv")
    run("devices", "add", 2, "--home", folder, "--campaign", "power")
    run("devices", "add", 1, "--home", folder, "--campaign", "heat")
    return Home(folder)


def settings(home: Home, campaign: str, device: str) -> dict:
    return json.loads((home.fleet(campaign) / "devices" / device / "device.json").read_text(encoding="utf-8"))


def test_a_fleet_goes_to_another_address(home):
    run("move", home.folder, "new.example:9999")
    for campaign, device in (("power", "power-001"), ("power", "power-002"), ("heat", "heat-001")):
        assert settings(home, campaign, device)["broker"]["host"] == "new.example"
        assert settings(home, campaign, device)["broker"]["port"] == 9999
        fields = read_handover(home.folder, campaign)
        assert fields["all"] == {"host": "new.example", "port": 9999}
        body, signature = handover.split(signed_handover(home.folder, campaign))
        key = bytes.fromhex(read_key(home.folder / "signing.key").public)
        assert verify(key, handover.digest_of(body), signature)
    broker = home.config("power").broker
    assert (broker.reached_as, broker.port) == ("new.example", 9999)
    run("devices", "add", 1, "--home", home.folder, "--campaign", "heat")
    assert settings(home, "heat", "heat-002")["broker"]["host"] == "new.example"


def test_an_endpoint_without_tls_is_not_announced_to_other_machines(tmp_path):
    folder = tmp_path / "home"
    run("init", folder)
    run("campaign", "create", folder, "power", *CREATE)
    run("devices", "add", 1, "--home", folder, "--campaign", "power")
    before = (folder / "server.toml").read_text(encoding="utf-8")
    refused = run("move", folder, "new.example", code=2)
    assert "new.example needs broker.host, broker.certificate and broker.key" in refused
    assert (folder / "server.toml").read_text(encoding="utf-8") == before
    run("move", folder, "127.0.0.1:9999")
    assert settings(Home(folder), "power", "power-001")["broker"]["port"] == 9999


def test_a_move_says_what_phones_need(tmp_path):
    run("init", tmp_path / "home", "--host", "old.example", "--join-port", 8444)
    run("campaign", "create", tmp_path / "home", "power", *CREATE)
    assert "https://old.example:8444" in run("move", tmp_path / "home", "new.example")


def test_the_endpoints_certificate_has_both_names(home):
    from cryptography import x509

    run("move", home.folder, "new.example")
    shown = x509.load_pem_x509_certificate((home.folder / "broker/server.crt").read_bytes())
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["new.example", "old.example"]
    authority = x509.load_pem_x509_certificate((home.folder / "tls/ca.crt").read_bytes())
    shown.verify_directly_issued_by(authority)


def test_each_move_has_a_greater_number(home):
    run("move", home.folder, "new.example")
    first = read_handover(home.folder, "power")["number"]
    run("move", home.folder, "newer.example")
    assert read_handover(home.folder, "power")["number"] > first


def test_a_device_goes_to_another_campaign_and_may_report_to_both(home):
    run("devices", "move", "power-002", "--home", home.folder, "--campaign", "power", "--to", "heat")
    assert settings(home, "heat", "power-002")["campaigns"] == ["heat"]
    agreed = json.loads((home.fleet("heat") / "devices/power-002/policy.json").read_text(encoding="utf-8"))["agreed"]
    assert read_handover(home.folder, "power")["devices"] == {
        device_key("power", "power-002"): {"campaigns": ["heat"], "agreed": [agreed]}
    }
    assert leaving(home.folder, ["power-001", "power-002"]) == {"power-002": ["power"]}
    rules = (home.broker / "access").read_text(encoding="utf-8").splitlines()
    own = rules[rules.index("user power-002") + 1 :][:2]
    prefix = home.config("power").broker.prefix
    assert set(own) == {f"topic write {report_topic(prefix, name, 'power-002')}" for name in ("power", "heat")}
    for name, state in (("power", "moved"), ("heat", "active")):
        with open_store(home.config(name).store_url, campaign=name) as store:
            assert store.devices()["power-002"].state == state
            assert refused_keys(store.devices().values()) == frozenset()
    assert "moved" in run("devices", "rotate", "power-002", "--home", home.folder, "--campaign", "power", code=2)
    assert "power-003" in run("devices", "add", 1, "--home", home.folder, "--campaign", "power")
    rules = (home.broker / "access").read_text(encoding="utf-8")
    assert report_topic(prefix, "power", "power-002") in rules, "what is under way still counts"


def test_a_device_whose_policy_does_not_allow_it_stays(home):
    path = home.fleet("power") / "devices/power-001/policy.json"
    before = json.loads(path.read_text(encoding="utf-8"))
    assert before["handover"] is True
    for change, word in (({"handover": False}, "hand-over"), ({"cap": [1, 1]}, "refuses heat")):
        path.write_text(json.dumps(before | change), encoding="utf-8")
        said = run("devices", "move", "power-001", "--home", home.folder, "--campaign", "power", "--to", "heat", code=2)
        assert word in said
        assert settings(home, "power", "power-001")["campaigns"] == ["power"]
    assert leaving(home.folder, ["power-001"]) == {}
    path.write_text(json.dumps(before | {"handover": False}), encoding="utf-8")
    assert "2 of 3 devices" in run("move", home.folder, "new.example")


def test_a_device_goes_to_another_group(home):
    at = ("--home", home.folder, "--campaign", "power")
    for group in ("north", "south"):
        run("devices", "move", "power-001", *at, "--group", group)
        assert read_groups(home.folder / "groups.csv") == {"power-001": group}
        assert json.loads(run("devices", "show", "power-001", *at, "--json"))["group"] == group
    run("devices", "move", "power-001", *at, "--group", "all")
    assert read_groups(home.folder / "groups.csv") == {}
    assert "--to" in run("devices", "move", "power-001", *at, code=2)
    assert "status" in run("devices", "move", "power-001", *at, "--group", "status", code=2)


def test_the_server_reads_a_hand_over_when_it_changes(home):
    file = HandoverFile(home.folder, "power")
    assert not file.changed()
    run("move", home.folder, "new.example")
    assert file.changed()
    assert file.signed == signed_handover(home.folder, "power")
    assert not file.changed()
    for number, damaged in enumerate(("{}\nnothing", "{}", "{}\nabcd")):
        (home.folder / "handovers/power").write_text(damaged, encoding="utf-8")
        os.utime(home.folder / "handovers/power", (number, number))
        with pytest.raises(Invalid, match="is not a signature: restore the file"):
            file.changed()
    (home.folder / "handovers/power").write_bytes(b"\xff\n")
    with pytest.raises(Invalid, match="handovers/power is not UTF-8 text"):
        file.changed()


def test_from_an_external_broker_to_the_servers_own_endpoint(tmp_path):
    folder = tmp_path / "home"
    run("init", folder, "--broker", "mqtts://broker.example")
    run("campaign", "create", folder, "power", *CREATE)
    run("devices", "add", 1, "--home", folder)
    home = Home(folder)
    assert home.config("power").broker.source.broker
    run("move", folder, "server.example:8884", "--endpoint")
    broker = home.config("power").broker
    assert not broker.source.broker
    assert (broker.reached_as, broker.port, broker.password_file) == ("server.example", 8884, None)
    assert (folder / str(broker.certificate)).is_file()
    gate = Gate(folder / broker.passwords, servers_names(), folder / str(broker.access))
    password = (home.fleet("power") / "devices/power-001/password").read_text(encoding="utf-8").strip()
    assert gate.admits("power-001", password)
    assert settings(home, "power", "power-001")["broker"]["host"] == "server.example"
    assert read_handover(folder, "power")["all"] == {"host": "server.example", "port": 8884}
    assert "already" in run("move", folder, "server.example", "--endpoint", code=2)


def test_a_move_before_there_is_a_campaign_is_refused(tmp_path):
    run("init", tmp_path / "home")
    assert "no campaign" in run("move", tmp_path / "home", "new.example", code=2)


def test_the_broadcast_carries_the_hand_over(home, tmp_path):
    """The test follows the hand-over from the command to the message that devices receive."""
    from io import StringIO

    from undertone_aggregator.base.log import Journal
    from undertone_aggregator.campaign.coordinator import Coordinator
    from undertone_shared.campaign import handover_of

    class Published:
        def __init__(self):
            self.messages = {}

        def publish(self, topic, payload, *, again=False, permitted=None):
            self.messages[topic] = payload

    config, out = home.config("power"), Published()
    with open_store(config.store_url, campaign="power") as store:
        seed = open_campaign(store, config.campaign, config.stream)
        key = read_key(home.folder / "signing.key")
        coordinator = Coordinator(config, seed, store, out, Journal(StringIO()), sign=key.sign)
        now = 1_800_000_000
        coordinator.tick(now)
        topic = f"{config.broker.prefix}/power/config"
        assert bytes(handover_of(out.messages[topic])) == b""
        run("move", home.folder, "new.example")
        coordinator.tick(now + 1)
        assert bytes(handover_of(out.messages[topic])) == signed_handover(home.folder, "power") != b""
