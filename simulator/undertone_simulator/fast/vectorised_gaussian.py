"""The discrete Gaussian for many devices, with exactly the words and values of `undertone_shared.gaussian`.

All devices do each step of the algorithm together, each with its own words; a device that is done waits for the others.
Integers of up to 130 bits are rows of digits of 30 bits, the highest first, in the order in which the device draws
them.
"""

import numpy as np
from numpy.typing import NDArray

from undertone_shared.gaussian import root
from undertone_simulator.seeded import Buffers

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Index = NDArray[np.intp]

_BITS = 30
_MASK = (1 << _BITS) - 1
# A device refills its buffer before a draw if it has fewer words than this.
_RESERVE = 32
_ONE = 1


def discrete_gaussian(variance: int, buffers: Buffers, index: Index) -> Integers:
    """Draw one value for each device at ``index``; see `undertone_shared.gaussian.discrete_gaussian`."""
    scale = root(variance) + 1
    out = np.zeros(len(index), dtype=np.int64)
    waiting = np.arange(len(index))
    while len(waiting):
        where = index[waiting]
        out[waiting] = y = _discrete_laplace(scale, buffers, where)
        gap = np.abs(y).astype(object) * scale - variance
        accepted = _bernoulli_exp(gap * gap, 2 * variance * scale * scale, buffers, where)
        waiting = waiting[~accepted]
    return out


def _discrete_laplace(scale: int, buffers: Buffers, index: Index) -> Integers:
    out = np.zeros(len(index), dtype=np.int64)
    waiting = np.arange(len(index))
    while len(waiting):
        u = _uniform(scale, buffers, index[waiting])
        accepted = _bernoulli_exp_below_1(u, scale, buffers, index[waiting])
        places, value = waiting[accepted], _integers(u[:, accepted])
        more = np.arange(len(places))
        while len(more):
            more = more[_bernoulli_exp_below_1(_ones(len(more)), _ONE, buffers, index[places[more]])]
            value[more] += scale
        negative = _uniform(2, buffers, index[places])[0] > 0
        out[places] = np.where(negative, -value, value)
        again = places[negative & (value == 0)]
        waiting = np.sort(np.concatenate((waiting[~accepted], again)))
    return out


def _bernoulli_exp(numerator: NDArray[np.object_], denominator: int, buffers: Buffers, index: Index) -> Flags:
    """Return True with probability exp(-numerator/denominator), for each device."""
    holds = np.ones(len(index), dtype=np.bool_)
    above = np.flatnonzero(numerator > denominator)
    while len(above):
        going = _bernoulli_exp_below_1(_ones(len(above)), _ONE, buffers, index[above])
        holds[above[~going]] = False
        above = above[going]
        numerator[above] -= denominator
        above = above[np.flatnonzero(numerator[above] > denominator)]
    rest = np.flatnonzero(holds)
    digits = np.array([(numerator[rest] >> _BITS * d) & _MASK for d in reversed(range(_length(denominator)))])
    holds[rest] = _bernoulli_exp_below_1(digits.astype(np.int64), denominator, buffers, index[rest])
    return holds


def _bernoulli_exp_below_1(numerator: Integers, denominator: int, buffers: Buffers, index: Index) -> Flags:
    holds = np.zeros(len(index), dtype=np.bool_)
    going = np.arange(len(index))
    k = 1
    while len(going):
        less = _less(_uniform(denominator * k, buffers, index[going]), numerator[:, going])
        holds[going[~less]] = k & 1 == 1
        going = going[less]
        k += 1
    return holds


def _uniform(n: int, buffers: Buffers, index: Index) -> Integers:
    """Draw digits [digits of n - 1, devices] of a uniform integer in [0, n)."""
    most = _digits(n - 1)
    value = np.empty((len(most), len(index)), dtype=np.int64)
    waiting = np.arange(len(index))
    while len(waiting):
        where = index[waiting]
        for d in range(len(most)):
            buffers.reserve(where, _RESERVE)
            value[d, waiting] = buffers.below(where, int(most[0, 0]) + 1 if d == 0 else _MASK + 1)
        waiting = waiting[_less(most, value[:, waiting])] if len(most) > 1 else waiting[:0]
    return value


def _less(left: Integers, other: Integers) -> Flags:
    """Return left < other, device by device; missing high digits are 0."""
    length = max(len(left), len(other))
    less = np.zeros(other.shape[1], dtype=np.bool_)
    for d in range(1, length + 1):
        a = left[-d] if d <= len(left) else np.int64(0)
        b = other[-d] if d <= len(other) else np.int64(0)
        less = (a < b) | ((a == b) & less)
    return less


def _digits(n: int) -> Integers:
    digits = [n >> _BITS * d & _MASK for d in reversed(range(_length(n)))]
    return np.array(digits, dtype=np.int64)[:, np.newaxis]


def _length(n: int) -> int:
    return max(1, -(-n.bit_length() // _BITS))


def _ones(devices: int) -> Integers:
    return np.ones((1, devices), dtype=np.int64)


def _integers(digits: Integers) -> Integers:
    """Convert digits to integers below 2^62."""
    value: Integers = digits[0].copy()
    for digit in digits[1:]:
        value = (value << _BITS) + digit
    return value
