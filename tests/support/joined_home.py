"""A home with Home Assistant that takes part in campaigns of a real server, and the checks that hold at the end."""

import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections import defaultdict
from pathlib import Path

from support.home_assistant import HomeAssistant
from support.waiting import PATIENCE_SECONDS, wait_for
from undertone_aggregator.store.store import open_store
from undertone_shared.off_board.intake import unpack

METER = "sensor.meter"
_PACE_SECONDS = 0.1
SLOT = 2
# Options of the campaign `energy`, whose slots have two seconds.
ENERGY = ("--sensor", "energy", "--unit", "Wh", "--bound", "20000", "--set", "measure=counter")
TEMPERATURE = ("--sensor", "temperature", "--unit", "dC", "--bound", "400", "--set", "measure=mean")


class Server:
    """A server's folder with the campaign ``energy``. ``tls``: with a private authority, as `init --tls` makes it."""

    def __init__(self, folder: Path, free_port, tls: bool = False):
        self.folder = folder
        self.environment = os.environ | {
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
            "COLUMNS": "120",
        }
        self._join_port = free_port()
        self.link_base = f"http{'s' if tls else ''}://127.0.0.1:{self._join_port}"
        self.run(
            "init", folder, "--audit", "--port", free_port(), "--join-port", self._join_port,
            "--health", f"127.0.0.1:{free_port()}", *(("--tls", "--websocket-port", 0) if tls else ()),
        )  # fmt: skip
        self.create("energy", *ENERGY)
        self._process = None

    def create(self, name, *options, report_slots=4000, round_slots=4):
        """Make a campaign."""
        self.run(
            "campaign", "create", self.folder, name, *options, "--epsilon", "1", "--slot-seconds", SLOT,
            "--set", "cycle=4", "--set", f"rounds=[{round_slots}]", "--set", f"report_slots={report_slots}",
        )  # fmt: skip

    def run(self, *words, code=0):
        """Run the command `undertone`, and return what it prints."""
        done = subprocess.run(
            ["undertone", *map(str, words)], env=self.environment, capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def link(self, campaign="energy", *options):
        """Return a new link."""
        made = json.loads(self.run("join", "create", "--home", self.folder, "--campaign", campaign, "--json", *options))
        return made["links"][0]

    def offers(self, link):
        """Return True once the server has answered what a link offers. This question has no effect."""
        body = json.dumps({"code": link.partition("#")[2].split(".")[0]}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.link_base}/api/join/offer", body, headers)
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context) as answer:
            return answer.status == 200

    def start(self):
        """Start the server, and wait until people can join."""
        with (self.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["undertone", "serve", str(self.folder)], env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        wait_for(self._join_answers, 4 * PATIENCE_SECONDS, "the join listener's answer")

    def _join_answers(self):
        assert self._process.poll() is None, (self.folder / "serve.log").read_text(encoding="utf-8")[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self._join_port), 5):
                return True
        except OSError:
            return False

    def stop(self):
        """End the server."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def state_of(self, device):
        """Return what the server's inventory says about a device: active or revoked."""
        rows = json.loads(self.run("devices", "list", "--home", self.folder, "--json"))
        [state] = [row["state"] for row in rows if row["name"] == device]
        return state

    def begin_of(self, campaign):
        """Return the Unix second at which a successor begins, or 0 for a campaign that is no successor."""
        plan = tomllib.loads((self.folder / f"campaigns/{campaign}.toml").read_text(encoding="utf-8"))["campaign"]
        return plan["start"] if "succeeds" in plan else 0

    def counted(self, campaign="energy"):
        """Return (device, digest of the report) of each counted report. Each pair must be there only once."""
        path = self.folder / f"stores/{campaign}.sqlite"
        if not path.exists():
            return []
        with open_store(path, read_only=True) as store:
            pairs = [(device, digest) for device, digest, outcome in store.audit() if outcome == "counted"]
        assert len(pairs) == len(set(pairs))
        return pairs


class Meter:
    """An entity of the home that counts energy, 13 Wh at each step."""

    def __init__(self, home: HomeAssistant, entity: str = METER) -> None:
        self.entity = entity
        self.kwh = 1234.5
        self._home = home
        self.show()

    def show(self):
        """Set the entity to the meter's reading again. Home Assistant forgets such states when it restarts."""
        self._home.set(self.entity, self.kwh)

    def rise(self):
        """Wait for a tenth of a second, and let the meter count one step further. Return True."""
        time.sleep(_PACE_SECONDS)
        self.kwh = round(self.kwh + 0.013, 3)
        self.show()
        return True

    def wait(self, condition, what, seconds=PATIENCE_SECONDS):
        """Wait until the condition holds, while the meter counts on."""
        return wait_for(lambda: self.rise() and condition(), seconds, what)


