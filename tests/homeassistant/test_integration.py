"""The integration in a real Home Assistant with a real server: from the link to counted reports; what goes wrong."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.ci import unavailable
from support.home_assistant import HomeAssistant, hass_program
from support.waiting import wait_for
from undertone_aggregator.store.store import open_store

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]
METER = "sensor.meter"


class Server:
    """A server's folder whose campaign ``energy`` has slots of two seconds."""

    def __init__(self, folder: Path, free_port):
        self.folder = folder
        self.environment = os.environ | {
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
            "COLUMNS": "120",
        }
        join_port = free_port()
        self.link_base = f"http://127.0.0.1:{join_port}"
        self.run(
            "init", folder, "--audit", "--port", free_port(), "--join-port", join_port,
            "--health", f"127.0.0.1:{free_port()}",
        )  # fmt: skip
        self.run(
            "campaign", "create", folder, "energy", "--sensor", "energy", "--unit", "Wh", "--bound", "20000",
            "--epsilon", "1", "--set", "measure=counter", "--slot-seconds", "2", "--set", "cycle=4",
            "--set", "rounds=[4]", "--set", "report_slots=4000",
        )  # fmt: skip
        self._process = None

    def run(self, *words, code=0):
        done = subprocess.run(
            ["undertone", *map(str, words)], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def link(self):
        made = json.loads(self.run("join", "create", "--home", self.folder, "--campaign", "energy", "--json"))
        return made["links"][0]

    def start(self):
        with (self.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["undertone", "serve", str(self.folder)], env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        wait_for(self._join_answers, 60, "the join listener's answer")

    def _join_answers(self):
        try:
            with urllib.request.urlopen(f"{self.link_base}/join/", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def state_of(self, device):
        """active, revoked: what the server's inventory says of a device."""
        listed = json.loads(self.run("devices", "list", "--home", self.folder, "--json"))
        [state] = [each["state"] for each in listed if each["name"] == device]
        return state

    def counted(self):
        """(device, slot) of each counted report; each pair is there once."""
        with open_store(self.folder / "stores/energy.sqlite", read_only=True) as store:
            pairs = [(device, slot) for device, slot, outcome in store.audit() if outcome == "counted"]
        assert len(pairs) == len(set(pairs))
        return pairs


@pytest.fixture
def server(tmp_path, free_port):
    running = Server(tmp_path / "server", free_port)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def home(tmp_path, free_port):
    if hass_program() is None:
        unavailable("Home Assistant, which make services installs")
    running = HomeAssistant(tmp_path / "home", free_port())
    running.start()
    yield running
    running.stop()


def join(home, server, entity=METER):
    return home.flow({"link": server.link()}, {"entity": entity, "agree": True})


def rise(home, energy):
    """Let the meter count on, a watt-hour at a time, and return its newest reading."""
    energy["kwh"] = round(energy["kwh"] + 0.013, 3)
    home.set(METER, energy["kwh"])
    return True


def reports(home, server, energy, count):
    wait_for(lambda: rise(home, energy) and len(server.counted()) >= count, 90, f"{count} counted reports")


def test_a_home_joins_by_a_link_and_its_reports_are_counted(home, server):
    energy = {"kwh": 1234.5}
    home.set(METER, energy["kwh"])
    home.set("sensor.outside", 7.5, "°C", device_class="temperature", state_class="measurement")
    shown = home.flow({"link": server.link()})
    assert shown["step_id"] == "offer", shown
    assert {"operator", "campaign", "measures", "per_day", "until", "day", "life"} <= set(
        shown["description_placeholders"]
    )
    entity = next(field for field in shown["data_schema"] if field["name"] == "entity")
    assert entity["selector"]["entity"]["include_entities"] == [METER]
    # Without agreement nothing happens: no device exists.
    refused = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": METER, "agree": False})
    assert refused["errors"] == {"agree": "not_agreed"}
    made = home.post(f"/api/config/config_entries/flow/{shown['flow_id']}", {"entity": METER, "agree": True})
    assert made["type"] == "create_entry", made
    reports(home, server, energy, 3)
    assert float(value(home, "spent_for_life")) > 0
    assert value(home, "status") == "online"
    assert "1234" not in home.log()


def value(home, name):
    """State of the participation's entity with this name."""
    [state] = [state for entity, state in home.states().items() if f"_{name}" in entity]
    return state["state"]


def folder_of(home):
    """The folder of the home's only participation."""
    [folder] = [path for path in (home.folder / ".storage/undertone").iterdir() if path.is_dir()]
    return folder


def accounts(home, server):
    """Every report that the home sent is counted or rejected for a reason, and none was drawn twice."""
    server.run("verify", "--store", server.folder / "stores/energy.sqlite", "--ledger", folder_of(home) / "reports.log")


@pytest.fixture
def joined(home, server):
    """A home that takes part and writes down what it sends; and its meter."""
    energy = {"kwh": 1234.5}
    home.set(METER, energy["kwh"])
    assert join(home, server)["type"] == "create_entry"
    folder = folder_of(home)
    (folder / "reports.log").touch()
    # Slots this short are reserved a minute at a time, which a restart forfeits; here each report is written down. And
    # a policy allows only four starts a day that draw.
    home.stop()
    policy = json.loads((folder / "policy.json").read_text()) | {"write_seconds": 1, "boots_per_day": 1000}
    (folder / "policy.json").write_text(json.dumps(policy))
    home.start()
    home.set(METER, energy["kwh"])
    return energy


KILLS = [pytest.param(3, id="3 kills"), pytest.param(100, id="100 kills", marks=pytest.mark.slow)]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", KILLS)
def test_power_cuts_and_a_restart_in_the_middle_of_a_slot(home, server, joined, kills):
    """Each cut comes as soon as the ledger was written anew, at a different moment after that."""
    ledger = folder_of(home) / "state/ledger"
    for number in range(kills):
        reports(home, server, joined, number + 1)
        written = ledger.stat().st_mtime_ns
        wait_for(lambda seen=written: rise(home, joined) and ledger.stat().st_mtime_ns != seen, 60, "a new ledger")
        home.kill()
        home.start()
        home.set(METER, joined["kwh"])
    home.stop()
    home.start()
    reports(home, server, joined, kills + 2)
    home.stop()
    accounts(home, server)


def test_a_meter_that_is_reset_unavailable_and_in_another_unit(home, server, joined):
    reports(home, server, joined, 1)
    joined["kwh"] = 0.0
    reports(home, server, joined, 2)
    home.set(METER, "unavailable")
    wait_for(lambda: "unavailable" in why(home), 30, "the reason")
    home.set(METER, 5, "m³", device_class="gas")
    wait_for(lambda: "unit" in why(home), 30, "the reason")
    joined["kwh"] = 3.0
    reports(home, server, joined, 4)
    home.stop()
    accounts(home, server)


def why(home):
    [state] = [state for entity, state in home.states().items() if entity.endswith("_status")]
    return state["attributes"]["why"] or ""


def test_a_pause_by_the_devices_own_rules_and_leaving(home, server, joined):
    reports(home, server, joined, 1)
    [switch] = [entity for entity in home.states("switch.") if "pause" in entity]
    home.call("switch", "turn_on", switch)
    wait_for(lambda: rise(home, joined) and value(home, "status") == "paused", 60, "the pause")
    before = len(server.counted())
    home.call("switch", "turn_off", switch)
    reports(home, server, joined, before + 1)
    folder, [name] = folder_of(home), {device for device, _ in server.counted()}
    [button] = [entity for entity in home.states("button.") if "leave" in entity]
    home.call("button", "press", button)
    wait_for(lambda: not home.states("_leave"), 60, "the entities to be gone")
    assert not folder.exists()
    assert server.state_of(name) == "revoked", "the server was told"


def test_an_old_backup_is_a_lost_ledger(home, server, joined):
    reports(home, server, joined, 2)
    state = folder_of(home) / "state"
    made = home.websocket("backup/generate", agent_ids=["backup.local"])
    assert made["success"], made
    wait_for(lambda: home.websocket("backup/info")["result"]["backups"], 60, "the backup")
    wait_for(lambda: not (state / "in-a-backup").exists(), 30, "the mark to be gone")
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
    before = len(server.counted())
    home.start()
    home.set(METER, joined["kwh"])
    wait_for(lambda: rise(home, joined) and why(home) in ("period", "lifetime"), 60, "the device's silence")
    [life] = [state for entity, state in home.states().items() if "_spent_for_life" in entity]
    assert life["attributes"]["used_percent"] == 100
    assert len(server.counted()) <= before + 2, "only what was on its way"
    accounts(home, server)


def test_a_rotated_password_is_asked_for_and_a_revoked_device_stays_out(home, server, joined):
    reports(home, server, joined, 1)
    [name] = {device for device, _ in server.counted()}
    server.run("devices", "rotate", name, "--home", server.folder)
    wait_for(lambda: rise(home, joined) and flows(home), 90, "the question for the new password")
    [flow] = flows(home)
    password = (server.folder / f"fleets/energy/devices/{name}/password").read_text().strip()
    answer = home.post(f"/api/config/config_entries/flow/{flow['flow_id']}", {"password": password})
    assert answer["reason"] == "reauth_successful", answer
    reports(home, server, joined, len(server.counted()) + 1)
    server.run("devices", "revoke", name, "--home", server.folder)
    wait_for(lambda: rise(home, joined) and flows(home), 90, "the refusal")
    home.stop()
    accounts(home, server)


def flows(home):
    return home.websocket("config_entries/flow/progress")["result"]


def test_bad_links_are_refused_in_words(home, server):
    home.set(METER, 1)
    for link, reason in (
        ("https://example.org/", "invalid_link"),
        ("http://192.0.2.1:8444/join#AAAA-BBBB-CCCC-DDDD-EEEE", "invalid_link"),
        (f"{server.link_base}/join#AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GA", "unknown"),
        (f"{server.link_base}/join#AAAA-BBBB-CCCC-DDDD-EEEE", "unknown"),
    ):
        answer = home.flow({"link": link})
        assert answer["errors"] == {"link": reason}, link
    assert join(home, server)["type"] == "create_entry"
