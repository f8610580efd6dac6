"""Privacy parameters of central releases, as the exact rationals that they are written as."""

from collections.abc import Sequence
from fractions import Fraction

from undertone_shared.errors import Invalid

LEAST = Fraction(1, 10_000)
MOST = Fraction(20)
_LARGEST_TEXT = 32

Epsilon = Fraction | float | str


def parse_epsilon(epsilon: Epsilon) -> Fraction:
    """0.1 is 1/10, not the nearest double. Raises Invalid unless it is a number from 0.0001 to 20."""
    return _parse("epsilon", epsilon, LEAST, MOST)


def parse_delta(delta: Epsilon) -> Fraction:
    """Raises Invalid unless it is a number from 1e-30 to 0.1."""
    return _parse("delta", delta, Fraction(1, 10**30), Fraction(1, 10))


def parse_share(name: str, share: Epsilon, most: Fraction = 1 - LEAST) -> Fraction:
    """Raises Invalid unless it is a number from 0.0001 to ``most``."""
    return _parse(name, share, LEAST, most)


def parse_positive(name: str, value: Epsilon) -> Fraction:
    """Raises Invalid unless it is a number from 1e-6 to 1e12."""
    return _parse(name, value, Fraction(1, 10**6), Fraction(10**12))


def check_bound(bound: int) -> int:
    """The public bound B of a reading. Raises Invalid unless it is an integer from 1 to 2^30 - 1."""
    if isinstance(bound, bool) or not isinstance(bound, int) or not 1 <= bound < 1 << 30:
        raise Invalid(f"bound is {bound!r}, expected an integer from 1 to {(1 << 30) - 1}")
    return bound


def check_count(name: str, value: int, least: int, most: int) -> int:
    """Raises Invalid unless ``value`` is an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{name} is {value!r}, expected an integer from {least} to {most}")
    return value


def check_word(name: str, value: str, known: Sequence[str]) -> str:
    """Raises Invalid unless ``value`` is one of ``known``."""
    if value not in known:
        raise Invalid(f"{name} is {value!r}, expected one of {', '.join(known)}")
    return value


def _parse(name: str, value: Epsilon, least: Fraction, most: Fraction) -> Fraction:
    sentence = f"{name} is {value!r}, expected a number from {float(least):g} to {float(most):g}"
    if isinstance(value, bool) or not isinstance(value, (Fraction, int, float, str)):
        raise Invalid(sentence)
    if not isinstance(value, Fraction):
        text = str(value)
        try:
            # As a double first: an exponent that is out of range never becomes a large integer.
            if len(text) > _LARGEST_TEXT or not float(least) / 2 < float(text) < 2 * float(most):
                raise Invalid(sentence)
            value = Fraction(text)
        except ValueError:
            raise Invalid(sentence) from None
    if not least <= value <= most:
        raise Invalid(sentence)
    return value