def reports(server, count, *meters, campaign="energy"):
    """Wait until the campaign has counted so many reports, while the meters count on."""
    wait_for(
        lambda: all(meter.rise() for meter in meters) and len(server.counted(campaign)) >= count,
        4 * PATIENCE_SECONDS,
        f"{count} counted reports of {campaign}",
    )


def join(home, server, campaign="energy", entity=METER, group="all"):
    """Take part by a new link; return the device's folder.

    From now on, the device notes in the folder's `reports.log` what it sends.
    """
    before = set(folders(home))
    link = server.link(campaign, "--group", group)
    # A home gives up after 30 s. A server that has just started needs half a second of processor time for imports
    # before its first answer. While other tests use the processors, that can take longer than 30 s.
    wait_for(lambda: server.offers(link), what="the server's first offer")
    answer = home.flow({"link": link}, {"entity": entity, "agree": True})
    assert answer["type"] == "create_entry", answer
    [folder] = set(folders(home)) - before
    (folder / "reports.log").touch()
    return folder


def folders(home):
    """The folders of the home's devices."""
    place = home.folder / ".storage/undertone"
    return [path for path in place.iterdir() if path.is_dir()] if place.is_dir() else []


def write_each_report_down(home, *places):
    """Let the devices note each report before it leaves, and start as often as they like.

    Without this, short slots are reserved a minute at a time, a restart forfeits the reserved slots, and a policy
    allows only four starts a day that draw.
    """
    home.stop()
    for folder in places:
        policy = json.loads((folder / "policy.json").read_text(encoding="utf-8")) | {
            "write_seconds": 1,
            "boots_per_day": 1000,
        }
        (folder / "policy.json").write_text(json.dumps(policy), encoding="utf-8")
    home.start()


def sent(folder):
    """(campaign's fingerprint, slot) of each report that the device has sent. Each was drawn once."""
    drawn = defaultdict(set)
    for line in (folder / "reports.log").read_text(encoding="utf-8").splitlines():
        _, word, _, text = line.split()
        report = _report(line)
        if word == "sent":
            drawn[report.fingerprint, report.slot].add(text)
    assert [key for key, texts in drawn.items() if len(texts) > 1] == []
    return sorted(drawn)


def _report(line):
    """The report in a line of the device's log."""
    return unpack(bytes.fromhex(line.split()[3]))


def check_account(server, folder, campaigns=("energy",), *ledgers):
    """Check that nothing was drawn twice, no window was exceeded, and each report is counted or refused for a reason.

    ``campaigns``: a campaign and its successors, which have one device and one ledger. ``ledgers``: those of further
    devices.
    """
    policy = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    times = sorted(slot * SLOT for _, slot in sent(folder))
    assert times
    for earlier, later in itertools.pairwise(times):
        assert later - earlier >= max(SLOT, policy.get("rest_seconds", 0))
    # The cap holds in every window that begins at a report, not only in windows that follow one another.
    for first in times:
        in_window = [begin for begin in times if first <= begin < first + policy["period_seconds"]]
        assert len(in_window) <= policy["reports_per_period"]
    lines = (folder / "reports.log").read_text(encoding="utf-8").splitlines(keepends=True)
    begins = [server.begin_of(campaign) for campaign in campaigns]
    for campaign, begin, end in zip(campaigns, begins, [*begins[1:], sys.maxsize], strict=True):
        log = server.folder / f"{folder.name}-{campaign}.log"
        log.write_text("".join(line for line in lines if begin <= SLOT * _report(line).slot < end), encoding="utf-8")
        server.run(
            "verify",
            "--store",
            server.folder / f"stores/{campaign}.sqlite",
            *(word for path in (log, *ledgers) for word in ("--ledger", path)),
        )


def state_of(home, name, entry=""):
    """The state of the participation's entity with this translation key. ``entry``: a part of the entity's id."""
    [state] = [state for entity, state in home.states(entry).items() if f"_{name}" in entity]
    return state


def value(home, name, entry=""):
    """The value of the state."""
    return state_of(home, name, entry)["state"]


def why(home):
    """The reason for the status, as the household sees it."""
    return state_of(home, "status")["attributes"]["why"] or ""


def flows(home):
    """The flows that wait for a person's answer."""
    return home.websocket("config_entries/flow/progress")["result"]


def issues(home):
    """The names of the repair issues that are shown."""
    shown = home.websocket("repairs/list_issues")["result"]["issues"]
    return {issue["translation_key"] for issue in shown if issue["domain"] == "undertone"}
