"""How much the published numbers reveal to everybody."""

import pytest

from support import server
from undertone_aggregator.campaign.epoch_source import EpochMeans
from undertone_aggregator.campaign.rounds import Rounds
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.estimate.world import world_learns


@pytest.mark.parametrize(("window", "releases"), [(None, 4), ("4s", 1)])
def test_the_smallest_number_and_a_households_turns_count(window, releases):
    options = {} if window is None else {"window": f'"{window}"'}
    plan = server.plan(bound=1, epsilon=2, **options)
    epoch = Rounds(plan, EpochMeans(server.SEED, None)).first(server.FIRST)
    told = world_learns(epoch, 300)
    assert (told.reports, told.releases) == (300, releases)
    assert world_learns(epoch, 0) is None
    assert world_learns(Epoch(server.campaign(), server.FIRST), 300) is None
