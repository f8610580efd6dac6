"""Parsing of a number in text as an exact rational: 0.1 is 1/10, not the nearest double.

A board does not carry this module.
"""

from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LARGEST_TEXT = 40
_LARGEST_EXPONENT = 400


def rational(name: str, value: "Any", least: str, most: str) -> "tuple[int, int]":
    """Parse a decimal number or a fraction such as 0.05, 1e-5 or 1/20 to (p, q), q > 0, ``least`` <= p/q <= ``most``.

    ``value`` is text, a Fraction, an integer or a float; a float means the decimal number that ``str`` prints for it.
    Raises Invalid, naming the field ``name``, for any other value.
    """
    written = None
    if isinstance(value, (str, float)):
        written = _written(str(value))
    elif hasattr(value, "denominator") and not isinstance(value, bool):
        written = int(value.numerator), int(value.denominator)
    if written is not None:
        (a, b), (c, d), (p, q) = _known(least), _known(most), written
        if a * q <= p * b and p * d <= c * q:
            return written
    raise Invalid("%s is %r, expected a number from %s to %s" % (name, value, least, most))


def _known(text: str) -> "tuple[int, int]":
    written = _written(text)
    if written is None:
        raise ValueError("%s is not a number" % text)
    return written


def _written(text: str) -> "tuple[int, int] | None":
    if len(text) > _LARGEST_TEXT:
        return None
    try:
        if "/" in text:
            above, below = text.split("/")
            p, q = _digits(above), _digits(below)
            return (p, q) if q else None
        mantissa, mark, power = text.lower().partition("e")
        exponent = 0
        if mark:
            exponent = -_digits(power[1:]) if power[:1] == "-" else _digits(power[power[:1] == "+" :])
        whole, _, part = mantissa.partition(".")
        if not whole + part or exponent > _LARGEST_EXPONENT or exponent < -_LARGEST_EXPONENT:
            return None
        p, exponent = _digits(whole + part), exponent - len(part)
        return (p * 10**exponent, 1) if exponent >= 0 else (p, 10**-exponent)
    except ValueError:
        return None


def _digits(text: str) -> int:
    """Parse digits. Raises ValueError for anything else: a sign, a space, an underscore."""
    if not text or text.strip("0123456789"):
        raise ValueError("not digits")
    return int(text)
