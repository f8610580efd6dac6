"""Second half of ToPS, at a given θ: truncates, adds consistent hierarchical noise to block sums, smooths within
blocks.
"""

from fractions import Fraction
from typing import ClassVar

import numpy as np

from undertone_central.mechanisms.continual import Saved
from undertone_central.mechanisms.hierarchy import Consistent, node_scale
from undertone_central.mechanisms.smoothers import Smoother
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import Integers


class Publisher(Saved):
    """Releases one integer per value, ε-DP for values in [0, θ]. Larger values are truncated.

    Blocks of g = ``group`` values are the leaves of a hierarchy of ``levels`` levels. Memory: that of the hierarchy and
    of the smoother, and three numbers.
    """

    kept: ClassVar[tuple[str, ...]] = ("_hierarchy", "_smoother", "_place", "_exact", "_debt")

    def __init__(
        self,
        theta: int,
        epsilon: Fraction,
        source: FreshBytes,
        smoother: Smoother,
        *,
        fanout: int,
        levels: int,
        group: int,
        consistency: str,
        monotone: bool,
    ) -> None:
        self.theta = theta
        self._hierarchy = Consistent(fanout, levels, node_scale(theta, levels, epsilon), source, consistency)
        self._smoother = smoother
        self._group = group
        self._monotone = monotone
        # Number of values in the open block, and their exact sum.
        self._place = 0
        self._exact = 0
        # With ``monotone``: what must still be added to the running sum, because clipping left it out.
        self._debt = 0

    def publish(self, values: Integers) -> Integers:
        """Return the released values, one for each of ``values``."""
        values = np.clip(values, 0, self.theta)
        released = self._hierarchy.publish(values) if self._group == 1 else self._smoothed(values)
        return self._without_falls(released) if self._monotone else released

    def _smoothed(self, values: Integers) -> Integers:
        if not len(values):
            return values
        g = self._group
        end = self._place + len(values)
        parts = np.add.reduceat(values, np.maximum(np.arange(-self._place, len(values), g), 0))
        parts[0] += self._exact
        exact = parts[: end // g]
        self._exact = int(parts[end // g :].sum())
        block_sums = self._hierarchy.publish(exact)
        predictions = self._smoother.follow(block_sums)
        # A block has g values and the predicted sum u. Its first k values get floor(ku/g) in total, k < g; the last
        # value corrects the sum.
        promised = predictions[:, None] * np.arange(g + 1)
        if g & (g - 1) == 0:
            promised >>= g.bit_length() - 1
        else:
            promised //= g
        table = np.diff(promised, axis=1)
        table[:-1, -1] += block_sums - predictions[:-1]
        released = table.reshape(-1)[self._place : end]
        self._place = end % g
        return np.asarray(released)

    def _without_falls(self, released: Integers) -> Integers:
        """Clip each release to [0, θ]. Carry the difference over, so that the running sum stays as near as possible."""
        out = []
        for value in released.tolist():
            wanted = value + self._debt
            out.append(min(max(wanted, 0), self.theta))
            self._debt = wanted - out[-1]
        return np.array(out, dtype=np.int64)
