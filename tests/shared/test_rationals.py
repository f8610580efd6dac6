"""The parser of privacy parameters agrees with `Fraction`, which reads the same texts."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.refusal import refused
from undertone_shared.off_board.rationals import rational


@pytest.mark.parametrize(
    "value", ["1", "0.1", ".5", "2.", "1e-05", "1E-5", "2.5e+0", "1/20", "007", 3, 0.1, Fraction(1, 3)]
)
def test_a_number_is_what_is_written(value: Any) -> None:
    assert Fraction(*rational("epsilon", value, "1e-6", "10")) == Fraction(str(value))


@given(st.fractions(0, 100, max_denominator=10**9) | st.floats(1e-300, 100) | st.decimals(0, 100, places=9).map(str))
def test_the_rational_is_fractions(value: Any) -> None:
    assert Fraction(*rational("x", value, "0", "100")) == Fraction(str(value))


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "e5", "1e", "1e999999999", "-1", "+1", " 1", "1 ", "1_0", "\u0661", "nan", "inf", "1/0", "1/", "/2"),
        *("1/2/3", "0.049999999999999999", "8.0000000000000000001", "1e401", "0" * 41, True, None, [1], b"1"),
        *(float("nan"), float("inf"), -1, Fraction(1, 21), 1 << 2000),
    ],
)
def test_anything_else_is_refused_by_its_name(value: Any) -> None:
    with refused("epsilon", "0.05", 8):
        rational("epsilon", value, "0.05", "8")


def test_both_ends_are_allowed() -> None:
    assert rational("epsilon", "0.05", "0.05", "8") == (5, 100)
    assert rational("epsilon", 8, "0.05", "8") == (8, 1)
