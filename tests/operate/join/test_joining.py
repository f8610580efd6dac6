"""Joining by a code: the codes of a server's folder, what they offer, and how they are redeemed."""

import hashlib
import importlib
import io
import json
import re
import secrets
import shutil
import socket
import ssl
import time
from pathlib import Path

import pytest

from support.command import undertone
from undertone_aggregator.base.log import Journal
from undertone_aggregator.campaign.preview import epochs_of
from undertone_aggregator.mqtt.credentials import servers_names
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.passwords import read_passwords
from undertone_aggregator.server.folder import Home
from undertone_aggregator.settings.options import split_address
from undertone_aggregator.store.store import open_store
from undertone_device.host.consent import consent, offered, same_policy
from undertone_device.host.words import read_words
from undertone_operate.examine.doctor import examine
from undertone_operate.fleet.join_codes import (
    BOUND,
    EXPIRED,
    FILE,
    OPEN,
    REDEEMED,
    REVOKED,
    JoinCodes,
    code_text,
    parse_code,
)
from undertone_operate.fleet.lifetimes import allowed_reports
from undertone_operate.join.joining import REPEAT_SECONDS, UNKNOWN, USED, Joining, JoinRefused, Redemption
from undertone_operate.join.pages import PLAIN
from undertone_operate.join.server import join_pages
from undertone_shared.errors import Invalid

CREATE = ("--sensor", "load", "--unit", "Wh", "--bound", "1000", "--epsilon", "1")
NOW = int(time.time())
DAY = 86400


def run(*words: object, code: int = 0) -> str:
    done = undertone(*words)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def make_home(folder: Path, *options: str, campaign: str = "power") -> Home:
    run("init", folder, "--host", "meters.example", *options)
    run("campaign", "create", folder, campaign, *CREATE)
    return Home(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("made") / "home").folder


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Home:
    shutil.copytree(template, tmp_path / "home")
    return Home(tmp_path / "home")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


def codes_of(home: Home, count: int, campaign: str = "power", group: str = "all") -> list[bytes]:
    made = JoinCodes(home.folder).create(campaign, count, group, "", NOW, NOW + DAY)
    return [parse_code(text) for text in made]


def redemption(code: bytes) -> Redemption:
    return Redemption(code, secrets.token_bytes(32))


def refused(joining: Joining, asked: Redemption) -> str:
    (reply,) = joining.redeem([asked])
    assert isinstance(reply, JoinRefused), reply
    return reply.reason


def joined(joining: Joining, asked: Redemption) -> dict:
    (reply,) = joining.redeem([asked])
    assert not isinstance(reply, JoinRefused), reply
    return reply


def devices(home: Home, campaign: str = "power") -> list[str]:
    return [
        row["name"]
        for row in json.loads(run("devices", "list", "--home", home.folder, "--campaign", campaign, "--json"))
    ]


def test_a_code_is_read_as_people_write_it():
    code = secrets.token_bytes(16)
    text = code_text(code)
    for written in (text, text.lower(), text.replace("-", ""), text.replace("-", " "), text.replace("O", "0")):
        assert parse_code(written) == code
    for wrong in ("", text[:-1], text + "A", "a" * 101, None, 7, "ABCD-EFGH", "é" * 26, text[:-1] + "9"):
        with pytest.raises(Invalid) as error:
            parse_code(wrong)
        assert text[:-1] not in str(error.value)


def test_only_hashes_of_codes_are_stored(home):
    texts = JoinCodes(home.folder).create("power", 3, "all", "", NOW, NOW + DAY)
    data = (home.folder / FILE).read_bytes()
    for text in texts:
        assert parse_code(text) not in data
        assert text.encode() not in data
        assert text.replace("-", "").encode() not in data
    assert (home.folder / FILE).stat().st_mode & 0o777 == 0o600


