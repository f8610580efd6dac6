"""The rule of a scalar campaign, and checks of single values: what they accept and what they refuse."""

from undertone_shared.checks import check_cap, check_integer, integers
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.scalar import Cohort, ReportRule, ScalarRule

SMALL = 1 << 30
HYBRID = Hybrid(20000, WindowMechanism(2, 1, 1, 1, 1), WindowMechanism(2, 1, 3, 2, 16, None, 2))
SQUARE_WAVE = WindowMechanism(2, 1, 3, 1, 3, (0, 100, 200, 500, 1000))


def refused(function, *arguments):
    try:
        function(*arguments)
    except Invalid:
        return True
    return False


def test_a_square_wave_is_for_the_cohort_alone():
    assert Cohort(SQUARE_WAVE).mechanism is SQUARE_WAVE
    assert refused(Cohort, HYBRID)
    assert refused(ReportRule, 0, 300, SQUARE_WAVE)


def test_the_width_is_what_lies_between_low_and_theta():
    rule = ReportRule(100, 400, HYBRID)
    assert (rule.low, rule.theta, rule.width) == (100, 400, 300)


def test_readings_have_thirty_bits():
    assert ReportRule(SMALL - 301, SMALL - 1, HYBRID).theta == SMALL - 1
    assert refused(ReportRule, SMALL - 300, SMALL, HYBRID)
    assert refused(ReportRule, -1, 299, HYBRID)
    assert refused(ReportRule, 300, 300, HYBRID)


def test_blocks_of_a_cycle_are_in_order_and_at_most_eight():
    later = tuple([(first, 0, 300) for first in range(1, 8)])
    rule = ReportRule(100, 400, HYBRID, later)
    assert len(rule.ranges) == 8
    assert [rule.range_of(slot, 48) for slot in (0, 1, 47, 48, 49)] == [
        (100, 400),
        (0, 300),
        (0, 300),
        (100, 400),
        (0, 300),
    ]
    assert refused(ReportRule, 100, 400, HYBRID, later + ((8, 0, 300),))
    assert refused(ReportRule, 0, 300, HYBRID, ((0, 0, 300),))
    assert refused(ReportRule, 0, 300, HYBRID, ((5, 0, 300), (5, 0, 300)))
    assert refused(ReportRule, 0, 300, HYBRID, ((5, 0, 300), (4, 0, 300)))


def test_lists_of_integers_are_checked_one_by_one():
    assert integers("it", [SMALL - 1, 1 - SMALL], 2, 2) == (SMALL - 1, 1 - SMALL)
    for bad in ([1], [1, 2, 3], (1, 2), None, [1, SMALL], [-SMALL, 1], [1, 1.0], [True, 1], ["1", 1]):
        assert refused(integers, "it", bad, 2, 2), bad
    try:
        integers("it", [1, SMALL], 2, 2)
    except Invalid as error:
        assert str(error) == "it[1] is %d, expected an integer from %d to %d" % (SMALL, 1 - SMALL, SMALL - 1)


def test_a_cap_is_a_ratio_of_at_least_one():
    for cap in ([1, 1], (2, 1), [1 << 62, 1], [1 << 62, 1 << 62]):
        check_cap(cap)
    for cap in ([1, 2], [1, 0], [0, 0], [2], [2, 1, 1], None, [2.0, 1], [(1 << 62) + 1, 1], [1 << 63, (1 << 62) + 1]):
        assert refused(check_cap, cap), cap


def test_an_integer_is_within_its_limits_and_no_boolean():
    assert [check_integer("it", n, 3, 5) for n in (3, 4, 5)] == [3, 4, 5]
    for bad in (2, 6, True, 4.0, "4", None):
        assert refused(check_integer, "it", bad, 3, 5), bad
    assert refused(check_integer, "it", True, 0, 1)


class Recorder:
    """A mechanism that notes what it was asked for, and always draws 7."""

    edges = None

    def covers(self, width):
        return True

    def choose(self, entropy):
        return self

    def level(self, x, width, entropy):
        self.asked = (x, width)
        return 3

    def draw(self, level, entropy):
        assert level == 3
        return 7


class Scale:
    offset, bound, cycle = -50, 1000, 48


def test_a_reading_is_truncated_to_the_block_of_its_slot_or_for_the_cohort_to_the_bound():
    cohort, rest = Cohort(SQUARE_WAVE), Recorder()
    cohort.mechanism = everything = Recorder()
    rule = ScalarRule(cohort, ReportRule(100, 400, rest, ((12, 200, 900),)))
    for slot, reading, asked in (
        (0, 5000, (300, 300)),
        (11, -50, (0, 300)),
        (12, 5000, (700, 700)),
        (48, 250, (200, 300)),
    ):
        assert rule.draw(Scale, slot, reading, False, None, None) == (1, (7,), 0)
        assert rest.asked == asked
    for reading, x in ((-51, 0), (-50, 0), (-49, 1), (949, 999), (5000, 1000)):
        assert rule.draw(Scale, 0, reading, True, None, None) == (0, (7,), 0)
        assert everything.asked == (x, 1000)
    # In a threshold epoch, every device reports for the threshold.
    assert ScalarRule(cohort, None).draw(Scale, 0, 100, False, None, None) == (0, (7,), 0)
    assert everything.asked == (150, 1000)
    assert refused(rule.draw, Scale, 0, 1.5, False, None, None)


def test_a_width_of_one_is_enough():
    assert ReportRule(5, 6, HYBRID).width == 1
    assert ReportRule(0, 300, HYBRID, ((4, 299, 300),)).ranges[1] == (4, 299, 300)
