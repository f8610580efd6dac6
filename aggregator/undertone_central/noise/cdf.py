"""Cumulative distribution functions with proven bounds, and exact draws by inverting them.

Bounds of F are integers with low <= F(z) 2^bits <= high. All series have positive terms and are summed in fixed point,
rounded down for the lower and up for the upper bound.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import isqrt

from undertone_central.noise.coin import exponential_bounds
from undertone_central.noise.entropy import Bytes

Bounds = tuple[int, int]
Cdf = Callable[[Fraction, int], Bounds]
_GUARD = 32


def laplace_cdf(z: Fraction, bits: int) -> Bounds:
    """Return bounds of 1 - e^-z/2 for z >= 0, and of e^z/2 for z < 0. The density is e^-|z|/2."""
    low, high = exponential_bounds(abs(z), bits)
    least, most = (1 << 2 * bits - 1) // high, (1 << 2 * bits - 1) // low + 1
    return ((1 << bits) - most, (1 << bits) - least) if z >= 0 else (least, most)


def gaussian_cdf(z: Fraction, bits: int) -> Bounds:
    """Return bounds of 1/2 + e^{-z²/2} (z + z³/3 + z⁵/15 + …)/√(2π). The density is e^{-z²/2}/√(2π)."""
    working = bits + _GUARD
    if abs(z) > 64:
        # The probability beyond 64 standard deviations is less than 2^-2900.
        return _around(z, (1 << bits - 1) - 1, 1 << bits - 1, bits)
    series = _series(abs(z), lambda k: z * z / (2 * k + 3), int(z * z), working)
    tail = exponential_bounds(z * z / 2, working)
    pi = _pi(working)
    root = isqrt(2 * pi[0] << working), isqrt(2 * pi[1] << working) + 1
    # The divisors ``tail`` and ``root`` are both scaled by 2^working.
    low = (series[0] << 2 * working) // (tail[1] * root[1])
    high = (series[1] << 2 * working) // (tail[0] * root[0]) + 1
    return _around(z, low >> _GUARD, (high >> _GUARD) + 1, bits)


def cauchy_cdf(z: Fraction, bits: int) -> Bounds:
    """Return bounds of 1/2 + arctan(z)/π. The density is 1/(π(1 + z²))."""
    working = bits + _GUARD
    pi = _pi(working)
    if abs(z) <= 1:
        low, high = _arctan(abs(z), working)
    else:
        rest = _arctan(1 / abs(z), working)
        low, high = (pi[0] >> 1) - rest[1], (pi[1] >> 1) + 1 - rest[0]
    return _around(z, (low << bits) // pi[1], (high << bits) // pi[0] + 1, bits)


def draw_floor(cdf: Cdf, location: Fraction, scale: Fraction, source: Bytes) -> int:
    """Draw floor(location + scale Z), Z of distribution ``cdf``, exactly. A uniform real is read as far as is
    needed.
    """
    word, bits = int.from_bytes(source.take(8), "little"), 64

    def below(k: int) -> bool:
        """Return True if location + scale Z < k."""
        nonlocal word, bits
        z = (k - location) / scale
        while True:
            low, high = cdf(z, bits)
            if word + 1 <= low:
                return True
            if word >= high:
                return False
            word = word << 64 | int.from_bytes(source.take(8), "little")
            bits += 64

    step = 1
    low = high = location.numerator // location.denominator
    while not below(high):
        high, step = high + step, 2 * step
    step = 1
    while below(low):
        low, step = low - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if below(middle) else (middle, high)
    return low


def _around(z: Fraction, low: int, high: int, bits: int) -> Bounds:
    """Return bounds of the distribution function at ``z``, for a symmetric distribution.

    ``low``, ``high``: bounds of x, the function's distance from 1/2 at ``z``. The value is 1/2 + x for z >= 0, and 1/2
    - x for z < 0. All bounds are in units of 2^-bits.
    """
    half = 1 << bits - 1
    return (half + low, half + high) if z >= 0 else (half - high, half - low)


def _series(first: Fraction, ratio: Callable[[int], Fraction], rising: int, bits: int) -> Bounds:
    """Return bounds of Σ terms, where term k + 1 = term k × ratio(k). From term ``rising`` on, the ratio is at most
    1/2.
    """
    low = term_low = (first.numerator << bits) // first.denominator
    high = term_high = term_low + 1
    k = 0
    while k <= rising or term_high > 4:
        factor = ratio(k)
        term_low = term_low * factor.numerator // factor.denominator
        term_high = term_high * factor.numerator // factor.denominator + 1
        low += term_low
        high += term_high
        k += 1
    return low, high + 8


def _arctan(x: Fraction, bits: int) -> Bounds:
    """Return bounds of arctan x, 0 <= x <= 1, by Euler's series Σ 2^{2k} k!²/(2k+1)! x^{2k+1}/(1+x²)^{k+1}.

    The ratios of its terms are below 1/2.
    """
    share = x * x / (1 + x * x)
    return _series(x / (1 + x * x), lambda k: share * (2 * k + 2) / (2 * k + 3), 0, bits)


@cache
def _pi(bits: int) -> Bounds:
    low, high = _arctan(Fraction(1), bits)
    return 4 * low, 4 * high
