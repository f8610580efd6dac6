"""What is published, and what it tells the world."""

import pytest

from support import server
from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, RELEASED, Estimate, Series
from undertone_aggregator.estimate.world import publishable, world_learns
from undertone_aggregator.rounds import Rounds


def estimate(kind, reports, cohort, group="all"):
    return Estimate(1, 1, Series(group), kind, reports, cohort, 5.0, None, None, None, None)


def test_few_reports_are_not_published():
    estimates = [estimate(MEASURED, 9, 50), estimate(MEASURED, 10, 0), estimate(MODEL, 0, 9), estimate(MODEL, 0, 10)]
    assert publishable(estimates, 10) == [estimates[1], estimates[3]]


@pytest.mark.parametrize(("window", "releases"), [(None, 4), ("4s", 1)])
def test_the_smallest_number_and_a_households_turns_count(window, releases):
    options = {} if window is None else {"window": f'"{window}"'}
    plan = server.plan(bound=1, epsilon=2, **options)
    epoch = Rounds(plan, server.SEED, None).first(server.FIRST)
    told = world_learns(epoch, [estimate(MEASURED, 900, 3), estimate(MEASURED, 300, 1)])
    assert (told.reports, told.releases) == (300, releases)
    two = world_learns(epoch, [estimate(MEASURED, 900, 3), estimate(MEASURED, 300, 1, "north")])
    assert two.releases == 2 * releases
    assert world_learns(epoch, [estimate(MODEL, 0, 40)]) is None
    assert world_learns(Epoch(server.campaign(), server.FIRST), [estimate(MEASURED, 900, 3)]) is None


def test_a_streams_numbers_count_their_reports():
    few, enough = (
        Estimate(slot, slot, Series(), RELEASED, reports, 0, 5.0, 1.0, 3.0, 7.0, 500)
        for slot, reports in ((1, 9), (2, 10))
    )
    assert publishable([few, enough], 10) == [enough]
