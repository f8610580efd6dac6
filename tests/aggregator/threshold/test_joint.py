"""θ and mechanism are chosen together: the objective, the fallbacks, and a campaign whose report epoch has a table."""

from pathlib import Path

import numpy as np
import pytest

from support import server
from support.refusal import refused
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.facts import mechanism_facts
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design import fitted
from undertone_aggregator.design.fitted import gain, population_table
from undertone_aggregator.design.named import LEAST_GAIN
from undertone_aggregator.design.population import Population
from undertone_aggregator.design.reach import REACH, WIDE_REACH
from undertone_aggregator.design.table import ideal_table
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.store.store import open_store
from undertone_aggregator.threshold import Query, Threshold, best_threshold, mean_excess, mean_square_error
from undertone_aggregator.threshold.joint import choose_jointly
from undertone_shared import report
from undertone_shared.campaign import LARGEST_BODY
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism
from undertone_simulator.fast.vectorised import histogram
from undertone_simulator.seeded import Seeded

BOUND = 1000
DEVICES = 2000
EDGES = tuple(range(0, BOUND + 2, 7))
DENSITY = np.exp(-np.array(EDGES[:-1]) / 80.0)
DENSITY /= DENSITY.sum()
POPULATION = Population(DENSITY, EDGES)
THETAS = np.arange(20, BOUND, 5)
QUERY = Query.fleet(DEVICES)


def choose(variance):
    """The best θ for a known density."""
    theta, error = best_threshold(DENSITY, EDGES, THETAS, QUERY, variance)
    return Threshold(theta, theta, theta, 0.0, 0.0, error, DENSITY, EDGES, "ems")


@pytest.mark.slow
def test_theta_minimises_the_objective_with_the_table_of_each_theta():
    design = choose_jointly("auto", "2", 256, choose)
    assert isinstance(design.mechanism, TableMechanism)
    plain = choose_jointly("hybrid", "2", 256, choose)
    assert design.threshold.expected_mse < 0.9 * plain.threshold.expected_mse
    assert design.threshold.theta > plain.threshold.theta, "less noise, less to truncate"

    def error(theta):
        """The objective with the table that would be designed at θ."""
        variance = POPULATION.mean_variance(population_table("2", theta, POPULATION), theta)
        excess = mean_excess(DENSITY, EDGES, np.array([theta]))
        return float(mean_square_error(excess, np.array([theta]), QUERY, lambda _: variance)[0])

    theta = design.threshold.theta
    here = error(theta)
    assert here == pytest.approx(design.threshold.expected_mse, rel=0.03)
    assert here <= min(error(theta + step) for step in (-40, 40)) * 1.02


def test_a_small_gain_is_taken():
    for kind in ("auto", "optimal"):
        design = choose_jointly(kind, "0.5", 256, choose)
        assert isinstance(design.mechanism, TableMechanism)
        assert gain(design.mechanism, "0.5", design.threshold.theta, POPULATION) > LEAST_GAIN


def test_where_no_table_gains_the_hybrid_reports_and_the_reason_is_told():
    plain = choose_jointly("hybrid", "0.2", 256, choose)
    design = choose_jointly("auto", "0.2", 256, choose)
    assert isinstance(design.mechanism, Hybrid)
    assert design.threshold.theta == plain.threshold.theta
    assert design.reason is not None
    assert design.reason.startswith("devices add noise by the Hybrid: ")
    assert plain.reason is None


def test_a_theta_that_no_table_can_have_is_the_hybrids():
    def far(variance):
        return Threshold(1 << 21, 1, 1 << 22, 0.0, 0.0, 1.0, np.ones(2) / 2, (0, 1 << 21, 1 << 22), "ems")

    design = choose_jointly("optimal", "1", 256, far)
    assert isinstance(design.mechanism, Hybrid)
    assert "above 1048576" in str(design.reason)


def test_the_piecewise_mechanism_by_request():
    design = choose_jointly("piecewise", "2", 256, choose)
    assert isinstance(design.mechanism, WindowMechanism)
    with refused("mechanism", "'best'"):
        choose_jointly("best", "2", 256, choose)


