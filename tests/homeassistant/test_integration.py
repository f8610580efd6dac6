"""The integration in a real Home Assistant with a real server, from the link to counted reports, and what can go wrong.

Most tests end with `check_account`: nothing is drawn twice, no window is exceeded, and `verify` finds every report
explained.
"""

import json
import shutil
import tarfile
import time
import urllib.request
from datetime import datetime

import pytest

from support.joined_home import (
    ENERGY,
    METER,
    SLOT,
    TEMPERATURE,
    Meter,
    Server,
    check_account,
    flows,
    folders,
    issues,
    join,
    reports,
    sent,
    state_of,
    value,
    why,
    write_each_report_down,
)
from support.neighbours import Neighbours
from support.published_means import PublishedMeans
from support.waiting import PATIENCE_SECONDS, wait_for

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.timeout(900)]


# This test takes longest, so it comes first: the tests of a file run in their order.
@pytest.mark.slow
def test_a_home_follows_the_campaigns_successor(home, server, meter):
    server.create("short", *ENERGY, report_slots=60)
    # Those who join agree to the same later campaigns as the fleet's first device did.
    server.run("devices", "add", 1, "--home", server.folder, "--campaign", "short", "--successors", 9)
    server.stop()
    server.start()
    folder = join(home, server, "short")
    write_each_report_down(home, folder)
    meter.show()
    # While a device waits for its next epoch, it accepts no further one. So the successor can begin only after the last
    # epoch of this campaign has begun, which is the second epoch that the device reports in.
    meter.wait(lambda: len({epoch for epoch, _ in sent(folder)}) == 2, "the last epoch")
    server.run("campaign", "succeed", server.folder, "short", "long", "--set", "report_slots=300")
    reports(server, 3, meter, campaign="long")
    assert issues(home) == set()
    [name] = {device for device, _ in server.counted("short")}
    assert {device for device, _ in server.counted("long")} == {name}
    home.stop()
    home.start()
    meter.show()
    reports(server, len(server.counted("long")) + 1, meter, campaign="long")
    home.stop()
    check_account(server, folder, ("short", "long"))


def test_a_home_joins_by_a_link_and_never_blocks_the_event_loop(home, server, meter):
    home.stop()
    home.watch_loop()
    home.start()
    meter.show()
    home.set("sensor.outside", 7.5, "°C", device_class="temperature", state_class="measurement")
    shown = home.flow({"link": server.link()})
    assert shown["step_id"] == "offer", shown
    assert {"operator", "asks", "about", "agreement", "expert"} <= set(shown["description_placeholders"])
    entity = next(field for field in shown["data_schema"] if field["name"] == "entity")
    assert entity["selector"]["entity"]["include_entities"] == [METER]
    # Without agreement, no device is made.
    refused = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": METER, "agree": False})
    assert refused["errors"] == {"agree": "not_agreed"}
    assert json.loads(server.run("devices", "list", "--home", server.folder, "--json")) == []
    made = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": METER, "agree": True})
    assert made["type"] == "create_entry", made
    [folder] = folders(home)
    (folder / "reports.log").touch()
    reports(server, 3, meter)
    meter.wait(lambda: value(home, "spent_for_life") not in ("unknown", "unavailable", "0", "0.0"), "the spent budget")
    meter.wait(lambda: value(home, "status") == "online", "the status")
    meter.wait(lambda: value(home, "last_reading") != "unknown", "the time of the last reading")
    diagnostics = json.dumps(home.get(f"/api/diagnostics/config_entry/{made['result']['entry_id']}"))
    for private in ("1234", (folder / "password").read_text(encoding="utf-8").strip(), "127.0.0.1"):
        assert private not in diagnostics
    assert "1234" not in home.log()
    home.stop()
    check_account(server, folder)
    measured = home.loop_times()
    # Among the measured calls are the setup, and the regular look at the state of the meter.
    assert {"__init__.py:async_setup_entry", "__init__.py:_follow.<locals>.on_time"} <= measured.keys()
    for name, times in measured.items():
        assert times["processor"] < 0.05, (name, times)
        # On a busy machine, a call may wait for the processor. So only the median of many calls has to be short.
        assert times["count"] < 20 or times["clock"] < 0.05, (name, times)


# Group -> the Wh that each of its homes uses in a slot.
LOADS = {"north": 1000, "south": 9000}


