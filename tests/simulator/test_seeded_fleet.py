"""The fleet over the wire, with seeded entropy, agrees with the simulation without a wire.

Only simulations may use seeded entropy.
"""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from support.stepped import SteppedClock, at_rest
from undertone_aggregator.campaign.coordinator import Coordinator
from undertone_aggregator.store.store import RECEIVED, open_store
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.behaviour import Behaviour
from undertone_simulator.readings.populations import households
from undertone_simulator.seeded import Seeded
from undertone_simulator.wire.faults import Fault, schedule
from undertone_simulator.wire.playback import Playback

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
START = 1_798_416_000
FAULTS = [
    Fault(1, "kill", "load-001"),
    Fault(1, "kill-drawn", "load-002"),
    Fault(1, "kill-sent", "load-003"),
    Fault(1, "duplicate", "load-004"),
    Fault(2, "hold", "load-005"),
    Fault(2, "disconnect", "load-006"),
    Fault(3, "lie", "load-007"),
]


def difference(left, right):
    """(slot, kind, reports here, reports there) of each histogram that differs."""
    return [
        (key.slot, key.kind, *(int(partial[key].sum()) if key in partial else 0 for partial in (left, right)))
        for key in sorted({*left, *right})
        if key not in left or key not in right or not np.array_equal(left[key], right[key])
    ]


class Together:
    """Tells whether server and fleet have done all that is due at the clock's moment."""

    def __init__(self, world, fleet, monkeypatch):
        self.world, self.fleet = world, fleet
        self.ticked = -1
        tick, acked = Coordinator.tick, fleet.wire.ledger.acked
        self.acked = 0

        def ticks(coordinator, now):
            tick(coordinator, now)
            self.ticked = now

        def counts(device, report):
            acked(device, report)
            self.acked += 1

        monkeypatch.setattr(Coordinator, "tick", ticks)
        monkeypatch.setattr(fleet.wire.ledger, "acked", counts)

    def __call__(self):
        moment = int(self.world.clock.moment)
        # The server decides about the threshold when a slot begins.
        if (moment % 60 == 0 and self.ticked < moment) or not at_rest(self.fleet):
            return False
        with open_store(self.world.store_path, read_only=True) as store:
            epochs, received = store.epochs(), store.outcomes()[RECEIVED]
        return received >= self.acked and all(
            epochs[-1].campaign.fingerprint in heard(device) for device in self.fleet.devices if device.reporter
        )


def heard(device):
    """The fingerprints of the campaigns that a device follows."""
    campaigns = device.reporter.campaign, device.reporter.following
    return {campaign.fingerprint for campaign in campaigns if campaign is not None}


@pytest.mark.slow
def test_the_wire_and_the_arrays_give_identical_campaigns(make_world, monkeypatch):
    """The clock waits until the server has decided and counted, and until every device has nothing left to do."""
    behaviour = Behaviour(5, drop_out=0.3, late=0.25, late_slots=12, liars=0.1)
    clock = SteppedClock(START)
    world = make_world(12, MINUTES, clock)
    fleet = world.fleet(source=Seeded(SEED).source, behaviour=behaviour)
    together = Together(world, fleet, monkeypatch)
    world.start_aggregator()
    clock.ready = together
    asyncio.run(asyncio.wait_for(fleet.run(9, on_slot=schedule(fleet, FAULTS)), 280))
    fleet.wire.ledger.close()
    assert fleet.skipped == 0
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
    assert bodies[0] == bodies[1]
    assert difference(simulated.partial, wire) == []
