"""The papers' continuous mechanisms on [-1, 1], with which the integer mechanisms are compared.

Stochastic rounding: Duchi et al.; piecewise and hybrid: Wang et al., ICDE 2019; Square Wave: Li et al., SIGMOD 2020.
"""

from math import exp, expm1, sqrt

# Up to this ε the hybrid is stochastic rounding alone. At this ε the variances of its two parts at x = 0 are equal.
HYBRID_EPSILON = 0.609352


def stochastic_rounding_variance(epsilon: float, x: float) -> float:
    """Return ((e^ε + 1)/(e^ε - 1))² - x², the variance of stochastic rounding at the reading x."""
    return ((exp(epsilon) + 1) / expm1(epsilon)) ** 2 - x * x


def piecewise_variance(epsilon: float, x: float) -> float:
    """Return x²/(s - 1) + (s + 3)/(3(s - 1)²), s = e^{ε/2}: the variance of the piecewise mechanism at the reading
    x.
    """
    s = exp(epsilon / 2)
    return x * x / (s - 1) + (s + 3) / (3 * (s - 1) ** 2)


def hybrid_share(epsilon: float) -> float:
    """Return the probability α of the hybrid's piecewise part: 1 - e^{-ε/2} above ``HYBRID_EPSILON``, else 0."""
    return -expm1(-epsilon / 2) if epsilon > HYBRID_EPSILON else 0.0


def hybrid_variance(epsilon: float, x: float) -> float:
    """Return the hybrid's variance: α times the piecewise variance + (1 - α) times that of stochastic rounding.

    The variance is independent of x if α > 0.
    """
    share = hybrid_share(epsilon)
    return share * piecewise_variance(epsilon, x) + (1 - share) * stochastic_rounding_variance(epsilon, x)


def worst_hybrid_variance(epsilon: float) -> float:
    """Return the hybrid's largest variance over the readings. Raises ValueError unless epsilon is above 0."""
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}, expected a number above 0")
    return max(hybrid_variance(epsilon, 0), hybrid_variance(epsilon, 1))


def window_variance(epsilon: float, share: float, x: float) -> float:
    """Return the variance at x of a mechanism that reports by a window on a continuous output.

    The window covers ``share`` of the output, and the density inside is e^ε times the density outside.

    The variance is (gω + 1)(gω³ + 1)/(3g²ω²(1-ω)²) + x²/(gω), where ω is the share and g = e^ε - 1. The piecewise
    mechanism has ω = 1/(1 + e^{ε/2}).
    """
    g = expm1(epsilon)
    inside = g * share
    spread = (inside + 1) * (inside * share * share + 1) / (3 * (inside * (1 - share)) ** 2)
    return spread + x * x / inside


def best_window_share(epsilon: float) -> float:
    """Return the share that minimises ``window_variance`` at x = ±1, by golden section on (0, 1/2]."""
    ratio = (sqrt(5) - 1) / 2
    low, high = 1e-6, 0.5
    while high - low > 1e-9:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if window_variance(epsilon, left, 1) < window_variance(epsilon, right, 1):
            high = right
        else:
            low = left
    return (low + high) / 2


def square_wave_half_width(epsilon: float) -> float:
    """Return b = (εe^ε - e^ε + 1)/(2e^ε(e^ε - 1 - ε)), the Square Wave's half-width for readings in [0, 1]."""
    e = exp(epsilon)
    return (epsilon * e - e + 1) / (2 * e * (expm1(epsilon) - epsilon))
