"""The discrete Gaussian agrees with its exact probabilities.

Seeds are fixed. If a change of the code keeps the distribution, all tests of this file together raise a false alarm
with a probability below 1e-6.
"""

import hashlib
import math
import time

from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid
from undertone_shared.gaussian import bernoulli_exp, discrete_gaussian, discrete_laplace, root, uniform

DRAWS = 3000


class Hashed:
    """A source of bytes from a seed. ``count``: how many digests of 32 bytes it has made."""

    def __init__(self, seed):
        self.seed = seed
        self.count = 0

    def __call__(self, n):
        data = b""
        while len(data) < n:
            self.count += 1
            data += hashlib.sha256(b"%d %d" % (self.seed, self.count)).digest()
        return data[:n]


class Extreme:
    """Stands for `Entropy`: returns the largest or the least word that is possible."""

    left = 1 << 20

    def __init__(self, largest):
        self.largest = largest

    def below(self, n):
        return n - 1 if self.largest else 0


def check(drawn, law, low, high, limit):
    """Chi-square of ``drawn`` against the weights ``law(x)``.

    Cells below ``low`` and above ``high`` are joined to the ends.
    """
    counts = [0] * (high - low + 1)
    for x in drawn:
        counts[min(max(x, low), high) - low] += 1
    weights = [law(x) for x in range(-400, 401)]
    total = sum(weights)
    expected = [law(x) for x in range(low, high + 1)]
    expected[0] = sum(weights[: low + 401])
    expected[-1] = sum(weights[high + 400 :])
    statistic = 0
    for i in range(len(counts)):
        mean = len(drawn) * expected[i] / total
        statistic += (counts[i] - mean) ** 2 / mean
    assert statistic < limit, statistic


def test_discrete_gaussian_has_its_probabilities():
    entropy = Entropy(Hashed(1))
    drawn = [discrete_gaussian(9, entropy) for _ in range(DRAWS)]
    # With 17 cells, a chi-square of 16 degrees of freedom exceeds 63.2 with a probability of 1.5e-7.
    check(drawn, lambda x: math.exp(-x * x / 18), -8, 8, 63.2)


def test_discrete_laplace_has_its_probabilities():
    entropy = Entropy(Hashed(2))
    drawn = [discrete_laplace(3, entropy) for _ in range(DRAWS)]
    check(drawn, lambda x: math.exp(-abs(x) / 3), -8, 8, 63.2)


def test_a_coin_of_probability_exp_minus_gamma():
    entropy = Entropy(Hashed(3))
    for numerator, denominator in ((0, 1), (1, 3), (1, 1), (9, 4)):
        heads = sum([bernoulli_exp(numerator, denominator, entropy) for _ in range(1000)])
        p = math.exp(-numerator / denominator)
        # By Hoeffding's inequality, the number differs by more than 92 with a probability below 1e-7.
        assert abs(heads - 1000 * p) < 92
        assert p < 1 or heads == 1000


def test_integers_of_three_words_are_uniform():
    entropy = Entropy(Hashed(4))
    n = 5 * (1 << 80) // 3
    eighths = [0] * 8
    for _ in range(DRAWS):
        x = uniform(n, entropy)
        assert 0 <= x < n
        eighths[8 * x // n] += 1
    # A chi-square of 7 degrees of freedom exceeds 46.6 with a probability below 1e-7.
    assert sum([(count - DRAWS / 8) ** 2 for count in eighths]) / (DRAWS / 8) < 46.6


def test_large_variances_keep_their_scale_and_cost_little():
    source = Hashed(5)
    entropy = Entropy(source)
    variance = 10**12
    clock = getattr(time, "ticks_us", None) or (lambda: int(time.time() * 1000000))
    began = clock()
    draws = 300
    squares = sum([discrete_gaussian(variance, entropy) ** 2 for _ in range(draws)])
    spent = clock() - began
    print("a draw of variance 10^12: %d us, %d bytes of entropy" % (spent // draws, 32 * source.count // draws))
    # The mean square of 300 normal values differs from the variance by more than 45 % with a probability of 5.4e-7.
    assert 0.55 < squares / draws / variance < 1.45


def test_roots():
    for n in (0, 1, 2, 3, 4, 15, 16, 17, 10**18, 10**18 - 1, (1 << 60) - 1, 1 << 60):
        x = root(n)
        assert x * x <= n < (x + 1) * (x + 1)


def test_a_variance_out_of_range_is_refused():
    entropy = Entropy(Hashed(6))
    assert abs(discrete_gaussian(1, entropy)) < 40
    assert abs(discrete_gaussian(1 << 60, entropy)) < 40 << 30
    for variance in (0, -1, (1 << 60) + 1, 2.5, None):
        try:
            discrete_gaussian(variance, entropy)
        except Invalid as error:
            assert "variance" in str(error)
        else:
            raise AssertionError(variance)


def test_a_uniform_integer_of_several_limbs_reaches_both_ends():
    for bits in (1, 30, 31, 60, 61, 90):
        assert uniform(1 << bits, Extreme(True)) == (1 << bits) - 1
        assert uniform(1 << bits, Extreme(False)) == 0


class Given:
    """Stands for `Entropy`: returns these words, which are masked already."""

    left = 1 << 30

    def __init__(self, *values):
        self.values = list(values)

    def below(self, n):
        word = self.values.pop(0)
        assert 0 <= word < n
        return word


def test_a_uniform_integer_is_below_n_also_where_the_highest_limb_is_full():
    # For n = 2^30 + 1, the words 1 and 1 make n itself, so two new words are drawn.
    assert uniform((1 << 30) + 1, Given(1, 1, 1, 0)) == 1 << 30
    assert uniform((1 << 30) + 1, Given(1, 1, 0, 5)) == 5


def test_an_integer_of_more_limbs_than_the_buffer_has_words_is_drawn():
    entropy = Entropy(Hashed(9))
    n = 1 << 30 * 100
    assert uniform(n, entropy) < n
