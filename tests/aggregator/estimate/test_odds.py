"""How sure somebody who has n reports of a device can be of a guess.

For reports with the certificate c, this is c^n / (1 + c^n), rounded up.
"""

import math
from fractions import Fraction

import pytest

from support.refusal import refused
from undertone_aggregator.design import Budget
from undertone_aggregator.estimate.guarantee import EVENT, USER, WINDOW, Guarantee
from undertone_aggregator.estimate.odds import Odds, odds, surest

CAP = Fraction(2721, 1001)


def guarantee(level, span="one reading", certificate=CAP, delta=None):
    return Guarantee(level, span, Budget.parse(1, delta), None, certificate, "")


@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(3, 2), CAP, Fraction(4095, 75)])
@pytest.mark.parametrize("reports", [1, 2, 7, 48, 86400])
def test_the_bound_is_the_exact_number_rounded_up(ratio, reports):
    shown = Fraction(str(surest(ratio, reports)))
    if reports <= 48:
        exact = ratio**reports / (1 + ratio**reports)
        assert exact <= shown < exact + Fraction(1, 10**4)
    assert surest(ratio, reports) <= 1


def test_an_even_guess_stays_even_if_reports_say_nothing():
    assert surest(Fraction(1), 1000) == 0.5


def test_single_readings_are_protected_and_a_day_of_them_is_not():
    one, day = odds(guarantee(EVENT), 1800)
    assert one == Odds("one report", 1, 0.7311, 0.0)
    assert (day.of, day.reports, day.at_most) == ("all reports of a day", 48, 1.0)


def test_a_day_is_protected_where_devices_take_turns():
    _, window = odds(guarantee(WINDOW, "any 24 hours"), 1800)
    assert window == Odds("all reports of any 24 hours", 1, 0.7311, 0.0)


def test_the_whole_campaign_is_told_where_it_tells_more_than_a_day_or_a_window():
    for level, span, reports, told in (
        (EVENT, "one reading", 480, False),
        (EVENT, "one reading", 1, False),
        (WINDOW, "any 24 hours", 20, True),
        (WINDOW, "any 24 hours", 1, False),
    ):
        *_, last = odds(guarantee(level, span), 1800, reports)
        assert (last.of == "all reports of the whole campaign") is told
    assert (last := odds(guarantee(WINDOW, "any 24 hours"), 1800, 3)[-1]).at_most == surest(CAP, 3)
    assert last.reports == 3


def test_a_stream_is_protected_as_a_whole_but_for_delta():
    (whole,) = odds(guarantee(USER, "the whole campaign", certificate=None, delta="1e-5"), 1800)
    assert whole.of == "all reports in the whole campaign"
    assert whole.at_most == math.ceil(math.e / (1 + math.e) * 10**4) / 10**4
    assert whole.delta == pytest.approx(1e-5)


def test_an_unknown_level_is_refused():
    with refused("the level of protection", "'month'", "event, window or user"):
        odds(guarantee("month"), 1800)
