from fractions import Fraction
from math import exp

import pytest

from undertone_aggregator.design.budget import best_fraction, exponential_below, local_epsilon
from undertone_shared.errors import Invalid


def test_exponential_is_a_tight_lower_bound():
    for epsilon in (Fraction(1, 20), Fraction(1), Fraction(8)):
        below = exponential_below(epsilon)
        # The remainder of the series is below twice its first omitted term.
        term = Fraction(1)
        for i in range(1, 65):
            term *= epsilon / i
        assert term * 2 < Fraction(1, 10**30)
        assert float(below) == pytest.approx(exp(epsilon), rel=1e-15)


@pytest.mark.parametrize(("epsilon", "expected"), [(1, (2721, 1001)), (2, (2564, 347)), (4, (3931, 72))])
def test_known_fractions(epsilon, expected):
    assert best_fraction(epsilon) == expected


@pytest.mark.parametrize("epsilon", ["0.05", "0.1", "0.3333", "1.23456", "6.54", "8"])
def test_fraction_is_proven_and_best(epsilon):
    a, b = best_fraction(epsilon, 999)
    bound = exponential_below(Fraction(epsilon))
    assert 1 <= b < a <= 999
    assert Fraction(a, b) <= bound
    assert all(Fraction(n, m) <= Fraction(a, b) for n in range(2, 1000) for m in (int(n / bound) + 1,))


def test_a_decimal_is_taken_as_written():
    assert local_epsilon(0.1) == local_epsilon("0.1") == local_epsilon(Fraction(1, 10)) == Fraction(1, 10)
    assert local_epsilon("5e-2") == Fraction(1, 20)


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, 0.049, 8.01, float("nan"), float("inf"), "one", "", "1/2", "1e999999999", "1e-999999999", "1" * 50, True],
)
def test_bad_epsilon_is_one_sentence(epsilon):
    with pytest.raises(Invalid, match=r"^epsilon is .*, expected a decimal number from 0\.05 to 8$"):
        best_fraction(epsilon)


def test_too_small_a_numerator():
    with pytest.raises(Invalid, match="largest is 4"):
        best_fraction("0.05", 4)
