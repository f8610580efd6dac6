"""The warning that readings have moved since theta was chosen."""

import numpy as np
import pytest

from support.server import campaign, two_epochs
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.estimate.estimates import MEASURED, Estimate, Estimates, Series
from undertone_aggregator.estimate.reconstruct import Reconstruction
from undertone_aggregator.threshold import Threshold

CHOSEN = Threshold(500, 450, 600, 3.0, 1.0, 9.0, np.array([0.5, 0.4, 0.1]), (0, 100, 500, 1001), "robust", [])
# The mean of min(x, 500) under the distribution in CHOSEN, with each cell at its middle.
LEVEL = 0.5 * 49.5 + 0.4 * 299.5 + 0.1 * 500


def warnings(mean, error=2.0, slots=12, before=None):
    """The warnings for slots with this truncated mean.

    If ``before`` is given, as many slots with that mean come first.
    """
    second = two_epochs()[1].campaign
    timeline = Timeline([Epoch(campaign(), 0), Epoch(second, 0, threshold_to_json(CHOSEN))])
    first = second.first_slot
    means = ([] if before is None else [before] * slots) + [mean] * slots
    estimates = [
        Estimate(slot, slot, Series(), MEASURED, 500, 0, mean, error, mean - 4, mean + 4, 500)
        for slot, mean in enumerate(means, first)
    ]
    return Reconstruction(timeline).warnings(Estimates.of(estimates))


@pytest.mark.parametrize("share", [0.9, 1.0, 1.1])
def test_readings_as_they_were_are_no_news(share):
    assert warnings(LEVEL * share) == []


@pytest.mark.parametrize(("share", "word"), [(1.6, "theta is stale"), (0.4, "theta is stale")])
def test_readings_that_moved_are_told(share, word):
    (sentence,) = warnings(LEVEL * share)
    assert sentence.startswith(word)
    assert "truncation removes about" in sentence


def test_what_noise_could_do_is_no_news():
    assert warnings(LEVEL * 1.6, error=2000.0) == []


def test_an_hour_is_no_level():
    """Slots for less than half of a cycle say nothing about the readings of a day."""
    assert two_epochs()[1].campaign.cycle == 4
    assert warnings(LEVEL * 1.6, slots=1) == []


def test_it_is_the_newest_level_that_is_told():
    (newest,), (alone,) = warnings(LEVEL * 1.6, before=LEVEL), warnings(LEVEL * 1.6)
    assert newest.partition(";")[0] == alone.partition(";")[0]
    assert warnings(LEVEL, before=LEVEL * 1.6) == []
