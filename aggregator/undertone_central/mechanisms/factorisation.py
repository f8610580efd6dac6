"""The square-root factorisation, a modern method of continual counting, as a baseline.

Fichtenberger, Henzinger, Upadhyay (ICML 2023): the running sum is A = CC with Toeplitz C of coefficients f_k =
binom(2k, k)/4^k. The mechanism releases C(Cx + z), with Gaussian z for the L2 sensitivity B sqrt(Σ_{k<T} f_k²). Its
error grows like log T, while the binary counter's error grows like (log T)^1.5. The guarantee is (ε, δ) instead of pure
ε.

Here c_k = round(2^32 f_k), and discrete Gaussian noise of variance σ² is added to the integers Σ c_k x. The analytic
formula for a continuous Gaussian (Balle, Wang, ICML 2018) gives σ² - 4. With these 4 more, the discrete noise is
post-processing of that Gaussian, up to e^{-8π²}.
"""

from fractions import Fraction
from math import ceil, exp
from typing import Any

import numpy as np

from undertone_central.mechanisms.budget import Epsilon, parse_delta
from undertone_central.mechanisms.continual import OneByOne, clip
from undertone_central.mechanisms.counting import Bounded, Term
from undertone_central.noise.entropy import FreshBytes
from undertone_central.noise.gaussian import GaussianDraws
from undertone_shared.errors import Invalid

LONGEST = 1 << 17
DELTA = Fraction(1, 10**6)
_BITS = 32


class SquareRoot(Bounded, OneByOne):
    """The square-root counter with Gaussian noise, (ε, δ): the least error of all counters here for long streams.

    Memory and time per value grow with the horizon, so at most 2^17 values are allowed. The count is rounded to an
    integer; rounding of c moves it by less than B t^1.5 2^-32.
    """

    name = "square-root"
    kept = ("_time", "_values", "_noisy")

    def __init__(
        self,
        bound: int,
        epsilon: Epsilon,
        horizon: int,
        source: FreshBytes | None = None,
        *,
        delta: Epsilon = DELTA,
    ) -> None:
        super().__init__(bound, epsilon, horizon, source)
        self.delta = parse_delta(delta)
        if horizon > LONGEST:
            raise Invalid(f"horizon is {horizon}, expected at most {LONGEST} for the square-root factorisation")
        k = np.arange(1, horizon)
        self._f = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
        self._c = np.rint(self._f * 2.0**_BITS).astype(np.int64)
        if bound * float(self._c.sum()) >= 2.0**60:
            raise Invalid(
                f"a fixed-point sum of {horizon} values up to {bound} does not fit in 64 bits: choose a smaller bound"
                " or horizon"
            )
        squares = sum(int(c) ** 2 for c in self._c)
        multiplier = Fraction(ceil(analytic_multiplier(float(self.epsilon), float(self.delta)) * 2**40), 2**40)
        self._noise = GaussianDraws(ceil(bound**2 * squares * multiplier**2) + Fraction(4), self._source)
        self._values = np.zeros(horizon, dtype=np.int64)
        self._noisy = np.zeros(horizon, dtype=np.int64)

    @property
    def guarantee(self) -> str:
        """The guarantee in one sentence."""
        parameters = f"ε = {float(self.epsilon):g} per value, δ = {float(self.delta):g}"
        return f"event-level differential privacy, {parameters}; {self._length}"

    @property
    def parameters(self) -> dict[str, Any]:
        """The public parameters of the release."""
        return {**super().parameters, "delta": str(self.delta)}

    def push(self, value: int | None) -> list[int]:
        """Return the noisy running sum after this value."""
        self._tick()
        t = self._time
        self._values[t - 1] = clip(value, self.bound)
        self._noisy[t - 1] = int(self._values[:t] @ self._c[t - 1 :: -1]) + self._noise.take(1)[0]
        return [round(float(self._noisy[:t] @ self._f[t - 1 :: -1]) / 2.0**_BITS)]

    def terms(self, time: int) -> dict[Term, float]:
        """Return the noise draws in the output at ``time``, one per value, each with its weighted variance."""
        variance = float(self._noise.law.variance) / 4.0**_BITS
        return {("value", i): variance * self._f[time - 1 - i] ** 2 for i in range(time)}

    def variance(self, first: int, end: int) -> float:
        """Return the noise variance of the difference between count ``end`` and count ``first``.

        It is σ² ‖row ``end`` of C - row ``first`` of C‖².
        """
        row = self._f[end - 1 :: -1][:end].copy() if end else np.zeros(0)
        if first:
            row[:first] -= self._f[first - 1 :: -1]
        return float(row @ row) * float(self._noise.law.variance) / 4.0**_BITS


def analytic_multiplier(epsilon: float, delta: float) -> float:
    """Return the least σ per unit of sensitivity, rounded up: Φ(1/(2σ) - εσ) - e^ε Φ(-1/(2σ) - εσ) <= δ."""
    # Code that only loads readings imports this module, too, and importing scipy.special takes long.
    from scipy.special import ndtr

    def spent(sigma: float) -> float:
        shift = epsilon * sigma
        return float(ndtr(0.5 / sigma - shift) - exp(epsilon) * ndtr(-0.5 / sigma - shift))

    low, high = 0.0, 1.0
    while spent(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high * (1 + 1e-9)
