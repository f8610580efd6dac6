"""Conversion of epsilon to whole units of 2^-20, in which sums are kept.

The policy's limit on a single draw needs no units: e^epsilon is a rational there.
"""

UNIT = 1 << 20
_ONE = 1 << 64
_TERMS = 20


def epsilon_units(a: int, b: int) -> int:
    """Return m = ceil(2^20 ln(a/b)) in integers: never below 2^20 ln(a/b), less than one above it. a >= b >= 1.

    ln(a/b) = k ln 2 + 2 artanh(z), z = (a - 2^k b)/(a + 2^k b) < 1/3: 20 terms of the series and a bound of the rest,
    every product rounded up in 64 bits, one ceiling at the end.
    """
    halvings = 0
    while a >= 2 * b:
        b *= 2
        halvings += 1
    z = _up((a - b) * _ONE, a + b)
    square = _up(z * z, _ONE)
    power = z
    total = _up(halvings * 69314718056 * _ONE, 10**11)
    for i in range(_TERMS):
        total += _up(2 * power, 2 * i + 1)
        power = _up(power * square, _ONE)
    total += _up(2 * power * _ONE, (2 * _TERMS + 1) * (_ONE - square))
    return _up(total, _ONE // UNIT)


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
