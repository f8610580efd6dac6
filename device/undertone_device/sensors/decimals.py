"""Exact conversion of decimal numbers and IEEE floats to integers of the campaign's unit, rounded half up.

All intermediate results are integers.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    Scale = tuple[int, int]

LARGEST = (1 << 30) - 1
_LONGEST = 32


def units(text: str, scale: "Scale") -> int:
    """Return ``text`` (such as ``001234.567``) times the rational ``scale``. Raises ValueError for anything else."""
    sign = -1 if text[:1] == "-" else 1
    parts = text[1 if sign < 0 else 0 :].split(".")
    digits = "".join(parts)
    if len(parts) > 2 or "" in parts or len(digits) > _LONGEST:
        raise ValueError("not a decimal number")
    for digit in digits:
        if digit not in "0123456789":
            raise ValueError("not a decimal number")
    return scaled(sign * int(digits), 10 ** (len(digits) - len(parts[0])), scale)


def scaled(value: int, denominator: int, scale: "Scale") -> int:
    """Return ``value / denominator`` times ``scale``, rounded half up. Raises ValueError beyond 30 bits and sign."""
    top = value * scale[0]
    bottom = denominator * scale[1]
    result = (2 * top + bottom) // (2 * bottom)
    if not -LARGEST <= result <= LARGEST:
        raise ValueError("a reading is beyond 30 bits: set a scale, such as [1, 1000] for thousands")
    return result


def binary32(bits: int, scale: "Scale") -> int:
    """Return the IEEE 754 single of these 32 bits times ``scale``, rounded half up.

    Raises ValueError for NaN and infinities, and for a result beyond 30 bits and sign.
    """
    exponent = bits >> 23 & 0xFF
    if exponent == 0xFF:
        raise ValueError("not a finite number")
    mantissa = bits & 0x7FFFFF
    if exponent:
        mantissa |= 0x800000
    shift = max(exponent, 1) - 150
    if bits >> 31:
        mantissa = -mantissa
    return scaled(mantissa << shift, 1, scale) if shift >= 0 else scaled(mantissa, 1 << -shift, scale)
