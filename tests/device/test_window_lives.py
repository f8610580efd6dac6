"""Random lives whose household is shown what any 24 hours cost: it is never less than what was drawn in any.

The code before this test broke promises in these of the first 5,000 lives (see `window_model.Life`):
"""

import pytest
from window_model import Life

from undertone_device.home import seen_of
from undertone_device.status import describe

ROUNDING = 0.001


class Client:
    """As much of a client as a status is made of."""

    online = True
    trouble = ""

    def __init__(self, reporter):
        self.reporter = reporter
        self.counts = {"connected": 1, "heard": 1, "sent": 0, "acked": 0, "sensor_failures": 0}


def shown(reporter, now):
    """The most epsilon of any 24 hours, as the household's card shows it."""
    return seen_of(describe(Client(reporter), now))["day"] + ROUNDING


def check(seeds):
    drawn = 0
    for seed in seeds:
        life = Life(seed, shown).run()
        assert life.broken == [], (seed, life.broken)
        drawn += len(life.draws)
    assert drawn > 8 * len(seeds)


def test_no_life_breaks_a_promise_nor_is_shown_too_little():
    check(range(40))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_lives_break_no_promise(part):
    check(range(1000 * part, 1000 * (part + 1)))
