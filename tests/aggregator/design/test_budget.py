from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from support.refusal import refused
from undertone_aggregator.design.budget import Budget, best_fraction, exponential_below, shown
from undertone_shared.errors import Invalid


def test_exponential_is_a_tight_lower_bound():
    for epsilon in ("0.05", "0.7", "1", "8"):
        # At ε = 0.05 the bound is less than 1e-172 below e^ε. With 200 digits, the rounding of Decimal is far smaller.
        with localcontext() as context:
            context.prec = 200
            exponential = Fraction(Decimal(epsilon).exp())
        assert 0 < exponential - exponential_below(Fraction(epsilon)) < Fraction(1, 10**30)


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
    assert Budget.parse(0.1) == Budget.parse("0.1") == Budget.parse(Fraction(1, 10)) == Budget(Fraction(1, 10))
    assert (
        Budget.parse("1/20", "0.00001") == Budget.parse("5e-2", 1e-5) == Budget(Fraction(1, 20), Fraction(1, 100_000))
    )


@pytest.mark.parametrize(
    "epsilon",
    [0, -1, 0.049, 8.01, float("nan"), float("inf"), "one", "", "1/0", "1e999999999", "1e-999999999", "1" * 50, True],
)
def test_bad_epsilon_is_one_sentence(epsilon):
    with refused("epsilon", "0.05", 8):
        best_fraction(epsilon)


def test_too_small_a_numerator():
    with pytest.raises(Invalid, match="largest is 4"):
        best_fraction("0.05", 4)


def test_people_and_programs_read_a_budget():
    pure, stream = Budget.parse("0.1"), Budget.parse(4, 1e-5)
    assert (pure.text, stream.text) == ("ε = 0.1", "(ε, δ) = (4, 1e-05)")
    assert (pure.approximate, stream.approximate) == ((0.1, 0.0), (4.0, 1e-5))
    assert pure.as_json() == {"epsilon": 0.1, "delta": None}
    assert stream.as_json() == {"epsilon": 4.0, "delta": 1e-5}
    assert shown(Fraction(2, 3), 3) == "0.667"


@pytest.mark.parametrize("budget", [Budget.parse("0.3333"), Budget.parse(2, 1e-9), Budget(Fraction(1, 3))])
def test_what_a_store_keeps_is_the_budget(budget):
    assert Budget.stored(str(budget.epsilon), budget.as_json()["delta"]) == budget
    assert Budget.stored(str(budget.epsilon), "" if budget.delta is None else str(float(budget.delta))) == budget


@pytest.mark.parametrize("epsilon", ["0.05", "1", "8"])
def test_the_cap_is_just_below_the_exponential(epsilon):
    p, q = Budget.parse(epsilon).cap
    bound = exponential_below(Fraction(epsilon))
    assert bound - Fraction(1, 2**47) < Fraction(p, q) <= bound


@pytest.mark.parametrize("delta", [0, -1e-9, 1, 1.5, float("nan"), float("inf"), True, "x"])
def test_bad_delta_is_one_sentence(delta):
    with refused("delta", "1e-300", "0.99"):
        Budget.parse(1, delta)


def test_no_budget_out_of_range_exists():
    with refused("epsilon", "0.05", 8):
        Budget(Fraction(9))
    with pytest.raises(Invalid, match=r"^delta is "):
        Budget(Fraction(1), Fraction(1))
