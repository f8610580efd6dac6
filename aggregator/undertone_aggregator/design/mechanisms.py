"""What the server knows of each class of mechanism: one table, and a class that is not in it raises.

To add a mechanism, write its class (see `undertone_shared.mechanism` for what it offers) and a function from it to its
`Traits`, and enter both in `TABLE`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism

Mechanism = WindowMechanism | Hybrid | TableMechanism
# Numerators and their common denominator.
Decoded = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Traits:
    """``kind``: one word. ``sentence``: what reports, for people; ``baseline``: whose variance its own is compared to.

    ``quadratic``: at the levels, Var(decoded | reading) is a quadratic in the reading. ``groups``: first
    symbols of the groups in which a histogram is judged: fakes that move a mean far must stand alone. ``decoded``:
    decode values that the campaign does not carry, and ``decoding`` the same mechanism with such values.
    """

    kind: str
    sentence: str
    baseline: str
    quadratic: bool
    groups: tuple[int, ...]
    decoded: Decoded | None = None
    decoding: Callable[[Decoded], Mechanism] | None = None

    @property
    def decodes(self) -> bool:
        """Whether a symbol has an unbiased decode, as far as is known here."""
        return self.decoding is None or self.decoded is not None


def traits_of(mechanism: Any) -> Traits:
    """The traits of a mechanism. Raises Invalid for a class that is not in `TABLE`."""
    describe = TABLE.get(type(mechanism))
    if describe is None:
        known = ", ".join(each.__name__ for each in TABLE)
        raise Invalid(f"the mechanism is a {type(mechanism).__name__}, expected one of {known}")
    return describe(mechanism)


def _window(mechanism: WindowMechanism) -> Traits:
    kind, sentence = ("piecewise", "the piecewise mechanism")
    if mechanism.edges is not None:
        kind, sentence = ("square-wave", "the Square Wave")
    elif mechanism.levels == 1:
        kind, sentence = ("stochastic-rounding", "stochastic rounding")
    groups = _doubling(0, mechanism.symbols)
    return Traits(kind, sentence, "continuous", True, groups)


def _hybrid(mechanism: Hybrid) -> Traits:
    groups = (0, 1, *_doubling(mechanism.rounding.symbols, mechanism.symbols))
    return Traits("hybrid", "the Hybrid", "continuous", True, groups)


def _table(mechanism: TableMechanism) -> Traits:
    def decoding(decoded: Decoded) -> TableMechanism:
        return TableMechanism(mechanism.bits, mechanism.rows, mechanism.values, mechanism.shift, decoded)

    groups = tuple(range(mechanism.symbols))
    return Traits("optimal", "an optimal table", "hybrid", False, groups, mechanism.decoded, decoding)


def _doubling(first: int, end: int) -> tuple[int, ...]:
    """The extremes alone, then twice as many symbols at a time towards the middle."""
    starts = {first}
    for power in range((end - first).bit_length()):
        step = 1 << power
        if 2 * step <= end - first:
            starts |= {first + step - 1, end - step + 1} - {end}
    return tuple(sorted(starts))


TABLE: dict[type, Callable[[Any], Traits]] = {WindowMechanism: _window, Hybrid: _hybrid, TableMechanism: _table}
