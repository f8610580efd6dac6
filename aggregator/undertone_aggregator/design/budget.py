"""Privacy budgets as rationals: integers a, b with a/b <= e^epsilon, proven without a float."""

from fractions import Fraction
from functools import lru_cache

from undertone_shared.errors import Invalid

LEAST = Fraction(1, 20)
MOST = Fraction(8)
LARGEST_NUMERATOR = 4095
_TERMS = 64
_LARGEST_TEXT = 32
_CAP_DENOMINATOR = 1 << 48


def local_epsilon(epsilon: Fraction | float | str) -> Fraction:
    """The exact rational that ``epsilon`` is written as: 0.1 is 1/10, not the nearest double.

    Raises Invalid unless it is a decimal number (or a Fraction) from 0.05 to 8.
    """
    sentence = f"epsilon is {epsilon!r}, expected a decimal number from 0.05 to 8"
    if isinstance(epsilon, bool) or not isinstance(epsilon, (Fraction, int, float, str)):
        raise Invalid(sentence)
    if not isinstance(epsilon, Fraction):
        text = str(epsilon)
        try:
            # As a double first: an exponent that is out of range never becomes a large integer.
            if len(text) > _LARGEST_TEXT or not 0.04 < float(text) < 9:
                raise Invalid(sentence)
            epsilon = Fraction(text)
        except ValueError:
            raise Invalid(sentence) from None
    if not LEAST <= epsilon <= MOST:
        raise Invalid(sentence)
    return epsilon


def exponential_below(epsilon: Fraction) -> Fraction:
    """A rational lower bound of e^epsilon, epsilon in [0, 8]: 64 terms of its Taylor series, all positive.

    The remainder is below 1e-30.
    """
    term = total = Fraction(1)
    for i in range(1, _TERMS):
        term *= epsilon / i
        total += term
    return total


def cap(epsilon: Fraction | float | str) -> tuple[int, int]:
    """(p, q) with p/q <= e^epsilon, less than 2^-47 below it: what to hold a mechanism to. Raises Invalid."""
    bound = exponential_below(local_epsilon(epsilon))
    return (bound.numerator * _CAP_DENOMINATOR // bound.denominator, _CAP_DENOMINATOR)


# A server's rounds, its epochs and its policy all ask for the same one; 1 and True are not.
@lru_cache(maxsize=64, typed=True)
def best_fraction(epsilon: Fraction | float | str, largest: int = LARGEST_NUMERATOR) -> tuple[int, int]:
    """The largest rational a/b <= e^epsilon with a <= ``largest``, in lowest terms.

    a * denominator <= b * numerator of ``exponential_below`` proves the bound. Raises Invalid for an epsilon out of
    range, or where no a/b > 1 is small enough.
    """
    bound = exponential_below(local_epsilon(epsilon))
    best = (1, 1)
    for a in range(2, largest + 1):
        # The least b with a/b <= bound.
        b = -(-a * bound.denominator // bound.numerator)
        if a * best[1] > best[0] * b:
            best = (a, b)
    if best == (1, 1):
        raise Invalid(f"largest is {largest}, too small for a fraction between 1 and e^{epsilon}")
    return best
