"""The contract of a scalar mechanism: everything that is called on one. A board does not carry this module."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from undertone_shared.entropy import Entropy
else:
    # MicroPython has no typing; elsewhere the members' names are read at run time.
    Protocol = object


class ChosenPart(Protocol):
    """What ``choose`` gives: the mechanism itself, or the one of its parts that draws this report."""

    def level(self, x: int, theta: int, entropy: "Entropy") -> int:
        """The level 0..K of the truncated reading ``x`` in [0, theta], rounded at random so that its mean is x."""

    def draw(self, level: int, entropy: "Entropy") -> int:
        """A symbol by the weights of ``level``, in integers. Raises Invalid for a level out of range."""


class Mechanism(Protocol):
    """Everything that is called on a scalar mechanism.

    It has K = ``levels``, so levels 0..K, and symbols 0..``symbols`` - 1. Rationals are pairs (numerator, positive
    denominator). ``value``, ``decode`` and ``variance`` are in units of the truncated reading, 0 to theta.
    ``edges``: None, or for a mechanism without an unbiased decode the edges of its bins. ``first``: its first symbol.
    A device calls ``choose``, ``level``, ``draw``, ``covers``, ``certificate`` and ``permits``; the server calls the
    rest, and so does anybody who checks a campaign.
    """

    @property
    def levels(self) -> int:
        """K: there are K + 1 levels."""
        raise NotImplementedError

    @property
    def symbols(self) -> int:
        """The number of symbols."""
        raise NotImplementedError

    @property
    def edges(self) -> "tuple[int, ...] | None":
        """The edges of its bins; None for a mechanism with an unbiased decode."""
        raise NotImplementedError

    @property
    def first(self) -> int:
        """The first symbol that it draws."""
        raise NotImplementedError

    @property
    def parts(self) -> "Sequence[Any]":
        """The mechanisms that may draw: itself, or those between which a public coin decides."""

    def choose(self, entropy: "Entropy") -> "ChosenPart":
        """The part that draws this report."""

    def covers(self, theta: int) -> bool:
        """Whether ``level`` stays within small integers (below 2^30) for readings in [0, theta]."""

    def certificate(self) -> tuple[int, int]:
        """The largest ratio of the probabilities of one symbol at two levels, exactly; ε is its logarithm."""

    def permits(self, cap: tuple[int, int]) -> bool:
        """Whether the certificate is at most the rational ``cap``, by integers alone."""

    def describe(self) -> "dict[str, Any]":
        """The JSON value of a campaign, from which `parse_mechanism` makes the same mechanism; it has a ``kind``."""

    def occurs(self, symbol: int) -> bool:
        """Whether a device can draw the symbol; the server refuses reports with any other."""

    def weights(self, level: int) -> list[int]:
        """The integer weights of all symbols at a level; they sum to ``row_total()``."""

    def row_total(self) -> int:
        """The sum of each row of weights."""

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """The reading for which a level stands. Raises Invalid with edges."""

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """The unbiased estimate of the truncated reading, given a symbol. Raises Invalid with edges."""

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """The variance of ``decode`` at a level. Raises Invalid with edges."""
