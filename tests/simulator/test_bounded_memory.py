"""A simulation takes as much memory as a chunk of devices needs, however many devices there are."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, time
from undertone_aggregator.settings.config import CampaignPlan
from undertone_aggregator.settings.options import parse
from undertone_simulator.wire.memory import peak_megabytes
from undertone_simulator.readings.populations import population
from undertone_simulator.fast.simulation import Simulation
devices, slots = int(sys.argv[1]), int(sys.argv[2])
plan = parse(CampaignPlan, "campaign", {
    "name": "large", "sensor": "load", "unit": "events", "bound": 10000, "epsilon": 1, "rounds": [1],
    "report_slots": slots - 2, "cohort_share": 0.05, "lead_slots": 1, "settle_slots": 0, "mechanism": "hybrid"})
before, began = peak_megabytes(), time.process_time()
found = Simulation(plan, population("heavy-tail", 1), devices, 1).run()
print(json.dumps({"reports": found.partial.reports, "megabytes": peak_megabytes(), "before": before,
    "seconds": time.process_time() - began, "slots": len({key.slot for key in found.partial})}))
"""


def simulate(devices, slots):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(devices), str(slots)], capture_output=True, check=True)
    facts = json.loads(done.stdout)
    print(devices, "devices:", facts)
    assert facts["reports"] == devices * slots == devices * facts["slots"]
    return facts


@pytest.mark.slow
def test_four_times_the_devices_take_hardly_more_memory():
    few, many = simulate(70_000, 3), simulate(280_000, 3)
    assert many["megabytes"] < few["megabytes"] + 30


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "slots"), [(1_000_000, 48), (10_000_000, 4)])
def test_large_fleets_stay_below_two_gigabytes(devices, slots):
    assert simulate(devices, slots)["megabytes"] < 2048