def test_one_code_is_one_device_with_its_files(home):
    (code,) = codes_of(home, 1)
    asked = redemption(code)
    joining = Joining(home)
    reply = joined(joining, asked)
    assert reply["device"] == "power-001"
    assert sorted(reply["files"]) == ["ca.crt", "device.json", "password", "policy.json"]
    assert reply["addresses"]["mqtt"] == "mqtts://meters.example:8883"
    run("devices", "add", 1, "--home", home.folder)
    added = {
        path.name: path.read_text(encoding="utf-8") for path in (home.fleet("power") / "devices/power-002").iterdir()
    }
    assert sorted(added) == sorted(reply["files"])
    # The fields `agreed` and `until` are left out. They say what each household agreed to, and until when.
    own = dict.fromkeys(("agreed", "until"))
    assert json.loads(added["policy.json"]) | own == json.loads(reply["files"]["policy.json"]) | own
    assert added["device.json"] == reply["files"]["device.json"].replace("power-001", "power-002")
    gate = Gate(home.folder / "broker/passwords", servers_names(), home.folder / "broker/access")
    assert gate.admits("power-001", reply["files"]["password"].strip())
    assert devices(home) == ["power-001", "power-002"]


def test_the_address_of_mqtt_over_websocket(home):
    (code,) = codes_of(home, 1)
    addresses = joined(Joining(home), redemption(code))["addresses"]
    assert addresses == {"mqtt": "mqtts://meters.example:8883", "websocket": "wss://meters.example:8443/mqtt"}


def test_the_address_of_an_external_brokers_websocket(tmp_path, monkeypatch):
    # A clone has the app's MicroPython only after scripts/vendor.py has run.
    monkeypatch.setattr("undertone_operate.join.pages.phone_files", lambda websocket: {"index.html": b"<p>the app"})
    run("init", tmp_path / "home", "--broker", "mqtts://broker.example")
    run("campaign", "create", tmp_path / "home", "power", *CREATE)
    home = Home(tmp_path / "home")
    (code,) = codes_of(home, 1)
    assert joined(Joining(home), redemption(code))["addresses"]["websocket"] is None
    settings = home.folder / "server.toml"
    option = 'websocket_url = "wss://Broker.example:8084/mqtt"'
    settings.write_text(
        settings.read_text(encoding="utf-8").replace("\nuser =", f"\n{option}\nuser ="), encoding="utf-8"
    )
    home = Home(home.folder)
    (code,) = codes_of(home, 1)
    assert joined(Joining(home), redemption(code))["addresses"]["websocket"] == "wss://broker.example:8084/mqtt"
    pages = join_pages(home.broker_options, Journal(io.StringIO()))
    assert "connect-src 'self' wss://broker.example:8084;" in pages.policy


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--broker", "mqtts://broker.example"), "websocket_url"), (("--host", "a.example", "--certificates"), "browser")],
)
def test_no_app_is_served_where_no_phone_can_take_part(tmp_path, options, word):
    run("init", tmp_path / "home", *options)
    log = io.StringIO()
    assert join_pages(Home(tmp_path / "home").broker_options, Journal(log)) is PLAIN
    assert word in log.getvalue()


def test_the_servers_disk_holds_no_secret_of_a_device_that_joined(home):
    (code,) = codes_of(home, 1)
    password = joined(Joining(home), redemption(code))["files"]["password"].strip()
    for path in home.folder.rglob("*"):
        assert not path.is_file() or password.encode() not in path.read_bytes(), path


def test_the_same_key_gets_the_same_reply_and_no_other_key_any(home):
    (code,) = codes_of(home, 1)
    asked, clock = redemption(code), Clock()
    joining = Joining(home, clock)
    first = joined(joining, asked)
    assert joined(joining, asked) == first
    assert joined(Joining(home, clock), asked) == first
    assert refused(joining, redemption(code)) == USED
    clock.now += REPEAT_SECONDS + 1
    assert refused(joining, asked) == USED
    assert devices(home) == ["power-001"]


