"""PAK (Perrier, Asghar, Kaafar, NDSS 2019): a noisy quantile as threshold, then a hierarchy.

The first ``hold_out`` values choose θ and are not published. The paper's PAK chooses θ by S-PAK at the 99.5 %
quantile with δ = 1/hold_out², and has a binary hierarchy without consistency. S-P (the quantile without S-PAK's upward
shift), other noise, other fan-outs and consistency are options.
"""

from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from undertone_central.mechanisms.budget import (
    Epsilon,
    check_bound,
    check_count,
    check_word,
    parse_delta,
    parse_epsilon,
    parse_share,
)
from undertone_central.mechanisms.continual import Continual, integers
from undertone_central.mechanisms.hierarchy import RULES, Consistent, Nodes, levels_for, node_scale
from undertone_central.mechanisms.smooth_sensitivity import (
    CDFS,
    NOISES,
    pak_location,
    smooth_sensitivity,
    smoothing_parameters,
)
from undertone_central.noise.cdf import draw_floor
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

HOLD_OUT = 1 << 16
SPAN = 1 << 20
PERCENTILE = Fraction(199, 200)
GAMMA = 0.006
THRESHOLDS = ("s-pak", "s-p")
CONSISTENCIES = ("none", *RULES)


class Pak(Continual):
    """The PAK mechanism: it releases tree nodes as they close, or with consistency one integer per value.

    ``theta``: a public threshold. With it no θ is chosen, and this is the plain hierarchy, which is pure ε-DP.
    ``noise``: noise of the quantile; ``delta``: None for 1/max(hold_out, 4)². Raises Invalid.
    """

    kept: ClassVar[tuple[str, ...]] = ("theta", "_left", "_histogram", "_hierarchy")

    def __init__(
        self,
        bound: int,
        epsilon: Epsilon,
        source: FreshBytes | None = None,
        *,
        theta: int | None = None,
        hold_out: int = HOLD_OUT,
        delta: Epsilon | None = None,
        percentile: Epsilon = PERCENTILE,
        threshold: str = "s-pak",
        noise: str = "laplace",
        span: int = SPAN,
        fanout: int = 2,
        consistency: str = "none",
    ) -> None:
        self.bound = check_bound(bound)
        self.epsilon = parse_epsilon(epsilon)
        self._hold_out = check_count("hold_out", hold_out, 1, 1 << 30)
        self.delta = Fraction(1, max(hold_out, 4) ** 2) if delta is None else parse_delta(delta)
        self._percentile = parse_share("percentile", percentile)
        self._threshold = check_word("threshold", threshold, THRESHOLDS)
        self._noise = check_word("noise", noise, NOISES)
        if threshold == "s-pak" and noise != "laplace":
            raise Invalid(f"noise is {noise!r}, expected 'laplace' with threshold s-pak")
        self._consistency = check_word("consistency", consistency, CONSISTENCIES)
        self._source = source or FreshBytes()
        self._span, self._fanout, self._levels = span, fanout, levels_for(fanout, span)
        self._given = theta is not None
        if not self._given:
            self._alpha, self._beta = smoothing_parameters(noise, self.epsilon, self.delta)
        self._histogram = np.zeros(0 if self._given else self.bound + 1, dtype=np.int64)
        self._left = 0 if self._given else self._hold_out
        # θ is 0 while values are withheld.
        self.theta = check_count("theta", theta, 1, self.bound) if theta is not None else 0
        self._hierarchy = self._hierarchy_at(self.theta or self.bound)

    @property
    def released(self) -> str:  # type: ignore[override]
        """The kind of the released numbers."""
        return "nodes" if self._consistency == "none" else "values"

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        level, epsilon = "event-level differential privacy", f"ε = {float(self.epsilon):g} per value"
        if self._given:
            return f"{level}, pure {epsilon}; the threshold θ is public"
        theta = f"the first {self._hold_out} values choose the threshold θ and are never published"
        if self._noise == "cauchy":
            return f"{level}, pure {epsilon}; {theta}"
        return f"{level}, {epsilon}, δ = {float(self.delta):.3g}; {theta}; for published values δ is 0"

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release so far."""
        return {
            "mechanism": "pak",
            "released": self.released,
            "bound": self.bound,
            "epsilon": str(self.epsilon),
            "publishing_epsilon": str(self.epsilon),
            "theta": self.theta,
            "hold_out": 0 if self._given else self._hold_out,
            "update": "none",
            "span": self._span,
            "fanout": self._fanout,
            "levels": self._levels,
            "group": 1,
            "consistency": self._consistency,
        }

    @property
    def phase_left(self) -> int | None:
        """Number of values until θ is chosen; None after the choice."""
        return self._left or None

    @property
    def phase(self) -> int:
        """1 once θ has been chosen, else 0."""
        return int(not self._given and self.theta > 0)

    @property
    def withholding(self) -> bool:
        """True while arriving values are used to choose θ and are not published."""
        return not self.theta

    def extend(self, values: Integers) -> Integers:
        """Return the released numbers for these values; none for those that are withheld."""
        values = np.clip(integers(values), 0, self.bound)
        withheld, values = values[: self._left], values[self._left :]
        if len(withheld):
            self._histogram += np.bincount(withheld, minlength=len(self._histogram))
            self._left -= len(withheld)
            if self._left == 0:
                self.theta = self._chosen()
                self._histogram[:] = 0
                self._hierarchy = self._hierarchy_at(self.theta)
        return self._hierarchy.publish(np.minimum(values, self.theta)) if self.theta else values

    def restore(self, state: dict[str, Any]) -> None:
        """Restore ``state``, as returned by `state`. Raises Invalid."""
        theta = state.get("theta") if isinstance(state, dict) else None
        self._hierarchy = self._hierarchy_at(check_count("theta", theta if theta else self.bound, 1, self.bound))
        super().restore(state)

    def _chosen(self) -> int:
        ordered = np.repeat(np.arange(self.bound + 1), self._histogram)
        rank = ceil(self._percentile * len(ordered))
        sensitivity = smooth_sensitivity(ordered, rank, self.bound, self._beta)
        kappa, shift = (Fraction(1), Fraction(0))
        if self._threshold == "s-pak":
            kappa, shift = pak_location(self._alpha, self._beta, GAMMA)
        unit = sensitivity / self._alpha
        theta = draw_floor(CDFS[self._noise], int(ordered[rank - 1]) + shift * unit, kappa * unit, self._source)
        return min(max(theta, 1), self.bound)

    def _hierarchy_at(self, theta: int) -> "Nodes | Consistent":
        scale = node_scale(theta, self._levels, self.epsilon)
        if self._consistency == "none":
            return Nodes(self._fanout, self._levels, scale, self._source)
        return Consistent(self._fanout, self._levels, scale, self._source, self._consistency)