@pytest.mark.slow_but("groups")
@pytest.mark.parametrize("loads", [{}, LOADS], ids=["no groups", "groups"])
def test_a_home_sees_itself_beside_the_published_mean(home, server, meter, loads):
    """With groups, the mean is that of the group which the link names, and not that of all homes."""
    # With groups, the round lasts longer, so that the homes of the groups are seen to differ.
    server.create("shared", *ENERGY, "--set", "min_reports=1", round_slots=12 if loads else 4)
    group = next(iter(loads), "all")
    neighbours = Neighbours(server.folder, "shared", loads, server.run, counted=True) if loads else None
    server.stop()
    server.start()
    published = PublishedMeans(server.folder, "shared", server.run)
    if neighbours:
        neighbours.start()
    try:
        folder = see_itself_beside(home, server, meter, group, published)
    finally:
        if neighbours:
            neighbours.stop()
        published.close()
    check_account(server, folder, ("shared",), *([neighbours.ledger] if neighbours else []))
    if neighbours:
        means = {name: published.estimates(name) for name in ("all", *loads)}
        levels = {name: sum(each) / len(each) for name, each in means.items()}
        assert levels["north"] < levels["all"] < levels["south"]


def see_itself_beside(home, server, meter, group, published):
    """Join in a group, check what the home shows, end the participation, and return the device's folder."""
    folder = join(home, server, "shared", group=group)
    meter.show()
    compared = ("your_home_newest", "average_home_newest", "your_home_last_7", "average_home_last_7")
    # A home that joins after the round has begun waits for a minute before it reports, and the round waits for the
    # home.
    without = ("unknown", "unavailable")
    meter.wait(lambda: all(value(home, name) not in without for name in compared), "a comparison", 4 * PATIENCE_SECONDS)
    own, others = (state_of(home, name) for name in compared[:2])
    assert own["attributes"]["unit_of_measurement"] == others["attributes"]["unit_of_measurement"] == "Wh"
    # The meter counts up by 13 Wh some twenty times in a slot of two seconds.
    assert 0 < float(own["state"]) < 2000
    limits = others["attributes"]
    assert limits["at_least"] <= float(others["state"]) <= limits["at_most"]
    assert limits["group"] == group
    slot = int(datetime.fromisoformat(limits["from"]).timestamp()) // SLOT
    wait_for(lambda: slot in published.of[group] and slot in published.of["all"], what="the slot's published means")
    means = {name: published.of[name][slot] for name in {group, "all"}}
    shown = [float(others["state"]), limits["at_least"], limits["at_most"]]
    # Home Assistant shows tenths, so each number may differ by 0.05, and a little more because floats are rounded.
    assert shown == pytest.approx([means[group][name] for name in ("estimate", "low", "high")], abs=0.06)
    assert group == "all" or shown[0] != pytest.approx(means["all"]["estimate"], abs=0.06)
    [entity] = [entity for entity in home.states("switch.") if "compare" in entity]
    home.call("switch", "turn_off", entity)
    meter.wait(lambda: value(home, "your_home_newest") == "unavailable", "no comparison")
    assert json.loads((folder / "state/compare").read_text(encoding="utf-8"))["own"] == []
    [entry] = [each for each in home.websocket("config_entries/get")["result"] if each["domain"] == "undertone"]
    diagnostics = json.dumps(home.get(f"/api/diagnostics/config_entry/{entry['entry_id']}"))
    assert "compare" not in diagnostics
    home.stop()
    return folder


KILLS = [pytest.param(3, id="3 kills"), pytest.param(100, id="100 kills")]


@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("kills", KILLS)
def test_power_cuts(home, server, meter, joined, kills):
    """Each power cut comes soon after a write of the ledger."""
    ledger = joined / "state/ledger"
    for number in range(kills):
        reports(server, number + 1, meter)
        written = ledger.stat().st_mtime_ns
        meter.wait(lambda seen=written: ledger.stat().st_mtime_ns != seen, "a new ledger")
        home.kill()
        home.start()
        meter.show()
    reports(server, kills + 2, meter)
    home.stop()
    check_account(server, joined)


