"""ToPS: threshold optimiser, perturber, smoother (Wang et al., CCS 2021), on an endless stream in bounded memory.

The first ``hold_out`` values choose θ and are not published; the rest are truncated at θ and published. Held-out and
published values are disjoint, so each value is used by one ε-DP mechanism (parallel composition). Of the held-out
values' ε, 2 % is used for their mean, which predicts the first block (not with ``smoothing`` paper), and with
``smoothing`` auto 5 % for their drift, which decides the smoother's blocks (`undertone_central.mechanisms.pilot`). θ
may be updated in one of two ways:

- ``parallel``: after each span of published values, ``hold_out`` more are withheld to choose a new θ, with all of ε;
- ``sequential``: the values of each span choose the θ of the next span with a share of ε, and are published with the
  rest of ε.
"""

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from undertone_central.mechanisms import pilot
from undertone_central.mechanisms.budget import (
    Epsilon,
    check_bound,
    check_count,
    check_word,
    parse_epsilon,
    parse_positive,
    parse_share,
)
from undertone_central.mechanisms.continual import Continual, integers
from undertone_central.mechanisms.hierarchy import levels_for
from undertone_central.mechanisms.publisher import Publisher
from undertone_central.mechanisms.smoothers import best_smoothing, make_smoother, paper_smoothing
from undertone_central.mechanisms.threshold import NOISES, OBJECTIVES, PAPER_C, Workload, choose_threshold
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.laplace import Integers, joined
from undertone_shared.errors import Invalid

UPDATES = ("none", "parallel", "sequential")
HOLD_OUT = 1 << 16
SPAN = 1 << 20
SMOOTHINGS = ("auto", "paper")
FANOUT = 16
_FOR_EVER = -1


