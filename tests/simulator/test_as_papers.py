"""A whole campaign as in the papers.

It has one round of Square Wave with equal bins, EM, the white box of Eq. 8, the Hybrid, and no filter.
"""

import numpy as np
import pytest

from undertone_aggregator.counts.epochs import THRESHOLD_PHASE
from undertone_aggregator.estimate.estimates import Z
from undertone_aggregator.threshold import CohortCounts, Query, constant_variance
from undertone_aggregator.threshold.choose import theta_from_reports
from undertone_shared.mechanism import Hybrid
from undertone_shared.report import COHORT
from undertone_simulator.fast.options import SimulateOptions
from undertone_simulator.fast.simulate import simulate
from undertone_simulator.fast.simulated import Simulated

DEVICES = 5000
SEEDS = range(1, 21)


def papers(seed: int = 1, query: str | None = None) -> Simulated:
    return simulate(SimulateOptions(devices=DEVICES, epsilon="1", seed=seed, as_papers=True, query=query))


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    return papers()


def test_one_round_of_equal_bins_then_the_hybrid_for_all_readings(simulated: Simulated) -> None:
    first, second = simulated.timeline.epochs
    assert (first.phase, second.phase) == (THRESHOLD_PHASE, "report")
    assert first.campaign.cohort is not None
    assert set(np.diff(first.campaign.cohort.mechanism.edges)) <= {
        (simulated.plan.bound + 1) // 128,
        (simulated.plan.bound + 1) // 128 + 1,
    }
    assert isinstance(second.campaign.report.mechanism, Hybrid)
    assert not {key.kind for key in simulated.partial if key.slot >= second.campaign.first_slot} & {COHORT}


@pytest.mark.parametrize(("query", "moments"), [(None, Query.paper(48, DEVICES)), ("fleet", Query.fleet(DEVICES))])
def test_theta_is_that_of_the_white_box_and_equation_8(query: str | None, moments: Query) -> None:
    ours = papers(query=query)
    first, second = ours.timeline.epochs
    mechanism = first.campaign.cohort.mechanism
    end = first.campaign.first_slot + ours.plan.rounds[0]
    counts = sum(counts for key, counts in ours.partial.items() if key.kind == COHORT and key.slot < end)
    chosen = theta_from_reports(
        [CohortCounts(mechanism, counts)],
        bound=ours.plan.bound,
        variance=constant_variance(1.0),
        query=moments,
        method="sw-w",
    )
    assert second.campaign.theta == chosen.theta


def test_the_mean_is_that_of_the_reports_and_what_truncation_removes_widens_its_interval(simulated: Simulated) -> None:
    for row in simulated.estimates():
        if row.truncated_se is not None and row.bias is not None:
            assert row.estimate == row.truncated_mean
            assert row.bias == 0
            assert row.bias_se is not None
            assert row.bias_se > 0
            assert row.high - row.estimate == pytest.approx(Z * np.hypot(row.truncated_se, row.bias_se))


def test_the_filtered_series_is_the_raw_one(simulated: Simulated) -> None:
    raw = {row.slot: row for row in simulated.estimates() if row.truncated_se}
    filtered = simulated.estimates(filtered=True)
    assert len(filtered) == simulated.plan.report_slots
    for row in filtered:
        assert (row.estimate, row.standard_error) == pytest.approx(
            (raw[row.slot].estimate, raw[row.slot].standard_error)
        )


@pytest.mark.slow
@pytest.mark.parametrize("query", [None, "fleet"])
def test_the_intervals_hold_the_truth(query: str | None) -> None:
    """If each of 960 intervals holds with probability .95, fewer than 875 hold with a probability of 2.2e-7."""
    compared = [each for seed in SEEDS for each in papers(seed, query).compared()]
    held = sum(each.estimate.low <= each.truth_raw <= each.estimate.high for each in compared)
    assert len(compared) == 20 * 48
    assert held >= 875
