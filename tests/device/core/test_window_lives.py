"""Random lives whose household is shown what any 24 hours cost. What is shown is never less than what was drawn."""

import math

import pytest
from window_model import Life, base_of_any_age, cap_by_the_campaign, draw_ahead

from undertone_device.host.home_assistant import seen_of
from undertone_device.host.status import describe

# (promise, seed of a life, mutant): with the mutant, this life breaks the promise.
FOUND = (
    ("rest", 407, base_of_any_age),
    ("pause", 17107, base_of_any_age),
    ("cap", 18, cap_by_the_campaign),
    ("ahead", 6, draw_ahead),
    ("silence", 30, draw_ahead),
)
# The card rounds to thousandths.
ROUNDING = 0.001


class Client:
    """Has the attributes of a client that a status needs."""

    online = True
    trouble = ""

    def __init__(self, reporter):
        self.reporter = reporter
        self.counts = {"connected": 1, "heard": 1, "sent": 0, "acked": 0, "sensor_failures": 0}


def shown(reporter, now):
    """The largest epsilon of any 24 hours, as the household's card shows it."""
    return seen_of(describe(Client(reporter), now))["day"] + ROUNDING


def shown_of_the_campaign(reporter, now):
    """The largest epsilon of any 24 hours, computed wrongly: from the present campaign alone."""
    campaign = reporter.campaign
    if campaign is None:
        return math.inf
    a, b = campaign.rule.mechanisms[0][1].certificate()
    return (86400 // campaign.slot_seconds + 2) * math.log(a / b)


def check(seeds):
    drawn = 0
    for seed in seeds:
        life = Life(seed, shown).run()
        assert life.broken == [], (seed, life.broken)
        drawn += len(life.draws)
    assert drawn > 8 * len(seeds)


@pytest.mark.slow
def test_no_life_breaks_a_promise_nor_is_shown_too_little():
    check(range(40))


@pytest.mark.parametrize(("promise", "seed", "mutant"), FOUND)
def test_what_was_wrong_breaks_its_promise_and_the_code_keeps_it(promise, seed, mutant):
    assert promise in Life(seed, shown, mutant).run().broken
    assert Life(seed, shown).run().broken == []


def test_what_the_campaign_in_force_costs_is_too_little():
    assert "day" in Life(0, shown_of_the_campaign).run().broken


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_lives_break_no_promise(part):
    check(range(1000 * part, 1000 * (part + 1)))
