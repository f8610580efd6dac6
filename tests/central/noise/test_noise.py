"""The samplers follow their laws. Where this is not shown exactly, a χ² test has a p-value above 1e-7."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from support.central import laplace_pmf, seeded
from undertone_central.noise.cdf import cauchy_cdf, draw_floor, gaussian_cdf, laplace_cdf
from undertone_central.noise.coin import Coin, Coins, exponential_bounds, exponential_coin, logistic_coin
from undertone_central.noise.entropy import FreshBytes, KeyedBytes
from undertone_central.noise.gaussian import DiscreteGaussian, GaussianDraws
from undertone_central.noise.laplace import DiscreteLaplace, Draws
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid

RATES = [Fraction(1, 10**9), Fraction(1, 6000), Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(40)]


def decimal(x):
    return Decimal(x.numerator) / Decimal(x.denominator)


@pytest.mark.parametrize("rate", RATES)
def test_bounds_of_the_exponential_hold_the_true_value(rate):
    with localcontext() as context:
        context.prec = 120
        low, high = exponential_bounds(rate, 200)
        true = decimal(rate).exp() * 2**200
        assert low <= true <= high
        assert (high - low) / true < Decimal(2) ** -180


@pytest.mark.parametrize("rate", RATES)
def test_digits_of_the_coins(rate):
    with localcontext() as context:
        context.prec = 120
        e = decimal(rate).exp()
        for bits in (8, 40, 72, 200):
            assert logistic_coin(rate).digits(bits) == int(2**bits / (1 + e))
            assert exponential_coin(rate).digits(bits) == int(2**bits / e)


class Script:
    def __init__(self, data):
        self.data = data

    def take(self, n):
        taken, self.data = self.data[:n], self.data[n:]
        assert len(taken) == n
        return taken


def test_a_flip_compares_digit_by_digit():
    # p = 1/3 is 0.0101… in binary: its first byte is 85, and each later word is 0x55555555.
    third = Coin(lambda bits: ((1 << bits) // 3, (1 << bits) // 3))
    assert third.digits(8) == 85
    for first in range(256):
        if first != 85:
            assert Coins([third]).flip(Script(bytes([first])), 1)[0, 0] == (first < 85)
    for word, heads in ((0x55555554, True), (0x55555556, False), (0, True)):
        assert Coins([third]).flip(Script(bytes([85]) + word.to_bytes(4, "little")), 1)[0, 0] == heads
    tied = bytes([85]) + (0x55555555).to_bytes(4, "little")
    assert Coins([third]).flip(Script(tied + bytes(4)), 1)[0, 0]
    assert not Coins([third]).flip(Script(tied + b"\xff" * 4), 1)[0, 0]


def test_independent_bits_make_a_discrete_laplace_exactly():
    """Sums over all outcomes of all coins, in rationals.

    With q = 2/5 and four bits, the law's first blocks are exact.
    """
    q = Fraction(2, 5)
    law = DiscreteLaplace(Fraction(1, 2))
    law._bits = 4
    heads_of = [1 / (1 + 1 / q ** (2**i)) for i in (0, 0, 1, 2, 3)] + [q**16]
    total = {}
    for heads in product((0, 1), repeat=6):
        chance = Fraction(1)
        for p, head in zip(heads_of, heads, strict=True):
            chance *= p if head else 1 - p
        # If the last coin shows tails, nothing is added. If it shows heads, at least 16 is added, and the coin is
        # flipped again.
        law._tail = Stops()
        magnitude = int(law._magnitude(np.array(heads, dtype=bool)[:, None], None)[0])
        x = -1 - magnitude if heads[0] else magnitude
        total[x] = total.get(x, 0) + chance
    for x in range(-16, 16):
        assert total[x] == (1 - q) / (1 + q) * q ** abs(x)
    # The next block of 16 has q^16 times the chance of the first, and the flips end there with a chance of 1 - q^16.
    assert sum(total[x] for x in range(16, 32)) == sum(total[x] for x in range(16)) * q**16 / (1 - q**16)


class Stops:
    def flip(self, source, n):
        return np.zeros((1, n), dtype=bool)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(37, 5), Fraction(6000)])
def test_discrete_laplace_by_chi_square(scale):
    x = DiscreteLaplace(scale).sample(seeded(5), 100_000)
    edges = np.unique(np.rint(stats.laplace.ppf(np.arange(1, 20) / 20, scale=float(scale))))
    cells = np.searchsorted(edges, x)
    grid = np.arange(-60 * int(scale + 1), 60 * int(scale + 1) + 1)
    expected = np.bincount(np.searchsorted(edges, grid), laplace_pmf(grid, float(scale)), len(edges) + 1) * len(x)
    observed = np.bincount(cells, minlength=len(edges) + 1)
    kept = expected > 0
    assert stats.chisquare(observed[kept], expected[kept] * len(x) / expected.sum()).pvalue > 1e-7


def test_geometric_by_chi_square():
    x = np.minimum(DiscreteLaplace(Fraction(5)).sample_geometric(seeded(6), 100_000), 30)
    q = np.exp(-1 / 5)
    expected = np.append((1 - q) * q ** np.arange(30), q**30) * len(x)
    assert stats.chisquare(np.bincount(x, minlength=31), expected).pvalue > 1e-7


@pytest.mark.parametrize("variance", [Fraction(1, 2), Fraction(9), Fraction(10**6, 7)])
def test_discrete_gaussian_by_chi_square(variance):
    x = DiscreteGaussian(variance).sample(seeded(7), 50_000)
    grid = np.arange(-int(12 * variance**0.5) - 5, int(12 * variance**0.5) + 6)
    pmf = np.exp(-(grid.astype(float) ** 2) / (2 * float(variance)))
    edges = np.unique(np.rint(stats.norm.ppf(np.arange(1, 16) / 16, scale=float(variance) ** 0.5)))
    expected = np.bincount(np.searchsorted(edges, grid), pmf / pmf.sum(), len(edges) + 1) * len(x)
    observed = np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
    assert stats.chisquare(observed, expected).pvalue > 1e-7


def test_the_gaussians_exact_decision_agrees_with_its_fast_one():
    law = DiscreteGaussian(Fraction(50, 3))
    source = seeded(8)
    proposed = law._proposal.sample(source, 300)
    words = np.frombuffer(source.take(8 * 300), dtype="<u8")
    fast = law._accepted(proposed, words, source)
    assert [law._exact(int(y), int(w), source) for y, w in zip(proposed, words, strict=True)] == fast.tolist()


def test_sequences_do_not_depend_on_how_they_are_cut():
    for make in (
        lambda: Draws(Fraction(300), seeded(9)),
        lambda: GaussianDraws(Fraction(300), seeded(9)),
    ):
        whole, parts = make().take(1500), make()
        assert np.concatenate([parts.take(n) for n in (1, 0, 511, 700, 288)]).tolist() == whole.tolist()
    draws = Draws(Fraction(300), seeded(9))
    assert [draws.draw() for _ in range(5)] == Draws(Fraction(300), seeded(9)).take(5).tolist()


def test_keyed_bytes_depend_on_key_address_and_call():
    first = KeyedBytes(b"k" * 32, 1, 2)
    a, b = first.take(8), first.take(8)
    assert a != b
    assert KeyedBytes(b"k" * 32, 1, 2).take(8) == a
    assert KeyedBytes(b"k" * 32, 2, 1).take(8) != a
    assert KeyedBytes(b"l" * 32, 1, 2).take(8) != a


def test_the_health_test_sees_a_stuck_source_also_across_blocks():
    with pytest.raises(EntropyError, match="one byte came"):
        FreshBytes(bytes).take(64)
    with pytest.raises(EntropyError, match="gave 3 bytes"):
        FreshBytes(lambda n: b"abc").take(4)
    blocks = iter([b"abcd" + b"x" * 5, b"xxx" + b"e", b"y" * 8])
    source = FreshBytes(lambda n: next(blocks))
    source.take(9)
    source.take(4)
    blocks = iter([b"zabcxxxxx", b"xxxx"])
    source.take(9)
    with pytest.raises(EntropyError):
        source.take(4)
    fine = FreshBytes(np.random.default_rng(3).bytes)
    for n in (1, 7, 8, 100_000, 1):
        assert len(fine.take(n)) == n


def test_scales_out_of_range_are_refused():
    for scale in (Fraction(0), Fraction(1 << 47)):
        with pytest.raises(Invalid, match="scale"):
            DiscreteLaplace(scale)
    with pytest.raises(Invalid, match="variance"):
        DiscreteGaussian(Fraction(1, 10))


LAWS = [(laplace_cdf, stats.laplace), (gaussian_cdf, stats.norm), (cauchy_cdf, stats.cauchy)]


@pytest.mark.parametrize(("cdf", "law"), LAWS)
def test_distribution_functions_between_their_bounds(cdf, law):
    for z in (Fraction(0), Fraction(1, 3), Fraction(-1), Fraction(1), Fraction(5, 2), Fraction(-7), Fraction(-100)):
        low, high = cdf(z, 64)
        assert low <= high <= low + 64
        assert low / 2**64 == pytest.approx(law.cdf(float(z)), abs=1e-14)
        finer = cdf(z, 160)
        assert low <= (finer[1] >> 96) + 1
        assert high >= finer[0] >> 96


@pytest.mark.parametrize(("cdf", "law"), LAWS)
def test_draws_by_inversion(cdf, law):
    source = seeded(4)
    x = np.array([draw_floor(cdf, Fraction(1, 3), Fraction(2), source) for _ in range(250)])
    edges = np.arange(-4, 6, 2)
    steps = np.concatenate([[0], law.cdf((edges - 1 / 3) / 2), [1]])
    observed = np.bincount(np.searchsorted(edges, x, side="right"), minlength=len(edges) + 1)
    assert stats.chisquare(observed, np.diff(steps) * len(x)).pvalue > 1e-7
