"""The proofs for all mechanisms notice a mechanism with one wrong cell, weight, outcome or step of the decode."""

import pytest
from proofs import check_all, check_small
from small_mechanisms import SMALL, small_table

from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism

INTEGERS = (41, 15, 39, 4, 16)


class WideWindow(WindowMechanism):
    def weights(self, level):
        row = super().weights(level)
        j = self.stride * level + self.window
        row[self.first + (j if j < self.cells else 0)] = self.a
        return row


class HeavyWeight(WindowMechanism):
    def weights(self, level):
        row = super().weights(level)
        row[-1] += 1
        return row


class DrawOffByOne(WindowMechanism):
    def draw(self, level, entropy):
        u = entropy.below(self.total)
        inside = self.a * self.window
        start = self.stride * level
        if u <= inside:
            return self.first + start + u // self.a
        cell = (u - inside) // self.b
        return self.first + (cell if cell < start else cell + self.window)


class DrawBesideTheWindow(WindowMechanism):
    def draw(self, level, entropy):
        u = entropy.below(self.total)
        inside = self.a * self.window
        start = self.stride * level
        if u < inside:
            return self.first + start + u // self.a
        cell = (u - inside) // self.b
        return self.first + (cell if cell <= start else cell + self.window)


class OneWordMore(WindowMechanism):
    def draw(self, level, entropy):
        entropy.below(self.total)
        return super().draw(level, entropy)


class BoldCertificate(WindowMechanism):
    def certificate(self):
        return (self.a - 1, self.b)


class LenientPermit(WindowMechanism):
    def permits(self, cap):
        return (self.a - 1) * cap[1] <= cap[0] * self.b


class BiasedDecode(WindowMechanism):
    def decode(self, symbol, theta):
        numerator, denominator = super().decode(symbol, theta)
        return (numerator + 1, denominator)


class OptimisticVariance(WindowMechanism):
    def variance(self, level, theta):
        numerator, denominator = super().variance(level, theta)
        return (numerator - 1, denominator)


class FloorLevel(WindowMechanism):
    def level(self, x, theta, entropy):
        entropy.below(theta)
        return x * self.levels // theta


WINDOWS = [
    WideWindow,
    HeavyWeight,
    DrawOffByOne,
    DrawBesideTheWindow,
    OneWordMore,
    BoldCertificate,
    LenientPermit,
    BiasedDecode,
    OptimisticVariance,
    FloorLevel,
]


def test_the_original_passes():
    check_small(WindowMechanism(*INTEGERS), 30)


@pytest.mark.parametrize("mutant", WINDOWS)
def test_a_mutant_fails_by_enumeration(mutant):
    with pytest.raises(AssertionError):
        check_small(mutant(*INTEGERS), 30)


@pytest.mark.parametrize("mutant", [m for m in WINDOWS if m is not FloorLevel])
def test_a_mutant_of_a_shipped_size_fails_at_the_boundaries(mutant):
    with pytest.raises(AssertionError):
        check_all(mutant(2721, 1001, 621, 4, 256), 1000, {0, 128, 256})


class LateTable(TableMechanism):
    def draw(self, level, entropy):
        u = entropy.below(1 << self.bits)
        row = self.weights(level)
        return sum(u > sum(row[: j + 1]) for j in range(self.symbols - 1))


class LevelsShifted(TableMechanism):
    def value(self, level, theta):
        return (self.values[level] + 1, 1 << self.shift)


@pytest.mark.parametrize("mutant", [LateTable, LevelsShifted])
def test_a_mutated_table_fails(mutant):
    table = small_table(0)
    wrong = mutant(table.bits, table.rows, table.values, table.shift, table.decoded)
    with pytest.raises(AssertionError):
        check_small(wrong, 12)


class UnfairCoin(Hybrid):
    def choose(self, entropy):
        return self.piecewise if entropy.below(65536) <= self.coin else self.rounding


class SilentCoin(Hybrid):
    def choose(self, entropy):
        return self.piecewise if self.coin and entropy.below(65536) < self.coin else self.rounding


@pytest.mark.parametrize(("name", "mutant"), [("hybrid", UnfairCoin), ("hybrid, coin 0", SilentCoin)])
def test_a_mutated_hybrid_fails(name, mutant):
    hybrid, theta = next((m, theta) for n, m, theta in SMALL if n == name)
    with pytest.raises(AssertionError):
        check_small(mutant(hybrid.coin, hybrid.rounding, hybrid.piecewise), theta)
