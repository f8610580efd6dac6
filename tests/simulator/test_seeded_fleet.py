"""The wire fleet with seeded entropy, which only a simulation may have, against the simulation without a wire."""

import asyncio
from dataclasses import replace

import numpy as np

from undertone_aggregator.collect.store import open_store
from undertone_simulator.behaviour import Behaviour
from undertone_simulator.clock import Clock
from undertone_simulator.faults import Fault, schedule
from undertone_simulator.playback import Playback
from undertone_simulator.populations import households
from undertone_simulator.seeded import Seeded
from undertone_simulator.simulation import Simulation

MINUTES = """
slot_seconds = 60
cycle = 4
epsilon = 2
rounds = [2, 3]
report_slots = 9
epoch_slots = 5
lead_slots = 2
settle_slots = 1
cohort_share = 0.3
method = "ems"
cells = 32
"""
SEED = 20211115
FAULTS = [
    Fault(1, "kill", "load-001"),
    Fault(1, "kill-drawn", "load-002"),
    Fault(1, "kill-sent", "load-003"),
    Fault(1, "duplicate", "load-004"),
    Fault(2, "hold", "load-005"),
    Fault(2, "disconnect", "load-006"),
    Fault(3, "lie", "load-007"),
]


def difference(one, other):
    """(slot, kind, reports here, reports there) of the histograms that differ."""
    return [
        (key.slot, key.kind, *(int(partial[key].sum()) if key in partial else 0 for partial in (one, other)))
        for key in sorted({*one, *other})
        if key not in one or key not in other or not np.array_equal(one[key], other[key])
    ]


def test_the_wire_and_the_arrays_give_identical_campaigns(make_world):
    # A machine that is too slow for its slots skips reports, or looks at the threshold a slot late: give it more time.
    if differences(make_world, speed=60.0):
        assert differences(make_world, speed=20.0) == []


def differences(make_world, speed):
    """What differs between a campaign over MQTT and the same one without a wire."""
    behaviour = Behaviour(5, drop_out=0.3, late=0.25, late_slots=12, liars=0.1)
    world = make_world(12, MINUTES, Clock(speed=speed))
    world.start_aggregator()
    fleet = world.fleet(source=Seeded(SEED).source, behaviour=behaviour)
    asyncio.run(asyncio.wait_for(fleet.run(9, on_slot=schedule(fleet, FAULTS)), 200))
    fleet.wire.ledger.close()
    accounts = world.accounts()
    assert accounts.holds, accounts.examples
    with open_store(world.store_path, read_only=True) as store:
        wire, epochs, meta = store.partial(), store.epochs(), store.meta()
    assert accounts.counted == wire.reports
    assert wire.reports > 100
    world.stop_aggregator()
    plan = replace(
        world.config.campaign, start=epochs[0].campaign.epoch, cohort_seed=bytes.fromhex(meta["cohort_seed"])
    )
    simulated = Simulation(
        plan,
        households(12, 6, 1),
        12,
        SEED,
        behaviour=behaviour,
        faults=FAULTS,
        playback=Playback(48, 4),
        chunk=5,
    ).run()
    bodies = [[epoch.campaign.body for epoch in some] for some in (simulated.timeline.epochs, epochs)]
    return difference(simulated.partial, wire) if bodies[0] == bodies[1] else ["epochs"]
