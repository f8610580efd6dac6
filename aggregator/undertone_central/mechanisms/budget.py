"""Privacy parameters of central releases, parsed to the exact rationals that their text denotes."""

from collections.abc import Sequence
from fractions import Fraction

from undertone_shared.errors import Invalid
from undertone_shared.off_board.rationals import rational

LEAST, MOST = "0.0001", "20"
# Largest ε of a release, the same as for reports. Inside a mechanism, an ε up to MOST may be used.
OFFERED = "8"

Epsilon = Fraction | float | str


def parse_epsilon(epsilon: Epsilon, most: str = MOST) -> Fraction:
    """Parse ε. Raises Invalid unless it is a number from 0.0001 to ``most``, by default 20."""
    return Fraction(*rational("epsilon", epsilon, LEAST, most))


def parse_delta(delta: Epsilon) -> Fraction:
    """Parse δ. Raises Invalid unless it is a number from 1e-30 to 0.1."""
    return Fraction(*rational("delta", delta, "1e-30", "0.1"))


def parse_share(name: str, share: Epsilon, most: str = "0.9999") -> Fraction:
    """Parse a share. Raises Invalid unless it is a number from 0.0001 to ``most``."""
    return Fraction(*rational(name, share, LEAST, most))


def parse_positive(name: str, value: Epsilon) -> Fraction:
    """Parse a positive number. Raises Invalid unless it is a number from 1e-6 to 1e12."""
    return Fraction(*rational(name, value, "1e-6", "1e12"))


def check_bound(bound: int) -> int:
    """Return the public bound B of a reading. Raises Invalid unless it is an integer from 1 to 2^30 - 1."""
    if isinstance(bound, bool) or not isinstance(bound, int) or not 1 <= bound < 1 << 30:
        raise Invalid(f"bound is {bound!r}, expected an integer from 1 to {(1 << 30) - 1}")
    return bound


def check_count(name: str, value: int, least: int, most: int) -> int:
    """Return ``value``. Raises Invalid unless it is an integer from ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{name} is {value!r}, expected an integer from {least} to {most}")
    return value


def check_word(name: str, value: str, words: Sequence[str]) -> str:
    """Return ``value``. Raises Invalid unless it is one of ``words``."""
    if value not in words:
        raise Invalid(f"{name} is {value!r}, expected one of {', '.join(words)}")
    return value
