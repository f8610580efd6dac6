"""A quantile with noise scaled to its smooth sensitivity (Nissim, Raskhodnikova, Smith, STOC 2007), and PAK's variant.

For x_1 <= … <= x_n in [0, B], x_i = 0 below and B above, the β-smooth sensitivity S of x_P is
max_k e^{-βk} max_{t=0..k+1} (x_{P+t} - x_{P+t-k-1}), and x_P + (S/α) Z is private for Z of density

- Laplace, e^{-|z|}/2: (ε, δ) with α = ε/2, β = ε/(2 ln(2/δ));
- Gaussian: (ε, δ) with α = ε/(5 sqrt(2 ln(2/δ))), β = ε/(4(1 + ln(2/δ)));
- Cauchy, 1/(π(1 + z²)): pure ε with α = β = ε/2, because a shift by a changes ln(1 + z²) by at most a, and a dilation
  by e^b changes the log density by at most b. (Nissim et al. allow ε/6 each.)

The floor of this number is released, drawn exactly; rounding down is post-processing.
"""

from fractions import Fraction
from math import ceil, exp, frexp, log, sqrt

import numpy as np

from undertone_central.noise.cdf import Cdf, cauchy_cdf, gaussian_cdf, laplace_cdf
from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

NOISES = ("laplace", "gaussian", "cauchy")
CDFS: dict[str, Cdf] = {"laplace": laplace_cdf, "gaussian": gaussian_cdf, "cauchy": cauchy_cdf}
# The sensitivity is rounded up by a factor below 1 + 2^-30. To make up for this, β is reduced by 2^-30. The sensitivity
# is never below 2^-20.
_ROUNDING = Fraction(1, 1 << 30)
_LEAST = 2.0**-20


def smoothing_parameters(noise: str, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Return (α, β), rounded down. δ matters for Laplace and Gaussian noise only. Raises Invalid if β is too small."""
    logarithm = Fraction(log(2 / delta) * (1 + 1e-12))
    if noise == "laplace":
        alpha, beta = epsilon / 2, epsilon / (2 * logarithm)
    elif noise == "gaussian":
        alpha, beta = epsilon / (5 * Fraction(sqrt(2 * logarithm) * (1 + 1e-12))), epsilon / (4 * (1 + logarithm))
    else:
        alpha = beta = epsilon / 2
    if beta < 4 * _ROUNDING:
        raise Invalid(
            f"epsilon {float(epsilon):g} is too small for delta {float(delta):g}: choose a larger epsilon or delta"
        )
    return alpha, beta


def smooth_sensitivity(ordered: Integers, rank: int, bound: int, beta: Fraction) -> Fraction:
    """Return a β-smooth upper bound of the sensitivity of x_rank (1 <= rank <= n); ``ordered`` ascending in [0, B].

    Every k whose term may still be the largest is examined. The remaining terms are at most e^{-βk} B.
    """
    rate = float(beta - _ROUNDING)
    n = len(ordered)
    largest, k = _LEAST, 0
    while k <= n and exp(-rate * k) * bound > largest:
        places = np.arange(rank - k - 1, rank + k + 2)
        window = np.where(places < 1, 0, np.where(places > n, bound, ordered[np.clip(places, 1, n) - 1]))
        largest = max(largest, exp(-rate * k) * int(np.max(window[k + 1 :] - window[: k + 2])))
        k += 1
    return _rounded_up(largest)


def pak_location(alpha: Fraction, beta: Fraction, gamma: float) -> tuple[Fraction, Fraction]:
    """Return (κ, κ G^{-1}(1-γ)). S-PAK releases x_P + κ(S/α)(Z + G^{-1}(1-γ)), Z Laplace, which is rarely below the
    quantile.

    G^{-1}(1-γ) = ln(1/(2γ)). κ = 1/(1 - (e^β - 1) G^{-1}(1-γ)/α) accounts for the shift's own dependence on S. Raises
    Invalid if no κ is large enough.
    """
    quantile = log(1 / (2 * gamma))
    rest = 1 - (exp(beta) - 1) * quantile / float(alpha)
    if rest <= 0:
        raise Invalid(
            "delta is too large for threshold s-pak: choose a smaller delta, a smaller epsilon, or threshold s-p"
        )
    # κ is rounded up. This adds slightly more noise than necessary.
    kappa = _rounded_up(1 / rest)
    return kappa, kappa * Fraction(quantile)


def _rounded_up(x: float) -> Fraction:
    """Return a multiple of a power of two between x and x (1 + 2^-31)."""
    _, exponent = frexp(x)
    unit = Fraction(2) ** (exponent - 33)
    return ceil(Fraction(x) * (1 + Fraction(1, 1 << 48)) / unit) * unit
