"""Streams over MQTT, with faults, agree with the same streams without a wire.

The clock waits for the fleet: it moves on when every device is connected and everything sent is acknowledged. So no
machine is too slow.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from support.stepped import SteppedClock, at_rest
from undertone_aggregator.settings.config import parse_config
from undertone_aggregator.store.store import open_store
from undertone_operate.fleet.device_files import stream_policy
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import households
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.faults import Fault, schedule
from undertone_simulator.wire.playback import Playback

DEVICES, SLOTS, SEED, START = 12, 14, 20211115, 1_798_416_000
FAULTS = [
    Fault(3, "kill", "load-001"),
    Fault(3, "kill-drawn", "load-002"),
    Fault(4, "kill-sent", "load-003"),
    Fault(4, "duplicate", "load-004"),
    Fault(5, "hold", "load-005"),
    Fault(5, "disconnect", "load-006"),
    Fault(6, "lie", "load-007"),
    Fault(6, "kill-torn", "load-008"),
]


@pytest.mark.slow_but(r'mechanism = "one-bit"\nchains = 1\nreports = 14')
@pytest.mark.parametrize(
    "lines",
    [
        'mechanism = "one-bit"\nchains = 1\nreports = 14',
        'mechanism = "gaussian"\nchains = 4\nlag = 2\nrestart = 2\nrenewal = 7\nreports = 6',
        'mechanism = "gaussian"\nchains = 2\nreports = 14\ndimension = 2',
        'mechanism = "gaussian"\nchains = 4\nlag = 2\nreports = 8\ndimension = 3',
    ],
)
def test_streams_over_the_wire_and_without_are_identical(make_world, lines):
    table = f"""
epsilon = 4
slot_seconds = 60
cycle = 7
start = {START}
report_slots = {SLOTS}
lead_slots = 3
collect = "stream"

[stream]
theta = 3000
slew = 0.05
{lines}
"""
    head = '[broker]\n[store]\n[campaign]\nname = "test"\nsensor = "load"\nunit = "Wh"\nbound = 10000\n'
    clock = SteppedClock(START - 3 * 60)
    world = make_world(DEVICES, table, clock, **stream_policy(parse_config(head + table, Path())))
    behaviour = Behaviour(5, drop_out=0.1, late=0.25, late_slots=8, liars=0.1)
    world.start_aggregator()
    fleet = world.fleet(source=Seeded(SEED).source, behaviour=behaviour)
    clock.ready = lambda: at_rest(fleet)
    asyncio.run(asyncio.wait_for(fleet.run(SLOTS, on_slot=schedule(fleet, FAULTS)), 200))
    fleet.wire.ledger.close()
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    with open_store(world.store_path, read_only=True) as store:
        wire, epochs = store.partial(), store.epochs()
    world.stop_aggregator()
    assert fleet.skipped == 0
    assert accounts.counted == wire.reports > 60
    config = world.config
    simulated = Simulation(
        replace(config.campaign, start=epochs[0].campaign.epoch),
        households(DEVICES, 6, 1),
        DEVICES,
        SEED,
        stream=config.stream,
        behaviour=behaviour,
        faults=FAULTS,
        playback=Playback(48, 4),
        chunk=5,
    ).run()
    assert [epoch.campaign.body for epoch in simulated.timeline.epochs] == [epoch.campaign.body for epoch in epochs]
    assert simulated.partial == wire
