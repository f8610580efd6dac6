"""What the ledger's sums say of a month: all of its days, the oldest one included, and no day more."""

from undertone_device.ledger import DAYS, GROUPS, RING, Sums
from undertone_device.spent import drawn_since, month

TODAY = 20000


def sums(most=4):
    made = Sums(memoryview(bytearray(RING + 8 * GROUPS)))
    made.limit(most, 0, 0)
    return made


def test_a_month_has_its_oldest_day_and_none_before():
    made = sums()
    made.spend(TODAY, 5)
    made.spend(TODAY + DAYS - 1, 7)
    assert month(made, TODAY + DAYS - 1) == 12
    # A day later the oldest one is over, also while nothing is spent.
    assert month(made, TODAY + DAYS) == 7
    made.spend(TODAY + DAYS, 1)
    assert month(made, TODAY + DAYS) == 8


def test_draws_since_count_whole_groups():
    made = sums(2)
    for start in (100, 200, 300):
        made.add(start, start)
    assert drawn_since(made, 300) == 1
    assert drawn_since(made, 200) == 2
    assert drawn_since(made, 301) == 0
