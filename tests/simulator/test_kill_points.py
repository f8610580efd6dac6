"""kill -9 ends the server at failpoints around commit and acknowledgement, again and again, while reports come in."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.micropython import REPO

SECONDS = """
slot_seconds = 1
cycle = 4
epsilon = 1
rounds = [1000]
report_slots = 1000
lead_slots = 1
settle_slots = 1
"""
# After each kill the server starts anew, which takes long on a busy machine. So the test counts kills, not seconds.
PATIENCE_SECONDS = 550


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [12, pytest.param(48, marks=pytest.mark.slow)])
@pytest.mark.parametrize("direct", [False, True], ids=["broker", "direct"])
def test_an_aggregator_that_dies_again_and_again_counts_everything_once(make_world, direct, number):
    world = make_world(12, SECONDS, direct=direct, boots_per_day=100)
    fleet = world.fleet()
    script = Path(__file__).with_name("mortal_aggregator.py")
    deaths = world.folder / "deaths"
    with deaths.open("wb") as out:
        aggregator = subprocess.Popen(
            [sys.executable, str(script), str(world.folder), str(number)],
            stdout=out,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(REPO / "tests")},
        )

    async def go():
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(fleet.run(1000, stop))
        while len(deaths.read_text(encoding="utf-8").splitlines()) < number:
            assert aggregator.poll() is None, "it ended by itself"
            await asyncio.sleep(0.1)
        # After the last kill, the server takes in new reports of every device, and then all that are left.
        drawn = {device.name: device.drawn for device in fleet.devices}
        while any(device.drawn == drawn[device.name] or device.unacknowledged for device in fleet.devices):
            await asyncio.sleep(0.01)
        stop.set()
        await running

    try:
        asyncio.run(asyncio.wait_for(go(), PATIENCE_SECONDS))
        fleet.wire.ledger.close()
        accounts = world.accounts(seconds=120)
    finally:
        aggregator.send_signal(signal.SIGTERM)
        aggregator.wait(120)
    lines = [line.split() for line in deaths.read_text(encoding="utf-8").splitlines()]
    assert {line[2] for line in lines} == {str(int(signal.SIGKILL))}
    assert Counter(line[0] for line in lines) == dict.fromkeys(
        ("before_commit", "after_commit", "during_acknowledgement", "after_acknowledgement"), number // 4
    )
    assert accounts.holds, accounts.examples
    # If one or two starts of the server take more than 96 slots on a slow machine, the oldest reports leave the outbox.
    # Only this loss is allowed.
    assert set(accounts.lost) <= {"outbox_full"}
    assert accounts.sent == accounts.counted + accounts.lost["outbox_full"]
    assert accounts.counted > 50
    assert not accounts.rejected
    # Reports that were committed and not acknowledged came again.
    assert accounts.duplicates >= number // 4