def test_a_code_in_one_batch_twice_is_one_device(home):
    (code,) = codes_of(home, 1)
    asked = redemption(code)
    first, second, other = Joining(home).redeem([asked, asked, redemption(code)])
    assert first == second
    assert isinstance(other, JoinRefused)
    assert other.reason == USED
    assert devices(home) == ["power-001"]


def test_unknown_expired_and_revoked_codes(home):
    first, second, third = codes_of(home, 3)
    clock, codes = Clock(), JoinCodes(home.folder)
    joining = Joining(home, clock)
    assert refused(joining, redemption(secrets.token_bytes(16))) == UNKNOWN
    assert codes.revoke([1], NOW) == [1]
    assert refused(joining, redemption(first)) == REVOKED
    reply = redemption(second)
    joined(joining, reply)
    assert codes.revoke([2], NOW) == []
    clock.now = NOW + DAY
    assert refused(joining, redemption(third)) == EXPIRED
    for code, reason in ((first, REVOKED), (second, USED), (third, EXPIRED), (bytes(16), UNKNOWN)):
        with pytest.raises(JoinRefused) as error:
            joining.offer(code)
        assert error.value.reason == reason
    joined(joining, reply)
    assert [code.state(clock.now) for code in codes.codes()] == [REVOKED, REDEEMED, EXPIRED]


def test_a_code_that_is_bound_but_has_no_device_can_be_revoked(home, monkeypatch):
    first, second = codes_of(home, 2)
    asked, late, codes = redemption(first), redemption(second), JoinCodes(home.folder)
    codes.bind([(first, asked.key)], NOW)
    assert [code.state(NOW) for code in codes.codes()] == [BOUND, OPEN]
    assert codes.revoke([1], NOW) == [1]
    assert refused(Joining(home), asked) == REVOKED
    # The code is revoked just before its device is made.
    promise = JoinCodes.promise
    monkeypatch.setattr(JoinCodes, "promise", lambda self, names: (self.revoke([2], NOW), promise(self, names)))
    assert refused(Joining(home), late) == REVOKED
    assert [code.state(NOW) for code in codes.codes()] == [REVOKED, REVOKED]
    assert devices(home) == []


def test_a_code_of_a_campaign_that_is_gone_is_revoked(home):
    (code,) = codes_of(home, 1)
    home.remove("power")
    assert refused(Joining(home), redemption(code)) == REVOKED
    with pytest.raises(JoinRefused):
        Joining(home).offer(codes_of(home, 1)[0])


@pytest.mark.parametrize("change", ["rotate", "revoke"])
def test_whose_device_was_changed_since_gets_no_old_secret(home, change):
    (code,) = codes_of(home, 1)
    asked = redemption(code)
    joined(Joining(home), asked)
    run("devices", change, "power-001", "--home", home.folder)
    assert refused(Joining(home), asked) == REVOKED


def test_only_the_key_of_a_device_lets_it_leave(home):
    code, other = codes_of(home, 2)
    asked, joining = redemption(code), Joining(home)
    joined(joining, asked)
    for wrong, reason in ((redemption(code), USED), (redemption(other), REVOKED), (redemption(bytes(16)), UNKNOWN)):
        with pytest.raises(JoinRefused) as error:
            joining.leave(wrong)
        assert error.value.reason == reason
    assert [joining.leave(asked) for _ in range(2)] == [{"device": "power-001"}] * 2
    rows = json.loads(run("devices", "list", "--home", home.folder, "--json"))
    assert [(row["name"], row["state"]) for row in rows] == [("power-001", "revoked")]
    assert refused(joining, asked) == REVOKED
    assert "power-001" not in read_passwords(home.folder / "broker/passwords")


def test_a_forgotten_devices_name_leaves_the_file(home):
    (code,) = codes_of(home, 1)
    asked = redemption(code)
    joined(Joining(home), asked)
    for step in ("revoke", "forget"):
        run("devices", step, "power-001", "--home", home.folder)
    assert b"power-001" not in (home.folder / FILE).read_bytes()
    assert refused(Joining(home), asked) == USED
    assert JoinCodes(home.folder).codes()[0].state(NOW) == REDEEMED


