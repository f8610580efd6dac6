"""Links, units, readings, and the files that a server sends. Home Assistant is not needed here."""

import importlib
import json
import re
from fractions import Fraction

import pytest

from support import integration_parts
from support.factory import policy_of
from undertone_device.host.words import read_words
from undertone_shared import policy
from undertone_shared.errors import Invalid

links = importlib.import_module(f"{integration_parts.PACKAGE}.links")
units = importlib.import_module(f"{integration_parts.PACKAGE}.units")
participation = importlib.import_module(f"{integration_parts.PACKAGE}.participation")

CODE = "ABCD-EFGH-IJKL-MNOP-QRST-UVWX-YZ"
PRINT = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "base", "fingerprint"),
    [
        (f"https://meters.example.org:8444/join#{CODE}", "https://meters.example.org:8444", ""),
        (f"  https://meters.example.org/sub/join/#{CODE.lower()}\n", "https://meters.example.org/sub", ""),
        (f"https://[2001:db8::1]:8444/join#{CODE}.{PRINT}", "https://[2001:db8::1]:8444", PRINT),
        (f"http://127.0.0.1:8444/join#{CODE}", "http://127.0.0.1:8444", ""),
    ],
)
def test_a_link_is_taken_apart(text, base, fingerprint):
    link = links.Link.parse(text)
    assert (link.base, link.code, link.fingerprint) == (base, CODE.replace("-", ""), fingerprint)
    # The folder is the same, however the code was typed, and its name does not reveal the code.
    assert link.folder == links.Link.parse(f"https://elsewhere.example/join#{CODE.replace('-', ' ')}").folder
    assert link.folder not in CODE.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "meters.example.org/join#" + CODE,
        f"http://meters.example.org/join#{CODE}",
        f"http://127.0.0.1/join#{CODE}.{PRINT}",
        f"https://meters.example.org/#{CODE}",
        "https://meters.example.org/join",
        "https://meters.example.org/join#ABCD",
        f"https://meters.example.org/join#{CODE}.",
        f"https://meters.example.org/join#{CODE}.{PRINT[1:]}",
        f"https://meters.example.org/join#{CODE}.{PRINT.upper()}",
        f"https://meters.example.org/join#{CODE}.{PRINT}.{PRINT}",
        f"https://meters.example.org:port/join#{CODE}",
        f"https://[::1/join#{CODE}",
    ],
)
def test_what_is_no_link_is_refused(text):
    with pytest.raises(links.JoinError) as refusal:
        links.Link.parse(text)
    assert refusal.value.reason == "invalid_link"


@pytest.mark.parametrize(
    ("state", "unit", "wanted", "value"),
    [
        ("1234.567", "kWh", "Wh", 1234567),
        ("0.0005", "kWh", "Wh", 1),
        ("0.00049", "kWh", "Wh", 0),
        ("-0.0005", "kWh", "Wh", 0),
        ("1.5", "MWh", "kWh", 1500),
        ("3.6", "MJ", "Wh", 1000),
        ("1", "GJ", "kWh", 278),
        ("2.5", "m³", "L", 2500),
        ("1", "ft³", "mL", 28317),
        ("21.55", "°C", "dC", 216),
        ("-40", "°F", "°C", -40),
        ("72.5", "°F", "dC", 225),
        ("0", "°C", "K", 273),
        ("5e2", "W", "W", 500),
        ("0.00012345678901234567", "MWh", "Wh", 123),
        (".5", "kWh", "Wh", 500),
        ("1e-120", "kWh", "Wh", 0),
        ("7", "widgets", "widgets", 7),
    ],
)
def test_units_are_converted_exactly_and_rounded_half_up(state, unit, wanted, value):
    assert units.sample(state, unit, wanted) == value


@pytest.mark.parametrize(
    ("state", "unit", "wanted"),
    [
        ("warm", "°C", "dC"),
        ("nan", "kWh", "Wh"),
        ("1e999", "kWh", "Wh"),
        ("١٢", "kWh", "Wh"),
        ("12", "m³", "Wh"),
        ("12", None, "Wh"),
        ("2000000000", "Wh", "Wh"),
    ],
)
def test_what_is_no_reading_is_refused_and_not_quoted(state, unit, wanted):
    with pytest.raises(ValueError, match=r"the (state|unit)") as refusal:
        units.sample(state, unit, wanted)
    assert state not in str(refusal.value)


def test_every_unit_is_its_own_inverse():
    """A value that is converted from a unit to the same unit does not change."""
    for name, unit in units.UNITS.items():
        assert unit.factor > 0
        assert isinstance(unit.offset, Fraction)
        assert units.sample("12345", name, name) == 12345
        assert name in units.units_for(name)
    assert units.units_for("dC") == ["K", "dC", "°C", "°F"]


def test_a_meter_that_was_reset_continues_and_an_unavailable_one_is_no_sample():
    source = participation.StateSource("Wh", cumulative=True)
    for state in ("10.0", "10.5", "0.0", "0.25", "unavailable", "unknown", "0.5"):
        source.offer(state, "kWh")
    assert source.arrived() == [10000, 10500, 10500, 10750, 11000]
    assert source.arrived() == []
    source.offer("0.49", "kWh")
    assert source.arrived() == [10990], "a small step back is a correction"
    source.offer(None, None)
    assert "the entity has no state" in source.trouble
    source.offer("1", "m³")
    assert "m³" in source.trouble


