"""Hierarchies over an endless stream: complete b-ary trees on disjoint chunks, with Laplace noise at every node.

There are L levels below an unpublished root, with ε/L each. A value is in one node per level and changes it by at most
θ. So each node gets Laplace noise of scale θL/ε. Chunks of b^L leaves are disjoint, so the whole stream is ε-DP.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from undertone_central.mechanisms.consistency import LeastAbsolute, LeastSquares, Rule
from undertone_central.mechanisms.continual import Saved
from undertone_central.noise.entropy import FreshBytes, KeyedBytes
from undertone_central.noise.laplace import Draws, Integers, discrete_laplace, joined
from undertone_shared.errors import Invalid

RULES: dict[str, Callable[[int, int, float], Rule]] = {"least-squares": LeastSquares, "least-absolute": LeastAbsolute}
# Largest number of leaves of a subtree that is in memory at once.
LARGEST_BLOCK = 1 << 16


def levels_for(fanout: int, span: int) -> int:
    """Return L = log_b span, with b = ``fanout``. Raises Invalid unless b is 2 to 256 and span is a power of b."""
    if not 2 <= fanout <= 256:
        raise Invalid(f"fanout is {fanout}, expected 2 to 256")
    levels = 1
    while fanout**levels < span:
        levels += 1
    if fanout**levels != span:
        raise Invalid(f"span is {span}, expected a power of the fan-out {fanout}, such as {fanout**levels}")
    return levels


def node_scale(theta: int, levels: int, epsilon: Fraction) -> Fraction:
    """Return θL/ε, the scale of a node's Laplace noise."""
    return theta * levels / epsilon


class Nodes(Saved):
    """A hierarchy that releases every node as it closes: a leaf, then the higher nodes that end with it.

    Memory: one running sum per level.
    """

    kept = ("_leaf", "_sums")

    def __init__(self, fanout: int, levels: int, scale: Fraction, source: FreshBytes) -> None:
        self._fanout = fanout
        self._levels = levels
        self._draws = Draws(scale, source)
        self._leaf = 0
        self._sums = [0] * levels

    def publish(self, leaves: Integers) -> Integers:
        """Return the noisy sums of all nodes that these leaves close, in order of time, then of height."""
        n = len(leaves)
        position = self._leaf + np.arange(1, n + 1)
        sums = np.cumsum(leaves)
        closed, order = [], []
        for height in range(self._levels):
            width = self._fanout**height
            last = np.flatnonzero(position % width == 0)
            whole = np.diff(sums[last], prepend=0)
            if len(last):
                whole[0] += self._sums[height]
                self._sums[height] = int(sums[-1] - sums[last[-1]])
            elif n:
                self._sums[height] += int(sums[-1])
            closed.append(whole)
            order.append(last * self._levels + height)
        self._leaf = (self._leaf + n) % self._fanout**self._levels
        exact = np.concatenate(closed)[np.argsort(np.concatenate(order))]
        return exact + self._draws.take(len(exact))


class Consistent(Saved):
    """A hierarchy that releases only leaves, each with noise that was made consistent with all levels above it.

    Every node's noise is a function of the node's place and of a key, which is fresh for each top-level node. So it can
    be computed twice: once to aggregate it upwards, and once to publish. Memory: one block of at most 2^16 leaves and b
    nodes for each level above it. The key is deleted when its top-level node is complete.
    """

    kept = ("_key", "_next")

    def __init__(self, fanout: int, levels: int, scale: Fraction, source: FreshBytes, rule: str) -> None:
        if rule not in RULES:
            raise Invalid(f"consistency is {rule!r}, expected one of {', '.join(RULES)}")
        self._rule = RULES[rule](fanout, levels, float(scale))
        self._law = discrete_laplace(scale)
        self._fanout = fanout
        self._levels = levels
        self._source = source
        self._block_height = 1
        while self._block_height < levels and fanout**self._block_height <= LARGEST_BLOCK:
            self._block_height += 1
        self._key = ""
        # Index of the next leaf below its top-level node.
        self._next = 0
        # Noise and number of the current block.
        self._block = np.zeros(0, dtype=np.int64)
        self._block_number = -1
        # Height -> (number of the open node above this height, consistent noise of its children at this height).
        self._open: dict[int, tuple[int, Integers]] = {}

    def publish(self, leaves: Integers) -> Integers:
        """Return each leaf plus its consistent noise."""
        parts = []
        missing = len(leaves)
        width = self._fanout ** (self._block_height - 1)
        while missing:
            block, place = divmod(self._next, width)
            if block != self._block_number:
                self._load(block)
            parts.append(self._block[place : place + missing])
            missing -= len(parts[-1])
            self._next += len(parts[-1])
            if self._next == self._fanout ** (self._levels - 1):
                self._close()
        return leaves + joined(parts)

    def _close(self) -> None:
        self._key, self._next, self._block_number = "", 0, -1
        self._open = {}

    def _load(self, block: int) -> None:
        """Compute the consistent noise of the leaves of block number ``block``."""
        if not self._key:
            self._key = self._source.key().hex()
        levels = self._subtree(block)
        if self._block_height == self._levels:
            values = self._rule.root(levels[-1], self._levels)
        else:
            values = self._value(self._block_height, block)
        for height in range(self._block_height, 1, -1):
            children = levels[height - 2].reshape(len(values), self._fanout, -1)
            values = self._rule.down(values, children, height).reshape(-1)
        self._block, self._block_number = values, block

    def _value(self, height: int, number: int) -> Integers:
        """Return the consistent noise [1] of a node at or above the blocks. Store the noise of its siblings for
        later.
        """
        if height == self._levels:
            return self._rule.root(self._statistic(height, number), height)
        parent, place = divmod(number, self._fanout)
        if self._open.get(height, (-1,))[0] != parent:
            value = self._value(height + 1, parent)
            children = [self._statistic(height, parent * self._fanout + i) for i in range(self._fanout)]
            self._open[height] = parent, self._rule.down(value, np.stack(children, axis=1), height + 1)[0]
        return self._open[height][1][place : place + 1]

    def _statistic(self, height: int, number: int) -> Integers:
        """Return the statistic [1, k] of a node that is a block or joins several blocks."""
        if height == self._block_height:
            return self._subtree(number)[-1]
        children = [self._statistic(height - 1, number * self._fanout + i) for i in range(self._fanout)]
        return self._rule.up(self._noise(height, number, [1])[0], np.stack(children, axis=1), height)

    def _subtree(self, block: int) -> list[Integers]:
        """Return the statistics of all levels of a block, leaves first."""
        sizes = [self._fanout**depth for depth in range(self._block_height - 1, -1, -1)]
        leaves, *above = self._noise(self._block_height, block, sizes)
        levels = [self._rule.leaves(leaves)]
        for height, noise in enumerate(above, 2):
            children = levels[-1].reshape(len(noise), self._fanout, -1)
            levels.append(self._rule.up(noise, children, height))
        return levels

    def _noise(self, height: int, number: int, sizes: list[int]) -> list[Integers]:
        """Return the noise of a node and of levels below it, lowest first; ``sizes``: number of nodes of each level."""
        drawn = self._law.sample(KeyedBytes(bytes.fromhex(self._key), height, number), sum(sizes))
        return np.split(drawn, np.cumsum(sizes[:-1]))
