"""A binary sensor has the bound 1, randomised response, and no threshold round."""

import numpy as np

from support import server
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.counts.epochs import REPORT_PHASE, Timeline
from undertone_aggregator.settings.config import CampaignPlan
from undertone_simulator.fast.simulation import Simulation
from undertone_simulator.readings.readings import Readings


def plan(**options: object) -> CampaignPlan:
    return server.plan(bound=1, epsilon=2, report_slots=12, **options)


def test_a_binary_campaign_reports_at_once() -> None:
    rounds = Rounds(plan(), EpochMeans(server.SEED, lambda *_: None))  # type: ignore[arg-type,return-value]
    epoch = rounds.first(server.FIRST)
    rule = epoch.campaign.report
    assert epoch.phase == REPORT_PHASE
    assert rule is not None
    assert (rule.low, rule.theta, rule.mechanism.symbols) == (0, 1, 2)
    assert epoch.campaign.schedule.cohort_stride == 0
    assert rounds.due(Timeline([epoch]), server.FIRST) is None


def test_its_share_is_estimated_with_an_interval_that_holds() -> None:
    rng = np.random.default_rng(1)
    values = (rng.random((4000, 12)) < 0.3).astype(np.int64)
    simulation = Simulation(plan(), Readings(values, np.ones_like(values, dtype=bool), "on"), 4000, 5).run()
    slots = simulation.estimates()
    assert len(slots) == 12
    for slot in slots:
        assert slot.reports == 4000
        # Randomised response at ε = 2 over 4,000 devices has the standard error 1/(2 sinh 1) / √4000. The limit is six
        # standard errors.
        error = 1 / (2 * np.sinh(1)) / np.sqrt(4000)
        assert abs(slot.estimate - simulation.truth(slot.slot)[1]) < 6 * error
        assert 0.9 * error < slot.standard_error < 1.1 * error
