"""A published mechanism that the product does not have. It shows how much code a new mechanism needs."""

from fractions import Fraction

from undertone_aggregator.design.mechanisms import Traits


class ThreeOutputs:
    """Zhao et al., IEEE IoT Journal 2021: the outputs are -C, 0 and C.

    P(0 | 0) = n/d and P(0 | ±1) = (n/d) b/a, and P(0 | x) is linear between x = 0 and x = ±1.
    """

    levels, symbols, edges, first = 2, 3, None, 0

    def __init__(self, a, b, n, d):
        self.a, self.b, self.n, self.d = a, b, n, d
        rest = a * d - b * n
        self.c = Fraction(d * a * (a + b), (a - b) * rest)
        end = [2 * a * rest, 2 * n * b * (a + b), 2 * b * rest]
        self._rows = [end, [(d - n) * a * (a + b), 2 * n * a * (a + b), (d - n) * a * (a + b)], end[::-1]]

    def describe(self):
        return {"kind": "three-outputs", "a": self.a, "b": self.b, "n": self.n, "d": self.d}

    @property
    def parts(self):
        return (self,)

    def choose(self, entropy):
        return self

    def covers(self, theta):
        return 1 <= theta < 1 << 29

    def level(self, x, theta, entropy):
        return 2 * x // theta + (entropy.below(theta) < 2 * x % theta)

    def draw(self, level, entropy):
        first, second, _ = self._rows[level]
        u = entropy.below(self.row_total())
        return (u >= first) + (u >= first + second)

    def occurs(self, symbol):
        return 0 <= symbol < self.symbols

    def weights(self, level):
        return list(self._rows[level])

    def row_total(self):
        return sum(self._rows[0])

    def certificate(self):
        return (self.a, self.b)

    def permits(self, cap):
        return self.a * cap[1] <= cap[0] * self.b

    def value(self, level, theta):
        return (level * theta, 2)

    def decode(self, symbol, theta):
        return ((1 + (symbol - 1) * self.c) * theta / 2).as_integer_ratio()

    def variance(self, level, theta):
        second = self.c**2 * (1 - Fraction(self._rows[level][1], self.row_total()))
        return ((second - (level - 1) ** 2) * theta**2 / 4).as_integer_ratio()


# The fields in a campaign's JSON, and the function that makes the mechanism from them.
KIND = (("a", "b", "n", "d"), lambda name, fields: ThreeOutputs(*(fields[key] for key in "abnd")))


def traits(mechanism):
    return Traits("three-outputs", "three outputs", "continuous", False, (0, 1, 2))