@pytest.fixture
def files():
    """The files of a new device."""
    device = {
        "name": "meter-1",
        "broker": {"host": "127.0.0.1", "port": 1883, "password_file": "password"},
        "prefix": "undertone/v2",
        "campaigns": ["load"],
        "policy": "policy.json",
        "state": "state",
        "source": {"kind": "file", "path": "/etc/passwd", "seconds": 60},
    }
    return {"device.json": json.dumps(device), "policy.json": json.dumps(POLICY), "password": "secret\n"}


POLICY = policy_of(insecure=True, unit="Wh")


def joined_by(text=f"http://127.0.0.1:8444/join#{CODE}"):
    offer = {"operator": "The town", "campaign": "load", "about": None, "policy": POLICY}
    return participation.Joined(links.Link.parse(text), "0" * 64, offer)


def test_a_devices_files_are_stored_privately_without_a_source(files, tmp_path):
    joined = joined_by()
    assert joined.store(tmp_path / "home") == joined
    participation.store_files(tmp_path / "home", files, joined)
    assert "source" not in json.loads((tmp_path / "home/device.json").read_text(encoding="utf-8"))
    for path in (tmp_path / "home").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    # A second window with the same link gets the key that is already stored.
    assert participation.Joined(joined.link, "1" * 64, joined.offer).store(tmp_path / "home") == joined
    assert participation.Joined.read(tmp_path / "home") == joined
    (tmp_path / "home/join.json").write_text("{}", encoding="utf-8")
    assert participation.Joined.read(tmp_path / "home") is None
    participation.set_password(tmp_path / "home", "another")
    assert (tmp_path / "home/password").read_text(encoding="utf-8") == "another"
    for password in ("", "a\nb", "x" * 1025):
        with pytest.raises(Invalid):
            participation.set_password(tmp_path / "home", password)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "../../policy.json"),
        ("policy", "/etc/passwd"),
        ("state", "/root"),
        ("state", "../other/state"),
        ("broker.password_file", "../../../secrets.yaml"),
        ("broker.tls", {"ca": "/etc/ssl/ca.pem"}),
        ("broker.tls", {"ca": "ca.crt", "identity": "/etc/ssl/private/key"}),
        ("broker.host", "meters.example.org"),
        ("broker", "meters.example.org"),
    ],
)
def test_a_server_names_no_files_of_the_home_and_no_broker_without_tls(files, tmp_path, field, value):
    device = json.loads(files["device.json"])
    place, _, name = field.rpartition(".")
    (device[place] if place else device)[name] = value
    with pytest.raises(Invalid):
        participation.store_files(tmp_path, files | {"device.json": json.dumps(device)}, joined_by())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "broker",
    [
        {"host": "m" * 254},
        {"host": "meters\u202eexample.org"},
        {"host": "meters\nexample.org"},
        {"host": 7},
        {"port": 0},
        {"port": 65536},
        {"port": "8883"},
        {"port": True},
        {"port": 10**400},
    ],
)
def test_what_a_server_says_of_itself_is_bounded_before_anything_is_stored(files, tmp_path, broker):
    device = json.loads(files["device.json"])
    device["broker"] |= {"host": "meters.example.org", "tls": {"ca": "ca.crt"}, **broker}
    with pytest.raises(Invalid):
        participation.store_files(tmp_path, files | {"device.json": json.dumps(device)}, joined_by())
    assert list(tmp_path.iterdir()) == []


def test_a_server_sends_no_further_files_and_leaves_none_out(files, tmp_path):
    for wrong in (
        files | {"../configuration.yaml": "x"},
        files | {"state": "x"},
        {name: text for name, text in files.items() if name != "policy.json"},
        files | {"device.json": "["},
        files | {"policy.json": "{}"},
    ):
        with pytest.raises(Invalid):
            participation.store_files(tmp_path, wrong, joined_by())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Invalid, match="tls"):
        participation.store_files(tmp_path, files, joined_by(f"https://127.0.0.1:8444/join#{CODE}"))


def test_no_policy_is_stored_but_the_one_that_was_shown(files, tmp_path):
    for change in ({"cap": [3, 1]}, {"cap": [2, 2]}, {"sensor": "gas"}, {"lifetime": 0}, {"insecure": 1}, {"unit": ""}):
        files["policy.json"] = json.dumps({**POLICY, **change})
        with pytest.raises(Invalid, match="not the one that was shown"):
            participation.store_files(tmp_path, files, joined_by())
    assert list(tmp_path.iterdir()) == []
    # The order of the fields does not matter.
    files["policy.json"] = json.dumps(dict(reversed(POLICY.items())))
    participation.store_files(tmp_path, files, joined_by())
    assert participation.stored(tmp_path, "en") == participation.shown(joined_by().offer, "en")


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ({}, {}, ""),
        ({}, {"epsilon": 1}, "epsilon"),
        ({"epsilon": 1}, {"epsilon": 1}, ""),
        ({"epsilon": 1}, {"epsilon": 1, "theta": 1}, "theta"),
        ({"epsilon": 1, "theta": 1}, {"epsilon": 2, "theta": 1}, "epsilon"),
    ],
)
def test_the_reason_of_a_refusal_is_the_one_whose_count_has_grown(before, now, reason):
    assert participation.newest_refusal(before, now) == reason


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_reason_to_refuse_a_campaign_has_words(language):
    table = re.split(r"^=+ =+$", policy.__doc__, flags=re.MULTILINE)[1]
    reasons = {line.split()[0] for line in table.splitlines() if line}
    assert set(read_words(language)["refused_campaigns"]) == reasons
