"""The wire fleet with seeded entropy, which only a simulation may have, against the vectorised mechanisms."""

import asyncio

import numpy as np

from undertone_aggregator.partial import Key, Partial
from undertone_aggregator.store import Store
from undertone_shared.cohort import in_cohort
from undertone_shared.report import COHORT, REPORT
from undertone_simulator.clock import Clock
from undertone_simulator.ledger import read_ledgers
from undertone_simulator.seeded import Seeded
from undertone_simulator.vectorised import symbols

MINUTES = """
slot_seconds = 60
cycle = 4
epsilon = 1
rounds = [3]
report_slots = 6
epoch_slots = 6
lead_slots = 1
settle_slots = 1
cohort_share = 0.3
"""
SEED = 20211115


def test_the_wire_and_the_arrays_give_identical_partials(make_world):
    world = make_world(9, MINUTES, Clock(speed=75.0))
    world.start_aggregator()
    fleet = world.fleet(source=Seeded(SEED).source)
    asyncio.run(asyncio.wait_for(fleet.run(6), 100))
    fleet.wire.ledger.close()
    assert world.accounts().holds
    plays = read_ledgers([world.ledger_path])
    readings = fleet._readings
    with Store(world.store_path, read_only=True) as store:
        wire = store.partial()
        epochs = {epoch.campaign.fingerprint: epoch.campaign for epoch in store.epochs()}
    expected = Partial()
    for slot, fingerprint in sorted({(key.slot, key.fingerprint) for key in wire}):
        campaign = epochs[fingerprint]
        cohort = np.array([in_cohort(campaign.cohort.seed, campaign.cohort.share, slot, name) for name in world.names])
        values = np.array([readings.at(i, plays.column(slot)) for i in range(len(world.names))])
        for kind, members in ((COHORT, np.flatnonzero(cohort)), (REPORT, np.flatnonzero(~cohort))):
            if not len(members):
                continue
            mechanism = campaign.cohort.mechanism if kind == COHORT else campaign.report.mechanism
            theta = campaign.bound if kind == COHORT else campaign.report.theta
            words = Seeded(SEED).words(slot, members)
            for symbol in symbols(mechanism, np.minimum(values[members], theta), theta, words):
                expected.add(Key("test", fingerprint, kind, "all", slot), int(symbol), mechanism.symbols)
    assert wire.reports == expected.reports > 9 * 9
    assert wire == expected
