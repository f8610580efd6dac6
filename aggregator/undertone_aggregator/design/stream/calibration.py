"""Conversion between (ε, δ), μ and ρ of Gaussian noise: analytic Gaussian mechanism and zero-concentrated DP.

Balle, Wang, ICML 2018, in the form of Bao et al., PVLDB 2021 (Lemma 2.4); Bun, Steinke, TCC 2016; Canonne, Kamath,
Steinke, NeurIPS 2020. μ is the sensitivity over the standard deviation, and ρ = μ²/2. Over several releases, μ² and ρ
add.
"""

from math import exp, log, sqrt

import numpy as np

from undertone_shared.errors import Invalid

# SciPy's modules are slow to import. Many commands import this module, and few call what needs SciPy.

LARGEST_EPSILON = 50.0
LEAST_DELTA = 1e-300


def check_budget(epsilon: float, delta: float) -> tuple[float, float]:
    """Return (ε, δ) as floats. Raises Invalid unless 0 < ε <= 50 and 1e-300 <= δ < 1."""
    if isinstance(epsilon, bool) or not 0 < epsilon <= LARGEST_EPSILON:
        raise Invalid(f"epsilon is {epsilon!r}, expected a number above 0 and up to {LARGEST_EPSILON:g}")
    if isinstance(delta, bool) or not LEAST_DELTA <= delta < 1:
        raise Invalid(f"delta is {delta!r}, expected a number from {LEAST_DELTA:g} to below 1")
    return float(epsilon), float(delta)


def chi(epsilon: float, delta: float) -> float:
    """Return the root χ of erfc(χ) - e^ε erfc(√(χ² + ε)) = 2δ (Eq. 3). Raises Invalid."""
    from scipy.optimize import brentq
    from scipy.special import erfc, erfcx

    epsilon, delta = check_budget(epsilon, delta)

    def excess(x: float) -> float:
        root = sqrt(x * x + epsilon)
        if x < 0:
            return float(erfc(x)) - exp(epsilon) * float(erfc(root)) - 2 * delta
        # Both terms of the equation contain the factor e^{-χ²}. The scaled error functions leave this factor out, so
        # that a tiny δ stays exact.
        return log(max(float(erfcx(x) - erfcx(root)), 5e-324)) - x * x - log(2 * delta)

    if excess(0.0) < 0:
        return float(brentq(excess, -30.0, -1e-300, xtol=1e-15))
    return float(brentq(excess, 0.0, 40.0, xtol=1e-15))


def mu(epsilon: float, delta: float) -> float:
    """Return √2 (√(χ² + ε) - χ): the largest sensitivity / σ of Gaussian noise under (ε, δ) (Eq. 2). Raises Invalid."""
    x = chi(epsilon, delta)
    root = sqrt(x * x + epsilon)
    return sqrt(2.0) * (epsilon / (root + x) if x > 0 else root - x)


def delta_of(epsilon: float, mu: float) -> float:
    """Return the least δ of Gaussian noise with sensitivity / σ = ``mu``: Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)."""
    from scipy.special import ndtr

    if mu <= 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least ε >= 0 of Gaussian noise with sensitivity / σ = ``mu`` at this δ."""
    from scipy.optimize import brentq

    if delta_of(0.0, mu) <= delta:
        return 0.0
    top = mu * mu / 2 + mu * sqrt(2 * log(1 / delta)) + 1.0
    return float(brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, top, xtol=1e-12))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an ε such that ρ-zCDP implies (ε, δ): the least over α of αρ + ln(1 - 1/α) - ln(δα)/(α - 1), at least 0.

    Canonne, Kamath, Steinke 2020, Proposition 12; α on a fine grid, every point of which is a valid bound.
    """
    if rho <= 0:
        return 0.0
    best = 1.0 + sqrt(log(1 / delta) / rho)
    orders = 1.0 + (best - 1.0) * np.geomspace(0.2, 5.0, 4001)
    bounds = orders * rho + np.log1p(-1 / orders) - (log(delta) + np.log(orders)) / (orders - 1)
    return max(float(bounds.min()), 0.0)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ whose `zcdp_epsilon` at δ is at most ε. Raises Invalid."""
    from scipy.optimize import brentq

    epsilon, delta = check_budget(epsilon, delta)
    return float(brentq(lambda rho: zcdp_epsilon(rho, delta) - epsilon, 1e-12, epsilon + 1.0, xtol=1e-15))
