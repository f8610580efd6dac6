"""Serve the page for a town's simulated campaigns of three weeks, so that people can try the page.

.venv/bin/python scripts/town.py # after scripts/vendor.py; prints its address; Ctrl-C ends it

The campaigns are simulated: load has groups, charging is a stream, the homes of heating take turns, and the disk of
hot-water is full. Their summaries also have what a running server would say of itself.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import argparse
import contextlib

from support.page_states import Summary, full, served, served_states
from undertone_aggregator.counts.partial import EVERYBODY
from undertone_aggregator.estimate.publication import tell_groups
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.store.inventory import ACTIVE, Device
from undertone_aggregator.store.store import open_store
from undertone_aggregator.web.site import StoreSite, named
from undertone_operate.fleet.device_names import device_names

DAY = 48
WEEKS = 3
DEVICES = 400
GROUPS = ("north", "east", "south", "west")
# Campaign -> (the content of its file, number of devices). The devices are named by the campaign's sensor.
CAMPAIGNS = {
    "load": (f'epsilon = "2"\nrounds = [{DAY}, {DAY}, {DAY}]\ngroups = "groups.csv"', 3 * DEVICES),
    "charging": (f'epsilon = "4"\ncollect = "stream"\n[stream]\ntheta = 2000\nreports = {7 * WEEKS * DAY}', DEVICES),
    "heating": (f'epsilon = "2"\nrounds = [{DAY}, {DAY}, {DAY}]\nwindow = "24h"', 5 * DEVICES),
    "hot-water": (f'epsilon = "2"\nrounds = [{DAY}, {DAY}, {DAY}]', DEVICES),
}
# The campaign whose disk is full, and since how many seconds.
FULL, FULL_SECONDS = "hot-water", 7200
# Campaign -> what it measures, in words for people who do not know the campaign.
TITLES = {
    "load": "All electricity of a home",
    "charging": "Charging of cars at home (part of the home's electricity)",
    "heating": "Heating by electricity (part of the home's electricity)",
    "hot-water": "Hot water by electricity (part of the home's electricity)",
}
PLAN = """[campaign]
name = "{name}"
sensor = "{name}"
unit = "Wh"
bound = 10000
start = {start}
report_slots = {slots}
{more}
"""


def simulate(folder: Path, name: str) -> Path:
    """Make a campaign's store; return its path."""
    more, devices = CAMPAIGNS[name]
    store, plan = folder / f"{name}.sqlite", folder / f"{name}.toml"
    slots = 7 * WEEKS * DAY
    learning = 0 if "stream" in more else 3 * (DAY + CampaignPlan.lead_slots + CampaignPlan.settle_slots)
    half_hour = 86400 // DAY
    # The numbers of a campaign whose disk is full end with the last slot that settled before the disk was full.
    missed = FULL_SECONDS // half_hour if name == FULL else 0
    start = (int(time.time()) // half_hour - slots - learning - CampaignPlan.settle_slots - missed) * half_hour
    plan.write_text(PLAN.format(name=name, start=start, slots=slots, more=more), encoding="utf-8")
    words = ["simulate", "--plan", plan, "--devices", devices, "--store", store]
    subprocess.run([sys.executable, "-m", "undertone", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    with open_store(store) as opened:
        opened.set_devices(
            Device(device, group_of(n) if "groups" in more else EVERYBODY, ACTIVE, start)
            for n, device in enumerate(device_names(name, devices))
        )
        tell_groups(opened, CampaignPlan.min_reports)
    return store


def group_of(number: int) -> str:
    """Return the group of a device of the campaign that has groups."""
    return GROUPS[number % len(GROUPS)]


def as_served(summary: Summary) -> Summary:
    """Return a campaign's summary as if a server ran the campaign, with half a year still to go."""
    newest = summary["newest"]
    reporting = newest["reports"] + newest["cohort"]
    # Where devices take turns, a device without a report is not silent: its turn comes later.
    silent = None if summary["name"] == "heating" else CAMPAIGNS[summary["name"]][1] - reporting
    counts = {"reporting": reporting, "silent": silent, "lost": 0, "conflicting": 0}
    state = full if summary["name"] == FULL else served("running")
    changed = state(summary | {"last_slot_ends": summary["last_slot_ends"] + 183 * 86400})
    alarms = [alarm | {"time": time.time() - FULL_SECONDS} for alarm in changed["server"]["alarms"]]
    told = {"devices": {"all": counts}, "alarms": alarms, "title": TITLES[summary["name"]]}
    return changed | {"server": changed["server"] | told}


def answer(campaigns: dict[str, Any]) -> dict[str, Any]:
    """Return the summaries of all campaigns, each as a server would give it."""
    return {"campaigns": [as_served(one) for one in campaigns["campaigns"]]}


def main() -> int:
    """Simulate the campaigns and serve them until Ctrl-C."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = device_names("load", CAMPAIGNS["load"][1])
        rows = [f"{device},{group_of(n)}" for n, device in enumerate(names)]
        (folder / "groups.csv").write_text("\n".join(["device,group", *rows, ""]), encoding="utf-8")
        site = StoreSite(named([str(simulate(folder, campaign)) for campaign in CAMPAIGNS]))
        with served_states({"town": (site, answer)}) as address:
            print(f"{address}town/", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
        site.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