class Fleet:
    """Devices that all report in each slot, under the epoch in force. The vectorised mechanisms draw the reports."""

    def __init__(self):
        self.readings = np.minimum(np.random.default_rng(1).exponential(80, DEVICES).astype(int), BOUND)
        self.counts = {}

    def report(self, epoch, slots):
        campaign = epoch.campaign
        rule = campaign.report
        for slot in slots:
            words = Seeded(1).words(slot, range(DEVICES))
            if rule is None:
                kind, counts = report.COHORT, histogram(campaign.cohort.mechanism, self.readings, BOUND, words)
            else:
                x = np.minimum(self.readings, rule.theta)
                kind, counts = report.REPORT, histogram(rule.mechanism, x, rule.theta, words)
            self.counts[Key("meters", campaign.fingerprint, kind, "all", slot)] = counts

    def read(self, first, last, kind):
        return Partial({k: v for k, v in self.counts.items() if first <= k.slot <= last and k.kind == kind})


def test_a_campaign_carries_the_table_and_the_store_its_decode(tmp_path: Path):
    plan = server.plan(mechanism='"auto"', epsilon=2, rounds=[4], report_slots=100, cells=64)
    fleet, told = Fleet(), []
    now = server.FIRST
    rounds = Rounds(plan, EpochMeans(server.SEED, fleet.read, clock=lambda: now + 12 + 5, progress=told.append))
    first = rounds.first(now)
    fleet.report(first, range(first.campaign.first_slot, first.campaign.first_slot + 4))
    second = rounds.next(Timeline([first]), now + 12)
    assert second is not None
    assert len(told) > 3, "progress is told"
    assert second.campaign.epoch == now + 12 + 5 + plan.lead_slots, "the epoch starts after the design"
    assert len(second.campaign.body) <= LARGEST_BODY
    with open_store(tmp_path / "s.sqlite") as store:
        for epoch in (first, second):
            store.add_epoch(epoch)
        kept = store.epochs()[1]
    rule = kept.report
    assert rule is not None
    assert isinstance(rule.mechanism, TableMechanism)
    assert rule.mechanism.decoded == second.decoded
    facts = mechanism_facts(kept, plan.epsilon)
    assert facts is not None
    assert facts.kind == "optimal"
    assert 0.6 < facts.variance_ratio < 0.85
    assert "standard errors" in facts.sentence()
    slots = range(kept.campaign.first_slot, kept.campaign.first_slot + 60)
    fleet.report(kept, slots)
    estimates = estimates_of(Reconstruction(Timeline([first, kept])), Partial(fleet.counts))
    measured = [estimate for estimate in estimates if estimate.kind == "report"]
    truth = np.minimum(fleet.readings, rule.theta).mean()
    errors = np.array([estimate.estimate - truth for estimate in measured])
    predicted = np.sqrt(np.mean([estimate.standard_error**2 for estimate in measured]))
    assert len(measured) == 60
    assert abs(errors.mean()) < 5 * predicted / np.sqrt(60)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(predicted, rel=5 / np.sqrt(2 * 60))
    assert max(estimate.misfit for estimate in measured) < 6
    assert all(0 < estimate.manipulation < 0.05 * rule.theta for estimate in measured)


def test_an_epoch_without_a_threshold_has_no_facts():
    assert mechanism_facts(Epoch(server.campaign(theta=400), 0), server.plan().epsilon) is None


def test_a_decision_computes_each_least_variance_once_from_the_cells_of_the_one_before(monkeypatch):
    starts, computed = [], []

    def counted(*args, near=None, **options):
        starts.append(near)
        computed.append(ideal_table(*args, near=near, **options))
        return computed[-1]

    monkeypatch.setattr(fitted, "ideal_table", counted)
    promise = fitted.Promise("2", POPULATION)
    wide, usual = (promise.variance(300, reach) for reach in (WIDE_REACH, REACH))
    assert (promise.variance(300, WIDE_REACH), promise.variance(300, REACH)) == (wide, usual)
    assert len(computed) == 2
    assert starts == [None, computed[0].cells]
    assert wide == pytest.approx(fitted.Promise("2", POPULATION).variance(300, WIDE_REACH), rel=1e-9)
    assert wide < usual
