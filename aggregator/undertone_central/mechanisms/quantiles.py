"""Continually monitored quantiles: a KLL sketch (Apache DataSketches) of a sanitized stream.

This is post-processing: the sketch contains synthetic items only, so it may be queried at any time, any number of
times.
"""

from typing import Any

from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

SIZE = 200


class Quantiles:
    """KLL sketch: rank error about 1.3 % at the default size, for any stream length.

    Raises Invalid without the package.
    """

    def __init__(self, size: int = SIZE) -> None:
        try:
            from datasketches import kll_ints_sketch
        except ModuleNotFoundError:
            raise Invalid("quantiles need datasketches: pip install 'undertone-ldp[sketches]'") from None
        self._sketch: Any = kll_ints_sketch(size)

    def update(self, items: Integers) -> None:
        """Add items of the stream."""
        if len(items):
            self._sketch.update(items.astype("int32"))

    def quantile(self, share: float) -> int:
        """Return the item at the given share (quantile) of the stream. Raises Invalid before the first item."""
        if self._sketch.is_empty():
            raise Invalid("there is no item yet: a block must be complete first")
        return int(self._sketch.get_quantile(share))

    @property
    def rank_error(self) -> float:
        """The sketch's error of a share: with probability .99 a quantile's share is at most this far from the share
        asked for.
        """
        return float(self._sketch.normalized_rank_error(False))

    def share_at_most(self, x: int) -> float:
        """Return the share of the stream that is at most x. Raises Invalid before the first item."""
        if self._sketch.is_empty():
            raise Invalid("there is no item yet: a block must be complete first")
        return float(self._sketch.get_rank(x, True))