class Tops(Continual):
    """The ToPS mechanism: a private threshold, a consistent hierarchy and a smoother; one integer per published value.

    ``bound``: public B. ``theta``: a public threshold; with it no θ is chosen and nothing is held out. ``span``:
    fanout^L, the longest range of interest. ``smoothing``: s, for blocks of fanout^s; or ``auto``: blocks chosen by the
    drift of the held-out values, or by Eq. 7 if nothing is held out; or ``paper``: the authors' rounding of s, with
    their first prediction, θ/2 per value. ``share``: share of ε for sequential updates. ``monotone``: released values
    lie in [0, θ], so that their running sum never falls. Raises Invalid.
    """

    released = "values"
    kept: ClassVar[tuple[str, ...]] = (
        *("theta", "_phase", "_left", "_layout", "_mean", "_histogram", "_held", "_publisher"),
    )

    def __init__(
        self,
        bound: int,
        epsilon: Epsilon,
        source: FreshBytes | None = None,
        *,
        theta: int | None = None,
        hold_out: int = HOLD_OUT,
        span: int = SPAN,
        fanout: int = FANOUT,
        smoothing: int | str = "auto",
        smoother: str = "auto",
        objective: str = "excess",
        c: Epsilon = PAPER_C,
        noise: str = "exponential",
        consistency: str = "least-squares",
        update: str = "none",
        share: Epsilon = Fraction(1, 10),
        monotone: bool = False,
    ) -> None:
        self.bound = check_bound(bound)
        self.epsilon = parse_epsilon(epsilon)
        self._source = source or FreshBytes()
        self._given = theta is not None
        self._span, self._levels = span, levels_for(fanout, span)
        self._hold_out = check_count("hold_out", hold_out, 1, 1 << 30)
        self._objective = check_word("objective", objective, OBJECTIVES)
        self._noise = check_word("noise", noise, NOISES)
        self._c = parse_positive("c", c)
        self._update = check_word("update", update, UPDATES)
        self._share = parse_share("share", share) if update == "sequential" else Fraction(0)
        if self._given and update != "none":
            raise Invalid(f"update is {update!r}, expected 'none': a given theta never changes")
        publishing = self.epsilon * (1 - self._share)
        self._fanout, self._publishing = fanout, publishing
        self._smoothing = _parse_smoothing(smoothing, self._levels)
        # The layout in use: group, fan-out, levels.
        self._layout = self._first_layout()
        # The prediction per value before any release; None means θ/2.
        self._mean: float | None = None
        self._smoother = smoother
        self._consistency = consistency
        self._monotone = monotone
        self._histogram = np.zeros(self.bound + 1 if not self._given else 0, dtype=np.int64)
        # The newest of the values that choose the next θ, in order of arrival: their mean and drift are measured.
        self._held = np.zeros(0, dtype=np.int64)
        # θ in use (0 while values are withheld), the number of the phase, and the number of values left in the phase.
        self.theta = self._phase = 0
        self._left = self._hold_out
        self._publisher = self._publisher_at(self.bound)
        if theta is not None:
            self._publish_under(check_count("theta", theta, 1, self.bound))

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        theta = {
            "none": "the threshold θ is public"
            if self._given
            else f"the first {self._hold_out} values choose the threshold θ and are never published",
            "parallel": f"{self._hold_out} values before each span choose its threshold θ and are never published",
            "sequential": f"of this, ε = {float(self.epsilon * self._share):g} chooses the next span's threshold θ",
        }[self._update]
        return f"event-level differential privacy, pure ε = {float(self.epsilon):g} per value; {theta}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release so far."""
        return {
            "mechanism": "tops",
            "released": self.released,
            "bound": self.bound,
            "epsilon": str(self.epsilon),
            "publishing_epsilon": str(self._publishing),
            "theta": self.theta,
            "hold_out": 0 if self._given else self._hold_out,
            "update": self._update,
            "span": self._span,
            "group": self._layout[0],
            "fanout": self._layout[1],
            "levels": self._layout[2],
            "smoother": self._smoother,
            "consistency": self._consistency,
            "monotone": self._monotone,
        }

    @property
    def phase_left(self) -> int | None:
        """Number of values until θ changes or is chosen; None if that never happens."""
        return None if self._left == _FOR_EVER else self._left

    @property
    def phase(self) -> int:
        """Number of times that θ has changed or been chosen."""
        return self._phase

    @property
    def withholding(self) -> bool:
        """True while arriving values are used to choose θ and are not published."""
        return not self.theta

    def extend(self, values: Integers) -> Integers:
        """Return the released values for these values; none for those that are withheld."""
        values = integers(values)
        out = []
        while len(values):
            part = values if self._left == _FOR_EVER else values[: self._left]
            values = values[len(part) :]
            if not self.theta or self._update == "sequential":
                self._hold(np.clip(part, 0, self.bound))
            if self.theta:
                out.append(self._publisher.publish(part))
            if self._left != _FOR_EVER:
                self._left -= len(part)
                if self._left == 0:
                    self._next_phase()
        return joined(out)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore ``state``, as returned by `state`. Raises Invalid."""
        if isinstance(state, dict) and "_layout" in state:
            self._layout = _parse_layout(state.get("_layout"), self._span)
            self._publisher = self._publisher_at(check_count("theta", state.get("theta") or self.bound, 1, self.bound))
        super().restore(state)

    def _next_phase(self) -> None:
        self._phase += 1
        if not self.theta:
            self._publish_under(self._chosen(self.epsilon))
        elif self._update == "sequential":
            self._publish_under(self._chosen(self.epsilon * self._share))
        else:
            self.theta, self._left = 0, self._hold_out

    def _hold(self, values: Integers) -> None:
        self._histogram += np.bincount(values, minlength=len(self._histogram))
        self._held = np.concatenate([self._held, values])[-pilot.LONGEST :]

    def _chosen(self, epsilon: Fraction) -> int:
        """Choose θ, the blocks and the mean from the held-out values. Together, this is ε-DP for each of these
        values.
        """
        for_mean = Fraction(0) if self._smoothing == "paper" else pilot.MEAN_SHARE * epsilon
        for_drift = pilot.DRIFT_SHARE * epsilon if self._smoothing == "auto" else Fraction(0)
        _, fanout, levels = self._first_layout()
        theta = choose_threshold(
            self._histogram,
            Workload(self._span, fanout, levels, self._publishing),
            epsilon - for_mean - for_drift,
            self._source,
            objective=self._objective,
            c=self._c,
            noise=self._noise,
        )
        held = np.minimum(self._held, theta)
        if for_drift:
            best = pilot.best_layout(held, theta, self._span, self._fanout, self._publishing, for_drift, self._source)
            self._layout = self._first_layout() if best is None else [best.group, best.fanout, best.levels]
        self._mean = pilot.noisy_mean(held, theta, for_mean, self._source) if for_mean else None
        self._histogram[:] = 0
        self._held = self._held[:0]
        return theta

    def _first_layout(self) -> list[int]:
        """Return the layout by the option ``smoothing`` alone, without a drift."""
        depth = self._smoothing
        if not isinstance(depth, int):
            rule = best_smoothing if depth == "auto" and self._given else paper_smoothing
            depth = rule(self._fanout, self._levels, self._publishing)
        return [self._fanout**depth, self._fanout, self._levels - depth]

    def _publish_under(self, theta: int) -> None:
        self.theta = theta
        self._left = _FOR_EVER if self._update == "none" else self._span
        self._publisher = self._publisher_at(theta)

    def _publisher_at(self, theta: int) -> Publisher:
        smoother = make_smoother(self._smoother)
        group, fanout, levels = self._layout
        smoother.start((theta / 2 if self._mean is None else self._mean) * group)
        return Publisher(
            theta,
            self._publishing,
            self._source,
            smoother,
            fanout=fanout,
            levels=levels,
            group=group,
            consistency=self._consistency,
            monotone=self._monotone,
        )


def _parse_smoothing(smoothing: int | str, levels: int) -> int | str:
    """Parse ``auto``, ``paper`` or a depth s below ``levels``, also as text. Raises Invalid."""
    if smoothing in SMOOTHINGS:
        return smoothing
    if isinstance(smoothing, str):
        if not (smoothing.isdecimal() and len(smoothing) < 4):
            raise Invalid(f"smoothing is {smoothing!r}, expected {', '.join(SMOOTHINGS)} or a number")
        smoothing = int(smoothing)
    return check_count("smoothing", smoothing, 0, levels - 1)


def _parse_layout(saved: object, span: int) -> list[int]:
    """Return group, fan-out and levels of a saved state. Raises Invalid."""
    if not isinstance(saved, list) or len(saved) != 3:
        raise Invalid(f"the saved state's layout is {saved!r}, expected three integers")
    group, fanout, levels = (check_count("layout", number, 1, span) for number in saved)
    if levels > span.bit_length() or group * fanout**levels != span:
        raise Invalid(f"the saved state's layout is {saved!r}, expected group × fanout^levels = {span}")
    return [group, fanout, levels]