@pytest.mark.slow
def test_two_entities_with_a_ledger_each_and_a_restart_in_the_middle_of_a_slot(home, server):
    server.create("temperature", *TEMPERATURE)
    server.stop()
    server.start()
    meter, outside = Meter(home), Outside(home)
    energy = join(home, server)
    warmth = join(home, server, "temperature", outside.entity)
    write_each_report_down(home, energy, warmth)
    meter.show()
    outside.rise()
    assert energy != warmth
    for file in ("state/ledger", "policy.json", "device.json", "password"):
        assert (energy / file).is_file()
        assert (warmth / file).is_file()
    reports(server, 2, meter, outside)
    reports(server, 2, meter, outside, campaign="temperature")
    home.stop()
    down_from = time.time()
    earlier = sent(energy), sent(warmth)
    down_to = time.time()
    home.start()
    meter.show()
    reports(server, len(server.counted()) + 2, meter, outside)
    reports(server, len(server.counted("temperature")) + 2, meter, outside, campaign="temperature")
    home.stop()
    # No report is about a slot that Home Assistant saw only in part.
    cut = set(range(int(down_from // SLOT), int(down_to // SLOT) + 1))
    for folder, before in zip((energy, warmth), earlier, strict=True):
        assert len(sent(folder)) > len(before)
        assert not cut & {slot for _, slot in sent(folder)}
    # Each ledger's reports belong to its own campaign alone.
    assert not {print for print, _ in sent(energy)} & {print for print, _ in sent(warmth)}
    check_account(server, energy)
    check_account(server, warmth, ("temperature",))


class Outside(Meter):
    """An entity of the home that measures a temperature."""

    def __init__(self, home):
        super().__init__(home, "sensor.outside")

    def show(self):
        self._home.set(
            self.entity, round(self.kwh % 20, 1), "°C", device_class="temperature", state_class="measurement"
        )


@pytest.mark.slow
def test_a_meter_that_is_reset_unavailable_in_another_unit_and_removed(home, server, meter, joined):
    reports(server, 1, meter)
    meter.kwh = 0.0
    reports(server, 2, meter)
    # A report leaves even without a reading, so that nobody can notice the gap. The household sees it.
    home.set(METER, "unavailable")
    wait_for(lambda: "unavailable" in why(home), what="the reason")
    wait_for(lambda: value(home, "status") == "no_reading", what="the status")
    # After two whole slots without a reading, the entity still shows the last reading that was reported.
    before = len(server.counted())
    wait_for(lambda: len(server.counted()) >= before + 2, what="reports without a reading")
    heard = value(home, "last_reading")
    wait_for(lambda: len(server.counted()) >= before + 4, what="more reports without a reading")
    assert value(home, "last_reading") == heard
    home.set(METER, 5, "m³", device_class="gas")
    wait_for(lambda: "wrong_unit" in issues(home), what="the issue")
    wait_for(lambda: "unit" in why(home), what="the reason")
    # The entity is removed, and the person chooses another entity.
    home.remove(METER)
    wait_for(lambda: issues(home) == {"no_entity"}, what="the issue")
    other = Meter(home, "sensor.other")
    [entry] = [each for each in home.websocket("config_entries/get")["result"] if each["domain"] == "undertone"]
    shown = home.post("/api/config/config_entries/flow", {"handler": "undertone", "entry_id": entry["entry_id"]})
    assert shown["step_id"] == "reconfigure", shown
    answer = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": other.entity})
    assert answer["reason"] == "reconfigure_successful", answer
    other.wait(lambda: value(home, "status") == "online" and not issues(home), "readings of the other entity")
    reports(server, len(server.counted()) + 1, other)
    home.stop()
    check_account(server, joined)


@pytest.mark.slow
def test_a_pause_by_the_devices_own_rules_and_leaving(home, server, meter, joined):
    reports(server, 1, meter)
    [switch] = [entity for entity in home.states("switch.") if "pause" in entity]
    home.call("switch", "turn_on", switch)
    meter.wait(lambda: value(home, "status") == "paused", "the pause")
    before = len(server.counted())
    home.call("switch", "turn_off", switch)
    reports(server, before + 1, meter)
    [name] = {device for device, _ in server.counted()}
    [button] = [entity for entity in home.states("button.") if "leave" in entity]
    home.call("button", "press", button)
    wait_for(lambda: not home.states("_leave"), what="the end of the entities")
    assert not joined.exists()
    assert server.state_of(name) == "revoked", "the server was told"


@pytest.mark.slow
def test_an_old_backup_is_a_lost_ledger(home, server, meter, joined):
    reports(server, 2, meter)
    state = joined / "state"
    made = home.websocket("backup/generate", agent_ids=["backup.local"])
    assert made["success"], made
    wait_for(lambda: home.websocket("backup/info")["result"]["backups"], what="the backup")
    wait_for(lambda: not (state / "in-a-backup").exists(), what="the end of the mark")
    home.stop()
    with tarfile.open(next((home.folder / "backups").glob("*.tar"))) as outer:
        inner = outer.extractfile("homeassistant.tar.gz")
        with tarfile.open(fileobj=inner, mode="r:gz") as archive:
            names = [name for name in archive.getnames() if name.endswith("in-a-backup")]
            assert len(names) == 1
            shutil.rmtree(state)
            prefix = names[0].removesuffix("/in-a-backup")
            for member in archive.getmembers():
                if member.isfile() and member.name.startswith(f"{prefix}/"):
                    target = state / member.name.removeprefix(f"{prefix}/")
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())
    before = len(sent(joined))
    home.start()
    meter.show()
    meter.wait(lambda: why(home) in ("period", "lifetime"), "the device's silence")
    wait_for(lambda: "lifetime_spent" in issues(home), what="the issue")
    assert float(value(home, "budget_used")) == 100
    home.stop()
    assert len(sent(joined)) == before
    check_account(server, joined)


@pytest.mark.slow
def test_a_rotated_password_is_asked_for_and_a_revoked_device_stays_out(home, server, meter, joined):
    reports(server, 1, meter)
    [name] = {device for device, _ in server.counted()}
    server.run("devices", "rotate", name, "--home", server.folder)
    meter.wait(lambda: flows(home), "the question for the new password")
    [flow] = flows(home)
    refused = home.post(f"/api/config/config_entries/flow/{flow['flow_id']}", {"password": "x" * 2000})
    assert refused["errors"] == {"password": "invalid_password"}
    password = (server.folder / f"fleets/energy/devices/{name}/password").read_text(encoding="utf-8").strip()
    answer = home.post(f"/api/config/config_entries/flow/{flow['flow_id']}", {"password": password})
    assert answer["reason"] == "reauth_successful", answer
    reports(server, len(server.counted()) + 1, meter)
    server.run("devices", "revoke", name, "--home", server.folder)
    meter.wait(lambda: flows(home), "the refusal")
    home.stop()
    check_account(server, joined)


@pytest.mark.slow
def test_links_that_are_refused_and_one_whose_answer_was_lost(home, server, meter):
    for link, reason in (
        ("https://example.org/", "invalid_link"),
        ("http://192.0.2.1:8444/join#AAAA-BBBB-CCCC-DDDD-EEEE", "invalid_link"),
        (f"{server.link_base}/join#AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GA", "unknown"),
        (f"{server.link_base}/join#AAAA-BBBB-CCCC-DDDD-EEEE", "unknown"),
    ):
        answer = home.flow({"link": link})
        assert answer["errors"] == {"link": reason}, link
    # The code is redeemed with the home's key, and the home ends before it gets the answer.
    link = server.link()
    shown = home.flow({"link": link})
    server.stop()
    lost = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": METER, "agree": True})
    assert lost["errors"] == {"base": "cannot_connect"}
    home.kill()
    [folder] = folders(home)
    joined = json.loads((folder / "join.json").read_text(encoding="utf-8"))
    server.start()
    body = json.dumps({"code": joined["link"]["code"], "key": joined["key"]}).encode()
    request = urllib.request.Request(f"{server.link_base}/api/join/redeem", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["device"]
    home.start()
    meter.show()
    made = home.flow({"link": link}, {"entity": METER, "agree": True})
    assert made["type"] == "create_entry", made
    (folder / "reports.log").touch()
    reports(server, 1, meter)
    again = home.flow({"link": link.lower()})
    assert again["reason"] == "already_configured", again


@pytest.mark.slow
def test_a_server_with_a_private_authority(home, tmp_path, free_port):
    server = Server(tmp_path / "secure", free_port, tls=True)
    server.start()
    try:
        meter = Meter(home)
        link = server.link()
        address, _, fingerprint = link.rpartition(".")
        assert len(fingerprint) == 64
        other = ("0" if fingerprint[0] != "0" else "1") + fingerprint[1:]
        for bad, reason in (
            (address, "certificate"),
            (f"{address}.{other}", "certificate"),
            (f"{address}.{fingerprint[1:]}", "invalid_link"),
        ):
            assert home.flow({"link": bad})["errors"] == {"link": reason}
        made = home.flow({"link": link}, {"entity": METER, "agree": True})
        assert made["type"] == "create_entry", made
        [folder] = folders(home)
        (folder / "reports.log").touch()
        assert "tls" in json.loads((folder / "device.json").read_text(encoding="utf-8"))["broker"]
        reports(server, 2, meter)
        home.stop()
        check_account(server, folder)
    finally:
        server.stop()
