"""Privacy parameters of central releases, as the exact rationals that they are written as."""

from collections.abc import Sequence
from fractions import Fraction

from undertone_shared.errors import Invalid
from undertone_shared.off_board.rationals import rational

LEAST, MOST = "0.0001", "20"
# The most that a release may be asked for, as with reports; what a mechanism uses within may be more.
OFFERED = "8"

Epsilon = Fraction | float | str


def parse_epsilon(epsilon: Epsilon, most: str = MOST) -> Fraction:
    """Raises Invalid unless it is a number from 0.0001 to ``most``, 20 within mechanisms."""
    return Fraction(*rational("epsilon", epsilon, LEAST, most))


def parse_delta(delta: Epsilon) -> Fraction:
    """Raises Invalid unless it is a number from 1e-30 to 0.1."""
    return Fraction(*rational("delta", delta, "1e-30", "0.1"))


def parse_share(name: str, share: Epsilon, most: str = "0.9999") -> Fraction:
    """Raises Invalid unless it is a number from 0.0001 to ``most``."""
    return Fraction(*rational(name, share, LEAST, most))


def parse_positive(name: str, value: Epsilon) -> Fraction:
    """Raises Invalid unless it is a number from 1e-6 to 1e12."""
    return Fraction(*rational(name, value, "1e-6", "1e12"))


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
