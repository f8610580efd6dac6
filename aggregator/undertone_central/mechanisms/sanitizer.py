"""Streaming sanitizer of Kaplan and Stemmer: an offline sanitizer, applied to one block after the other.

Blocks are disjoint, so if the offline sanitizer is (ε, δ)-DP for a block, the stream is (ε, δ)-DP. Anything computed
from the synthetic items (such as quantiles by a sketch) is post-processing. If the offline sanitizer errs by at most α
with probability 1 - β, the stream of k blocks errs by at most α with probability 1 - kβ. As k grows, it errs
by at most α + 2β with a probability that tends to 1.

Subsampling: of every block a fixed share, drawn without replacement, is sanitized with a larger ε' (Remark 2.3). Blocks
have a fixed size, and neighbouring streams differ in one value. So the amplification is that of sampling without
replacement: ε = ln(1 + share (e^ε' - 1)), Balle, Barthe, Gaboardi, NeurIPS 2018.
"""

from collections.abc import Callable
from fractions import Fraction
from math import exp, log
from typing import Any, ClassVar, Protocol

import numpy as np

from undertone_central.mechanisms.budget import (
    Epsilon,
    check_bound,
    check_count,
    check_word,
    parse_epsilon,
    parse_share,
)
from undertone_central.mechanisms.continual import Continual, integers
from undertone_central.mechanisms.point_class import PointSanitizer
from undertone_central.mechanisms.threshold_class import ThresholdSanitizer
from undertone_central.noise.coin import exponential_bounds
from undertone_central.noise.entropy import Bytes, FreshBytes
from undertone_central.noise.laplace import Integers

BLOCK = 4096
ENDINGS = ("hold", "pad")


class Offline(Protocol):
    """A sanitizer of a data set. It returns as many synthetic items as it gets, and is private for one changed item."""

    @property
    def guarantee(self) -> str:
        """The guarantee's parameters, in words."""
        ...

    def sanitize(self, items: Integers, source: Bytes) -> Integers:
        """Return synthetic items in place of ``items``."""
        ...


# The classes of questions that synthetic items answer, by name: the share of values that are at most x, or exactly x.
CLASSES: dict[str, Callable[[int, Fraction], "PointSanitizer | ThresholdSanitizer"]] = {
    "thresholds": ThresholdSanitizer,
    "points": PointSanitizer,
}


class StreamingSanitizer(Continual):
    """The generic reduction: after every block of ``block`` values it releases ``kept_items`` synthetic items.

    ``kept_items`` values of every block, drawn without replacement, are sanitized; the others are ignored. Memory: one
    block and the offline sanitizer's.
    """

    released = "items"
    kept: ClassVar[tuple[str, ...]] = ("_held",)

    def __init__(
        self, bound: int, offline: Offline, source: FreshBytes | None = None, *, block: int, kept_items: int
    ) -> None:
        self.bound = check_bound(bound)
        self._offline = offline
        self._source = source or FreshBytes()
        self._block = check_count("block", block, 1, 1 << 24)
        self._kept_items = check_count("kept_items", kept_items, 1, block)
        self._held = np.zeros(0, dtype=np.int64)

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        return (
            f"event-level differential privacy, {self._offline.guarantee}; each block is published as synthetic items"
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {
            "mechanism": "sanitizer",
            "released": self.released,
            "bound": self.bound,
            "block": self._block,
            "kept_items": self._kept_items,
        }

    def extend(self, values: Integers) -> Integers:
        """Return the synthetic items of the blocks that these values complete."""
        values = np.concatenate([self._held, np.clip(integers(values), 0, self.bound)])
        whole = len(values) - len(values) % self._block
        self._held = values[whole:].copy()
        out = [self._sanitized(block) for block in values[:whole].reshape(-1, self._block)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *out])

    def close(self, ending: str = "hold") -> Integers:
        """End the stream: ``hold`` withholds a last block that is incomplete, ``pad`` fills it with n public values.

        These n values are B/n, 2B/n, …, B, rounded down. Their number depends only on the length of the stream. Raises
        Invalid for another ``ending``.
        """
        if check_word("ending", ending, ENDINGS) == "hold" or not len(self._held):
            return np.zeros(0, dtype=np.int64)
        missing = self._block - len(self._held)
        return self.extend(np.arange(1, missing + 1, dtype=np.int64) * self.bound // missing)

    def _sanitized(self, block: Integers) -> Integers:
        if self._kept_items < len(block):
            block = block[subset(len(block), self._kept_items, self._source)]
        return self._offline.sanitize(block, self._source)


class Sanitizer(StreamingSanitizer):
    """Releases synthetic items, block by block, which show shares below thresholds and quantiles, or shares of values.

    ``concepts``: the class of questions, of `CLASSES`. ``share``: the share of every block's values that is sanitized,
    with the larger ε' that sampling allows. Raises Invalid.
    """

    def __init__(
        self,
        bound: int,
        epsilon: Epsilon,
        source: FreshBytes | None = None,
        *,
        block: int = BLOCK,
        share: Epsilon = Fraction(1),
        concepts: str = "thresholds",
    ) -> None:
        self._concepts = check_word("concepts", concepts, tuple(CLASSES))
        self.epsilon = parse_epsilon(epsilon)
        part = parse_share("share", share, "1")
        kept_items = max(int(part * check_count("block", block, 1, 1 << 24)), 1)
        self._used = self.epsilon if kept_items == block else amplified(self.epsilon, Fraction(kept_items, block))
        super().__init__(bound, CLASSES[concepts](bound, self._used), source, block=block, kept_items=kept_items)

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        text = (
            f"event-level differential privacy, pure ε = {float(self.epsilon):g} per value; each block is published as"
            " synthetic items"
        )
        if self._kept_items == self._block:
            return text
        return f"{text}, made from {self._kept_items} of its {self._block} values, which are drawn in secret"

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {
            **super().parameters,
            "epsilon": str(self.epsilon),
            "sanitizing_epsilon": str(self._used),
            "concepts": self._concepts,
        }


def amplified(epsilon: Fraction, share: Fraction) -> Fraction:
    """Return the largest ε' (slightly less, at most 20) with ln(1 + share (e^ε' - 1)) <= ε, checked in integers."""
    used = Fraction(min(log(1 + (exp(epsilon) - 1) / float(share)), 20.0)).limit_denominator(1 << 20)
    while True:
        # Check 1 + share (e^ε' - 1) <= e^ε with the left side rounded up and the right side rounded down.
        bits = 128
        left = (1 << bits) + share * (exponential_bounds(used, bits)[1] - (1 << bits))
        if left <= exponential_bounds(epsilon, bits)[0]:
            return used
        used -= Fraction(1, 1 << 20)


def subset(n: int, size: int, source: Bytes) -> Integers:
    """Return a uniform subset of ``size`` of 0..n-1, ascending: the indices of the smallest of n distinct random
    words.
    """
    while True:
        words = np.frombuffer(source.take(8 * n), dtype="<u8")
        if len(np.unique(words)) == n:
            return np.sort(np.argsort(words)[:size])