def test_devices_with_certificates_join(tmp_path):
    home = make_home(tmp_path / "home", "--certificates")
    (code,) = codes_of(home, 1)
    assert Joining(home).offer(code)["credentials"] == "certificate"
    asked = redemption(code)
    reply = joined(Joining(home), asked)
    assert sorted(reply["files"]) == ["ca.crt", "device.crt", "device.json", "device.key", "policy.json"]
    assert joined(Joining(home), asked) == reply
    assert not (home.fleet("power") / "devices/power-001/device.key").exists()
    run("devices", "rotate", "power-001", "--home", home.folder)
    assert refused(Joining(home), asked) == REVOKED


def test_groups(home):
    (home.folder / "groups.csv").write_text("device,group\n", encoding="utf-8")
    run("campaign", "create", home.folder, "heat", *CREATE, "--set", "groups=groups.csv")
    (code,) = codes_of(home, 1, "heat", "north")
    assert joined(Joining(home), redemption(code))["device"] == "heat-001"
    assert (home.folder / "groups.csv").read_text(encoding="utf-8").splitlines() == ["device,group", "heat-001,north"]


class Cut(BaseException):
    """Stands for kill -9: no code catches this exception."""


# Steps of a redemption. The test ends the redemption before and after each of them.
STEPS = (
    "undertone_operate.fleet.join_codes.JoinCodes.bind",
    "undertone_operate.fleet.join_codes.JoinCodes.promise",
    "undertone_operate.join.joining.write_folder",
    "undertone_operate.fleet.device_files._write",
    "undertone_operate.fleet.devices.FleetFiles._write_users",
    "undertone_operate.fleet.devices.credentials.change_passwords",
    "undertone_operate.fleet.devices.credentials.write_access_rules",
    "undertone_operate.fleet.join_codes.JoinCodes.redeemed",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_redemption_that_was_cut_is_ended_by_the_same_key(home, monkeypatch, step, after):
    (code,) = codes_of(home, 1)
    asked = redemption(code)
    place, name = step.rsplit(".", 1)
    parts = place.split(".")
    owner = importlib.import_module(".".join(parts[:2]))
    for part in parts[2:]:
        owner = getattr(owner, part)
    whole = getattr(owner, name)

    def cut(*args, **options):
        if after:
            whole(*args, **options)
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, cut)
        with pytest.raises(Cut):
            Joining(home).redeem([asked])
    # Meanwhile another device is added, and must not get a name that is promised already.
    run("devices", "add", 1, "--home", home.folder)
    if after or "bind" not in step:
        assert refused(Joining(home), redemption(code)) == USED
    reply = joined(Joining(home), asked)
    assert joined(Joining(home), asked) == reply
    assert len(devices(home)) == 2
    gate = Gate(home.folder / "broker/passwords", servers_names(), home.folder / "broker/access")
    assert gate.admits(reply["device"], reply["files"]["password"].strip())


def offer_of(home: Home, *options: object) -> tuple[dict, dict[str, str]]:
    """Return an offer and the rows that a person reads about its policy."""
    run("campaign", "create", home.folder, "other", *CREATE, *options)
    (code,) = codes_of(home, 1, "other")
    offer = Joining(home).offer(code)
    policy = offered(offer["policy"], offer["operator"], offer["about"])
    shown = consent(policy, read_words("en")["consent"])
    return offer, {key: text for key, _, text in shown["rows"]} | {"expert": shown["expert"]}


