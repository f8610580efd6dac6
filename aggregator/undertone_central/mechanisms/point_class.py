"""A pure-ε sanitizer for points: a noisy histogram of the whole domain.

Changing one item changes two counts by one, so noise Lap(2/ε) per count gives ε. Everything after the noisy counts is
post-processing: no count is negative, the counts sum to the number of items, and items are whole.
"""

from fractions import Fraction
from math import hypot, log, pi, sqrt

import numpy as np

from undertone_central.mechanisms.budget import check_bound
from undertone_central.mechanisms.threshold_class import onto_simplex
from undertone_central.noise.entropy import Bytes
from undertone_central.noise.laplace import Integers, discrete_laplace
from undertone_shared.errors import Invalid

# The largest bound: each value of the domain has a count of its own in every block.
LARGEST = (1 << 20) - 1


class PointSanitizer:
    """Makes synthetic integers in [0, ``bound``]. A value's share of them is near its share of the original items."""

    def __init__(self, bound: int, epsilon: Fraction) -> None:
        self._bound = check_bound(bound)
        if bound > LARGEST:
            raise Invalid(f"bound is {bound}, expected at most {LARGEST} for points: each possible value has a count")
        self._epsilon = epsilon
        self._law = discrete_laplace(2 / epsilon)

    @property
    def guarantee(self) -> str:
        """The guarantee in words."""
        return f"pure ε = {float(self._epsilon):g} per value"

    def deviation(self, blocks: float) -> float:
        """Upper bound of the root mean square error, in items, of a value's mean count over ``blocks`` blocks.

        To make the counts sum to the number of items, all of them are shifted by at most the largest absolute value of
        the m = B + 1 draws. With scale s, the root mean square of this shift is at most s sqrt((ln 2m + 1)² + π²/6).
        More blocks do not reduce it.
        """
        most = hypot(log(2 * (self._bound + 1)) + 1, pi / sqrt(6))
        return sqrt(self._law.variance / blocks) + float(self._law.scale) * most

    def sanitize(self, items: Integers, source: Bytes) -> Integers:
        """Return synthetic items, as many as ``items`` has, ascending."""
        counts = np.bincount(items, minlength=self._bound + 1)
        noisy = (counts + self._law.sample(source, self._bound + 1)).astype(np.float64)
        whole = _rounded(onto_simplex(noisy, float(len(items))), len(items))
        return np.repeat(np.arange(self._bound + 1, dtype=np.int64), whole)


def _rounded(masses: np.ndarray, total: int) -> Integers:
    """Return integers that sum to ``total``: the masses are rounded down, and the largest remainders get one more."""
    whole: Integers = np.floor(masses).astype(np.int64)
    missing = total - int(whole.sum())
    whole[np.argsort(whole - masses, kind="stable")[:missing]] += 1
    return whole
