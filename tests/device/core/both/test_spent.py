"""What the ledger's sums say about a month: they count all of its days, including the oldest, and no other day."""

from rig import make_policy

from undertone_device.core.ledger import DAYS, GROUPS, RING, Sums
from undertone_device.core.spent import drawn_since, month, most_reports

TODAY = 20000


def sums(most=4):
    made = Sums(memoryview(bytearray(RING + 8 * GROUPS)))
    made.limit(most, 0, 0)
    return made


def test_a_month_has_its_oldest_day_and_none_before():
    made = sums()
    made.spend(TODAY, 5)
    made.spend(TODAY + DAYS - 1, 7)
    assert month(made, TODAY + DAYS - 1, 0) == 12
    # A day later, the oldest day no longer counts, even if nothing is spent meanwhile.
    assert month(made, TODAY + DAYS, 0) == 7
    made.spend(TODAY + DAYS, 1)
    assert month(made, TODAY + DAYS, 0) == 8


def test_a_day_that_costs_more_than_its_place_holds_is_shown_no_less():
    made = sums()
    ever = 0
    # A day of slots of two seconds with epsilon = 1 each costs 43,200 times 2^20 units. A day's sum has 32 bits.
    for _ in range(5):
        made.spend(TODAY, 8640 << 20)
        ever += 8640 << 20
    assert month(made, TODAY, ever) == ever
    assert month(made, TODAY + DAYS, ever) == 0


def test_draws_since_count_whole_groups():
    made = sums(2)
    for start in (100, 200, 300):
        made.add(start, start)
    assert drawn_since(made, 300) == 1
    assert drawn_since(made, 200) == 2
    assert drawn_since(made, 301) == 0


def touched(slot, rest, seconds, readings):
    """The largest number of intervals that a window of ``seconds`` touches.

    ``readings``: for a counter, when it is read in each slot, in seconds from the slot's beginning. None for other
    measures.
    """
    intervals = []
    end = 0
    for i in range(1, 9):
        start = i * slot
        if readings is None:
            interval = (start, start + slot)
            begins = start
        else:
            interval = ((i - 1) * slot + readings[i - 1], start + readings[i])
            begins = start - slot
        if not rest or not intervals or begins >= end + rest:
            intervals.append(interval)
            end = start + slot
    most = 0
    for start in range(slot, 7 * slot - seconds):
        most = max(most, len([i for i in intervals if i[0] < start + seconds and start < i[1]]))
    return most


def test_what_any_window_can_touch_is_said_and_no_more():
    slot = 3
    for rest in (0, 3, 6):
        other, counter = [
            make_policy(slot_seconds=slot, rest_seconds=rest, reports_per_period=1000, measures=measures)
            for measures in (["mean"], ["counter"])
        ]
        for seconds in (2, 3, 6, 7):
            assert touched(slot, rest, seconds, None) <= most_reports(other, seconds)
            worst = 0
            for late in range(9):
                # The first ``late`` slots have their readings near the end, and the other slots at the beginning.
                worst = max(worst, touched(slot, rest, seconds, [2 if i < late else 0 for i in range(9)]))
            most = most_reports(counter, seconds)
            assert worst <= most, (rest, seconds)
            if not rest and seconds == 6:
                assert (worst, touched(slot, rest, seconds, None)) == (4, 3) == (most, most - 1)


def test_the_newest_group_counts_what_it_holds_and_the_others_are_full():
    made = sums(96)
    for start in range(1, 6):
        made.add(start, start)
    # Draws are counted in groups of two. Two groups are full, and the third has one draw.
    assert drawn_since(made, 0) == drawn_since(made, 1) == 5
    assert drawn_since(made, 4) == 3
    assert drawn_since(made, 5) == 1
    made = sums(4)
    made.add(1, 1)
    assert drawn_since(made, 0) == 1, "a draw in second 1 counts"


def test_the_most_reports_of_a_time_are_the_least_of_what_caps_and_rests_allow():
    slot, day = 1800, 86400
    policy = make_policy(reports_per_period=4, measures=["mean"])
    counting = make_policy(reports_per_period=4, measures=["counter"])
    for seconds, value, counter in (
        (slot, 2, 3),
        (day, 5, 6),
        (day + 1, 6, 7),
        (day + 3 * slot, 8, 9),
        (2 * day - 1, 9, 10),
        (2 * day, 9, 10),
    ):
        assert most_reports(policy, seconds) == value, seconds
        assert most_reports(counting, seconds) == counter, seconds
    # A time of 40 slots touches up to 41 slots, of which every third may be drawn. A counter's value covers two slots,
    # so up to 42 are touched, and every fourth may be drawn.
    for measures, expected in ((["mean"], 14), (["counter"], 11)):
        assert most_reports(make_policy(rest_seconds=2 * slot, measures=measures), 40 * slot) == expected


def test_beside_another_measure_a_counter_makes_no_bound_smaller():
    slot = 3
    for rest in (0, 3, 6):
        for seconds in (6, 20, 86400):
            ways = [
                most_reports(make_policy(slot_seconds=slot, rest_seconds=rest, measures=measures), seconds)
                for measures in (["mean"], ["counter"], ["mean", "counter"])
            ]
            assert ways[2] == max(ways), (rest, seconds)
    # With slots of an hour and a rest of half an hour, a day touches up to 17 reports of means, but 11 of a counter.
    for measures, expected in ((["mean"], 17), (["counter"], 11), (["mean", "counter"], 17)):
        policy = make_policy(slot_seconds=3600, rest_seconds=1800, reports_per_period=48, measures=measures)
        assert most_reports(policy, 86400) == expected