def test_an_offer_is_who_asks_and_the_policy_that_the_device_gets(home):
    (code,) = codes_of(home, 1)
    offer = Joining(home).offer(code)
    assert set(offer) == {"operator", "campaign", "about", "policy", "credentials", "websocket", "code_expires"}
    assert (offer["credentials"], offer["websocket"]) == ("password", "wss://meters.example:8443/mqtt")
    reply = joined(Joining(home), redemption(code))
    same_policy(offer["policy"], reply["files"]["policy.json"])
    policy = offered(offer["policy"], offer["operator"], offer["about"])
    assert (policy.sensor, policy.unit, policy.measures, policy.slot_seconds) == ("load", "Wh", ("sum",), 1800)
    # The policy's time suffices for all reports that its lifetime allows, and at most for a day and two slots more.
    end = epochs_of(home.config("power")).first(NOW).campaign.epoch + allowed_reports(policy) * 1800
    assert 0 <= policy.until - end <= DAY + 2 * 1800


@pytest.mark.slow_but("None")
@pytest.mark.waits
@pytest.mark.parametrize("begins_after", [None, DAY // 2, 3 * DAY])
def test_an_offer_stays_what_it_was_over_midnight_and_the_campaigns_beginning(home, begins_after):
    """Somebody reads an offer and agrees up to nine days later. The policy is still the one that was read."""
    codes = JoinCodes(home.folder).create("power", 6, "all", "", NOW, NOW + 14 * DAY)
    clock = Clock()
    joining = Joining(home, clock)
    read = joining.offer(parse_code(codes[0]))["policy"]
    assert read["until"] > 0
    config = home.config("power")
    for code, after in zip(codes, (0, DAY // 3, DAY, 2 * DAY, 4 * DAY, 9 * DAY), strict=True):
        clock.now = NOW + after
        if begins_after is not None and after > begins_after:
            with open_store(config.store_url, campaign="power") as store:
                if not store.epoch_count():
                    store.set_meta({"campaign": "power"})
                    store.add_epoch(epochs_of(config).first(NOW + begins_after))
        assert joining.offer(parse_code(code))["policy"] == read
        same_policy(read, joined(joining, redemption(parse_code(code)))["files"]["policy.json"])


def test_a_policy_of_an_offer_names_who_asks_and_what_for(home):
    texts = [JoinCodes(home.folder).create("power", 1, "all", about, NOW, NOW + DAY)[0] for about in ("", "noise")]
    plain, noise = (Joining(home).offer(parse_code(text)) for text in texts)
    assert plain["policy"]["agreed"] != noise["policy"]["agreed"]
    offered(noise["policy"], noise["operator"], "noise")
    with pytest.raises(Invalid, match="fingerprint"):
        offered(noise["policy"], noise["operator"], "silence")


def test_an_offer_in_turns_protects_a_day(home):
    _, shown = offer_of(home, "--set", "window=24h")
    assert "74 %" in shown["day"]
    assert shown["often"] == "at most one report in any 24 hours"


def test_an_offer_of_a_stream_allows_no_reports_beside_it(home):
    offer, shown = offer_of(home, "--collect", "stream")
    assert offer["policy"]["cap"] == [1, 1]
    assert "one number: none allowed" in shown["expert"]
    assert "except with a chance of 1 in 1,048,576" in shown["life"]


def test_a_printed_sheet_says_what_the_policy_allows(tmp_path):
    pytest.importorskip("segno")
    home = make_home(tmp_path / "home", "--join-port", "8444")
    run("join", "create", "--home", home.folder, "--qr", tmp_path / "sheet.html")
    sheet = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    assert "<strong>Any 24 hours:</strong> In any 24 hours the device sends at most 49 reports." in sheet
    assert "<strong>Until:</strong>" in sheet


@pytest.mark.slow
def test_a_campaign_for_people_warns_above_epsilon_2(tmp_path):
    asking = make_home(tmp_path / "asking", "--join-port", "8444")
    silent = make_home(tmp_path / "silent")

    def said(home: Home, epsilon: str) -> str:
        return run("campaign", "create", home.folder, "other", *CREATE[:-1], epsilon, "--preview")

    assert "with epsilon = 2.5, a report can raise a guess about one reading from 50 % to 93 %" in said(asking, "2.5")
    assert "people are asked" not in said(asking, "2")
    assert "people are asked" not in said(silent, "2.5")


def test_a_code_outlives_its_campaign_if_another_one_succeeds_it(home):
    run("devices", "add", 1, "--home", home.folder, "--successors", 1)
    first, second = codes_of(home, 2)
    clock = Clock()
    joining = Joining(home, clock)
    joined(joining, redemption(first))
    with open_store(home.config("power").store_url, campaign="power") as store:
        store.add_epoch(epochs_of(home.config("power")).first(NOW))
        end = store.epochs()[-1].campaign.end
    run("campaign", "succeed", home.folder, "power", "power-2")
    assert joining.offer(second)["campaign"] == "power"
    clock.now = end
    late = parse_code(JoinCodes(home.folder).create("power", 1, "all", "", NOW, end + DAY)[0])
    assert joining.offer(late)["campaign"] == "power-2"
    files = joined(joining, redemption(late))["files"]
    assert json.loads(files["device.json"])["campaigns"] == ["power-2"]
    home.remove("power-2")
    assert refused(joining, redemption(codes_of(home, 1)[0])) == EXPIRED


def test_a_backup_has_the_codes(home, tmp_path):
    first, second = codes_of(home, 2)
    joined(Joining(home), redemption(first))
    run("backup", home.folder, tmp_path / "backup")
    assert "are open again" in run("restore", tmp_path / "backup", tmp_path / "restored")
    restored = Home(tmp_path / "restored")
    assert [code.state(NOW) for code in JoinCodes(restored.folder).codes()] == [REDEEMED, OPEN]
    assert (restored.folder / FILE).stat().st_mode & 0o777 == 0o600
    assert joined(Joining(restored), redemption(second))["device"] == "power-002"


def test_the_inventory_shows_how_a_device_came(home):
    codes = codes_of(home, 2)
    run("devices", "add", 1, "--home", home.folder)
    joined(Joining(home), redemption(codes[1]))
    rows = json.loads(run("devices", "list", "--home", home.folder, "--json"))
    assert [(row["name"], row["code"]) for row in rows] == [("power-001", None), ("power-002", 2)]
    assert json.loads(run("devices", "show", "power-002", "--home", home.folder, "--json"))["code"] == 2


def test_the_commands(tmp_path):
    folder, now = tmp_path / "home", time.time()
    run("init", folder, "--host", "meters.example", "--join-port", 8444)
    run("campaign", "create", folder, "power", *CREATE)
    options = Home(folder).join
    assert (options.listen, options.url, options.insecure) == ("0.0.0.0:8444", "https://meters.example:8444", False)
    sheet, links = tmp_path / "sheet.html", tmp_path / "links"
    about = ("--about", "How <much>")
    made = json.loads(
        run("join", "create", "--home", folder, "--devices", 3, "--qr", sheet, "--links", links, *about, "--json")
    )
    assert links.read_text(encoding="utf-8").split() == made["links"]
    assert links.stat().st_mode & 0o777 == sheet.stat().st_mode & 0o777 == 0o600
    assert all(link in sheet.read_text(encoding="utf-8") for link in made["links"])
    assert "How &lt;much&gt;" in sheet.read_text(encoding="utf-8")
    assert sheet.read_text(encoding="utf-8").count("<svg") == 3
    assert abs(made["expires"] - now - 14 * DAY) < 600
    base, _, secret = made["links"][0].partition("#")
    code, _, authority = secret.partition(".")
    assert base == "https://meters.example:8444/join"
    certificate = ssl.PEM_cert_to_DER_cert((folder / "tls/ca.crt").read_text(encoding="utf-8"))
    assert authority == hashlib.sha256(certificate).hexdigest()
    assert Joining(Home(folder)).offer(parse_code(code))["about"] == "How <much>"
    run("join", "revoke", 1, "--home", folder)
    states = [row["state"] for row in json.loads(run("join", "list", "--home", folder, "--json"))]
    assert states == [REVOKED, OPEN, OPEN]
    run("join", "revoke", "--all", "--home", folder)
    unknown = run("join", "revoke", 9, "--home", folder, "--campaign", "power", code=2)
    assert "expected a number that undertone join list shows for campaign power" in unknown


def test_why_a_code_is_not_revoked(tmp_path):
    folder, now = tmp_path / "home", int(time.time())
    run("init", folder, "--host", "meters.example", "--join-port", 8444)
    run("campaign", "create", folder, "power", *CREATE)
    run("join", "create", "--home", folder, "--devices", 3)
    codes = JoinCodes(folder)
    codes.promise([(1, "power-001"), (2, "power-002"), (3, "power-003")])
    codes.redeemed([2, 3], now)
    codes.forget("power-003")
    advice = "to revoke the device, use undertone devices revoke"
    assert run("join", "revoke", 1, 2, 3, "--home", folder).splitlines() == [
        f"code 1 is not revoked: power-001 is joining with it; {advice}",
        f"code 2 is not revoked: power-002 has joined with it; {advice}",
        "code 3 is not revoked: the device that joined with it was forgotten",
        "0 codes revoked",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("create", "--devices", 0), "devices is 0"),
        (("create", "--expires", "0h"), "--expires"),
        (("create", "--qr", "codes.txt"), "expected a file whose name ends with .html or .svg"),
        (("create", "--devices", 2, "--qr", "codes.svg"), "expected .html for several codes"),
        (("create", "--group", "status"), "is reserved"),
        (("create", "--campaign", "../power"), "expected one of"),
        (("revoke",), "the codes are missing"),
        (("revoke", 1, "--all"), "the codes are given both by numbers and by --all"),
    ],
)
def test_a_command_that_is_wrong_is_refused(home, words, sentence):
    path = home.folder / "server.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("# listen =", "listen =").replace("# url =", "url ="), encoding="utf-8"
    )
    assert sentence in run("join", *words, "--home", home.folder, code=2)
    assert JoinCodes(home.folder).codes() == []


def test_codes_need_a_listener(home):
    assert "listen is missing in [join]" in run("join", "create", "--home", home.folder, code=2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ('listen = "0.0.0.0:8444"', "url is missing"),
        ('listen = "0.0.0.0:8444"\nurl = "http://meters.example"', "expected https://HOST"),
        ('listen = "0.0.0.0:8444"\nurl = "https://meters.example/path"', "expected https://HOST"),
        ('listen = "0.0.0.0:8444"\nurl = "http://localhost:8444"', "because the listener has TLS"),
        ('listen = "0.0.0.0:8444"\nurl = "https://a.example"\ninsecure = true', "expected a loopback address"),
        ('listen = "127.0.0.1:8444"\nurl = "https://a.example"\ncertificate = "a"', "key is missing"),
        ('place = "0.0.0.0:8444"', "unknown option"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, options, sentence):
    (tmp_path / "server.toml").write_text(f"[join]\n{options}\n", encoding="utf-8")
    with pytest.raises(Invalid, match=re.escape(sentence)):
        _ = Home(tmp_path).join


@pytest.mark.waits
def test_doctor_examines_the_listener(home, free_port):
    path = home.folder / "server.toml"
    place = f"127.0.0.1:{free_port()}"
    path.write_text(
        path.read_text(encoding="utf-8")
        .replace('# listen = "0.0.0.0:8444"', f'listen = "{place}"')
        .replace("# url =", "url ="),
        encoding="utf-8",
    )
    codes_of(home, 2)

    def findings():
        return [each for each in examine(home.folder) if each.check == "join" or each.sentence.startswith("join:")]

    assert [each.result for each in findings()] == ["ok", "ok"]
    assert "2 open" in findings()[-1].sentence
    with socket.create_server(split_address("listen", place)):
        assert [each.result for each in findings()] == ["failure", "ok"]
    (home.folder / "broker/server.key").write_text("", encoding="utf-8")
    assert [each.result for each in findings()] == ["failure"]
