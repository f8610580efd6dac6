"""Privacy budgets as rationals: integers a, b with a/b <= e^epsilon, proven without a float."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self

from undertone_shared.errors import Invalid
from undertone_shared.off_board.rationals import rational

LEAST, MOST = "0.05", "8"
LARGEST_NUMERATOR = 4095
_TERMS = 64
_CAP_DENOMINATOR = 1 << 48


def _epsilon(epsilon: Fraction | float | str) -> Fraction:
    return Fraction(*rational("epsilon", epsilon, LEAST, MOST))


def _delta(delta: Fraction | float | str) -> Fraction:
    return Fraction(*rational("delta", delta, "1e-300", "0.99"))


def shown(value: Fraction, digits: int = 6) -> str:
    """Format a rational with ``digits`` significant digits."""
    return f"{float(value):.{digits}g}"


def exponential_below(epsilon: Fraction) -> Fraction:
    """Return a rational lower bound of e^epsilon, epsilon in [0, 8]: 64 terms of its Taylor series, all positive.

    The remainder is below 1e-30.
    """
    term = total = Fraction(1)
    for i in range(1, _TERMS):
        term *= epsilon / i
        total += term
    return total


# A server's rounds, epochs and policy all ask for the same fraction, so results are cached; typed=True keeps 1 and True
# apart.
@lru_cache(maxsize=64, typed=True)
def best_fraction(epsilon: Fraction | float | str, largest: int = LARGEST_NUMERATOR) -> tuple[int, int]:
    """Return the largest rational a/b <= e^epsilon with a <= ``largest``, in lowest terms.

    The proof: a * denominator <= b * numerator, where numerator/denominator <= e^epsilon is what `exponential_below`
    returns. Raises Invalid for an epsilon out of range, or if no a/b > 1 has an a <= ``largest``.
    """
    bound = exponential_below(_epsilon(epsilon))
    best = (1, 1)
    for a in range(2, largest + 1):
        # b is the least integer with a/b <= bound.
        b = -(-a * bound.denominator // bound.numerator)
        if a * best[1] > best[0] * b:
            best = (a, b)
    if best == (1, 1):
        raise Invalid(f"largest is {largest}: no fraction with a numerator so small lies between 1 and e^{epsilon}")
    return best


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a reading, a window or a stream: ``epsilon`` and, if there is one, ``delta``.

    Both are exact rationals.
    """

    epsilon: Fraction
    delta: Fraction | None = None

    def __post_init__(self) -> None:
        """Check the fields. Raises Invalid unless epsilon is from 0.05 to 8 and delta, if any, from 1e-300 to 0.99."""
        _epsilon(self.epsilon)
        if self.delta is not None:
            _delta(self.delta)

    @classmethod
    def parse(cls, epsilon: Fraction | float | str, delta: Fraction | float | str | None = None) -> Self:
        """Make a budget from a user's or a program's numbers. Raises Invalid."""
        return cls(_epsilon(epsilon), None if delta is None else _delta(delta))

    @classmethod
    def stored(cls, epsilon: str, delta: str | float | None) -> Self:
        """Make a budget from a store's values: the rational as text, and a double or None for delta. Raises Invalid."""
        return cls(Fraction(epsilon), Fraction(str(delta)) if delta else None)

    @property
    def text(self) -> str:
        """The budget for people: "ε = 1", "(ε, δ) = (1, 1e-05)"."""
        if self.delta is None:
            return f"ε = {shown(self.epsilon)}"
        return f"(ε, δ) = ({shown(self.epsilon)}, {shown(self.delta)})"

    @property
    def cap(self) -> tuple[int, int]:
        """(p, q): the cap that a mechanism must not exceed, with p/q <= e^epsilon, less than 2^-47 below e^epsilon."""
        bound = exponential_below(self.epsilon)
        return (bound.numerator * _CAP_DENOMINATOR // bound.denominator, _CAP_DENOMINATOR)

    @property
    def approximate(self) -> tuple[float, float]:
        """(ε, δ) as doubles, for numerics and plots; δ is 0 if the budget has none."""
        return float(self.epsilon), float(self.delta or 0)

    def as_json(self) -> dict[str, float | None]:
        """Return the documented JSON object; delta is null if the budget has none."""
        epsilon, delta = self.approximate
        return {"epsilon": epsilon, "delta": None if self.delta is None else delta}
