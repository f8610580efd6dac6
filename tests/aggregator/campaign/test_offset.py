"""Readings may lie below zero: people see readings as they were measured, and not as distances from the offset."""

import json
from dataclasses import replace

import numpy as np
import pytest

from support import server
from undertone_aggregator.campaign.collection import COLLECTIONS
from undertone_aggregator.campaign.publish import status_message
from undertone_aggregator.campaign.results import guarantee_of
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_from_json, threshold_to_json
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.estimates import Estimate, Estimates, Series
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.estimate.series_filter import SeriesFilter
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.limits import limit_change, limit_most, limit_range
from undertone_shared import report
from undertone_shared.errors import Invalid

# Readings lie between -20 and 980, and are truncated at 57 - 20 = 37.
OFFSET, THETA = -20, 57


def epoch() -> Epoch:
    return Epoch(server.campaign(theta=THETA, offset=OFFSET, cohort_stride=9), server.FIRST - 10)


def choice(theta: int, bottom: int = 0) -> Threshold:
    return Threshold(theta, theta, theta, 0.0, 0.0, 1.0, np.ones(1), (0, 1001), "robust", bottom=bottom, offset=OFFSET)


def test_a_campaign_says_its_threshold_in_the_readers_units() -> None:
    campaign = epoch().campaign
    assert (campaign.rule.theta, campaign.theta) == (57, 37)
    assert campaign.ranges == ((0, -20, 37),)
    assert campaign.thetas == "37 Wh"
    blocks = server.campaign(theta=THETA, offset=OFFSET, later=((2, 0, 30),))
    assert blocks.thetas == "10 to 37 Wh by time of day"
    assert server.campaign(offset=OFFSET).theta is None


def test_an_estimate_carries_the_threshold_in_its_own_units() -> None:
    made = epoch()
    rule = made.report
    assert rule is not None
    counts = np.zeros(rule.mechanism.symbols, dtype=np.int64)
    counts[:2] = 50
    key = Key("meters", made.campaign.fingerprint, report.REPORT, "other", server.FIRST)
    (estimate,) = estimates_of(Reconstruction(Timeline([made])), Partial({key: counts}), ["all"])
    assert estimate.theta == 37


def test_status_and_log_say_the_same() -> None:
    made = epoch()
    timeline = Timeline([made])
    budget = Budget.parse(4)
    status = json.loads(status_message(made, guarantee_of(timeline, budget), server.FIRST, {}))
    assert (status["theta"], status["ranges"]) == (37, [[0, -20, 37]])
    said = COLLECTIONS["scalar"].announce(made, budget.epsilon, (1, 2), 5)
    assert said[0][2]["theta"] == 37
    assert "37 Wh" in said[0][1]


def test_warnings_name_thresholds_in_the_readers_units() -> None:
    assert "would be 180, but becomes 94," in limit_change(choice(200), 57).notices[-1]
    assert "would be 180, but becomes 30, its limit" in limit_most(choice(200), 50).notices[-1]
    assert "would be -10 to 180, but becomes -10 to 82" in limit_range(choice(200, bottom=10), 12, 57, 1000).notices[-1]
    chosen = choice(200)
    assert threshold_from_json(threshold_to_json(chosen)).offset == OFFSET


def test_the_filter_weighs_chance_by_the_range_and_not_by_the_offset() -> None:
    made = epoch()
    rule = made.report
    assert rule is not None
    counts = np.zeros(rule.mechanism.symbols, dtype=np.int64)
    counts[0], counts[-1] = 60, 40
    cells = {
        Key("meters", made.campaign.fingerprint, report.REPORT, "other", server.FIRST + slot): counts
        for slot in range(8)
    }
    raw = estimates_of(Reconstruction(Timeline([made])), Partial(cells), ["all"])
    shifted = [replace(row, estimate=row.estimate - OFFSET, theta=(row.theta or 0) - OFFSET) for row in raw]
    ours = SeriesFilter(1, 4, bottom=Timeline([made]).bottom).noise(raw).chance
    assert ours == pytest.approx(SeriesFilter(1, 4).noise(Estimates.of(shifted)).chance)
    assert ours > 0


def test_the_filter_weighs_chance_by_the_range_and_not_by_the_distance_of_the_readings_from_zero() -> None:
    bottom = Timeline([Epoch(server.campaign(theta=THETA, low=40, offset=OFFSET), server.FIRST - 10)]).bottom
    assert (bottom(server.FIRST), bottom(server.FIRST - 1)) == (OFFSET + 40, 0)
    few = np.full(8, 25)
    rows = [
        Estimate(server.FIRST + i, 0, Series(), "report", n, 0, 27.0, 5.0, None, None, theta=37)
        for i, n in enumerate(few.tolist())
    ]
    raw = Estimates.of(rows)
    # Readings in [20, 37] with mean 27 have a variance of at most (27 - 20)(37 - 27). A range of [0, 37] would allow 27
    # · 10.
    ours, from_zero = SeriesFilter(1, 4, bottom=bottom).noise(raw).chance, SeriesFilter(1, 4).noise(raw).chance
    assert ours == pytest.approx(from_zero * np.sqrt(7 * 10 / (27 * 10)))


@pytest.mark.parametrize("most", [-20, -21, 981])
def test_a_limit_of_theta_is_a_reading(most: int) -> None:
    plan = server.plan(offset=OFFSET, default=OFFSET, bound=1000)
    assert replace(plan, theta_max=-19).theta_max == -19
    with pytest.raises(Invalid, match="theta_max"):
        replace(plan, theta_max=most)
