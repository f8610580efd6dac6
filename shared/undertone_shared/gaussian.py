"""The exact discrete Gaussian, with integers only (Canonne, Kamath, Steinke, NeurIPS 2020, Algorithms 1 to 3).

Each function states the distribution that it samples. The run time depends on the outcome. A client with a
``spread_percent`` above 0 hides the run time, because it sends a report at a random time of the next slot. The draw
contract of `undertone_shared.entropy` does not apply, because the buffer is refilled between words.
"""

from undertone_shared.checks import check_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.entropy import Entropy

_LIMB = 30
_MASK = (1 << _LIMB) - 1
# Least number of words in the buffer before a call of `below`. The call needs more with a probability of at most 2^-32;
# the draw then raises EntropyError, and the slot is not reported.
_RESERVE = 32
LARGEST_VARIANCE = 1 << 60


def uniform(n: int, entropy: "Entropy") -> int:
    """Draw a uniform integer in [0, n), n >= 1 of any size."""
    top = n - 1
    limbs = 0
    while top > _MASK:
        top >>= _LIMB
        limbs += 1
    while True:
        if entropy.left < _RESERVE:
            entropy.refill()
        value = entropy.below(top + 1)
        for _ in range(limbs):
            if entropy.left < _RESERVE:
                entropy.refill()
            value = value << _LIMB | entropy.below(_MASK + 1)
        if value < n:
            return value


def bernoulli_exp(numerator: int, denominator: int, entropy: "Entropy") -> bool:
    """Return True with probability exp(-numerator/denominator), numerator >= 0."""
    while numerator > denominator:
        if not _bernoulli_exp_below_1(1, 1, entropy):
            return False
        numerator -= denominator
    return _bernoulli_exp_below_1(numerator, denominator, entropy)


def _bernoulli_exp_below_1(numerator: int, denominator: int, entropy: "Entropy") -> bool:
    # With γ = numerator/denominator in [0, 1], the first k = 1, 2, … at which a Bernoulli(γ/k) variable is 0 is odd
    # with probability exp(-γ).
    k = 1
    while uniform(denominator * k, entropy) < numerator:
        k += 1
    return k & 1 == 1


def discrete_laplace(scale: int, entropy: "Entropy") -> int:
    """Draw y with probability proportional to exp(-|y|/scale), scale >= 1 an integer."""
    while True:
        u = uniform(scale, entropy)
        if not _bernoulli_exp_below_1(u, scale, entropy):
            continue
        while _bernoulli_exp_below_1(1, 1, entropy):
            u += scale
        if not uniform(2, entropy):
            return u
        if u:
            return -u


def discrete_gaussian(variance: int, entropy: "Entropy") -> int:
    """Draw y with probability proportional to exp(-y²/(2 variance)), variance from 1 to 2^60.

    Raises Invalid for a variance out of range, EntropyError when the source fails.
    """
    check_integer("variance", variance, 1, LARGEST_VARIANCE)
    scale = root(variance) + 1
    while True:
        y = discrete_laplace(scale, entropy)
        gap = abs(y) * scale - variance
        if bernoulli_exp(gap * gap, 2 * variance * scale * scale, entropy):
            return y


def root(n: int) -> int:
    """Return floor(√n), n >= 0, by Newton's iteration."""
    x = n
    y = (x + 1) // 2
    while y < x:
        x = y
        y = (x + n // x) // 2
    return x
