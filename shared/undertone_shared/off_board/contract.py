"""The contract of a scalar mechanism: what other code calls on it. A board does not carry this module."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from undertone_shared.entropy import Entropy
else:
    # MicroPython has no module typing, so its protocols are plain classes.
    Protocol = object


class ChosenPart(Protocol):
    """Result of ``choose``: the mechanism itself, or the one of its parts that draws this report."""

    def level(self, x: int, theta: int, entropy: "Entropy") -> int:
        """Return the level 0..K of the truncated reading ``x`` in [0, theta], at random so that the levels' mean is x.

        For a mechanism with edges it is the index of x's bin.
        """

    def draw(self, level: int, entropy: "Entropy") -> int:
        """Draw a symbol by the weights of ``level``, in integers. Raises Invalid for a level out of range."""


class Mechanism(Protocol):
    """The members of a scalar mechanism that other code uses.

    It has K = ``levels``, so levels 0..K, and symbols 0..``symbols`` - 1. Rationals are pairs (numerator, positive
    denominator). ``value``, ``decode`` and ``variance`` are in units of the truncated reading, 0 to theta. ``edges``:
    None, or for a mechanism without an unbiased decode the edges of its bins. ``first``: its first symbol. A device
    calls ``choose``, ``covers``, ``certificate`` and ``permits``, and ``level`` and ``draw`` of the chosen part; the
    server, and every program that checks a campaign, calls the rest.
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
        """The edges of the mechanism's bins; None for a mechanism with an unbiased decode."""
        raise NotImplementedError

    @property
    def first(self) -> int:
        """The mechanism's lowest symbol: 0, or more for a part of a Hybrid."""
        raise NotImplementedError

    @property
    def parts(self) -> "Sequence[Any]":
        """The mechanisms that may draw: itself, or those among which a public coin decides."""

    def choose(self, entropy: "Entropy") -> "ChosenPart":
        """Return the part that draws this report."""

    def covers(self, theta: int) -> bool:
        """Return True if ``level`` uses only small integers (below 2^30) for readings in [0, theta]."""

    def certificate(self) -> tuple[int, int]:
        """Return the largest ratio of the probabilities of one symbol at two levels, exactly; ε is its logarithm."""

    def permits(self, cap: tuple[int, int]) -> bool:
        """Return True if the certificate is at most the rational ``cap``, by integers only."""

    def describe(self) -> "dict[str, Any]":
        """Return the JSON value for a campaign, from which `parse_mechanism` makes the same mechanism.

        It has a ``kind``.
        """

    def occurs(self, symbol: int) -> bool:
        """Return True if a device can draw the symbol; the server refuses reports with any other."""

    def weights(self, level: int) -> list[int]:
        """Return the integer weights of all symbols at a level; they sum to ``row_total()``."""

    def row_total(self) -> int:
        """Return the sum of each row of weights."""

    def value(self, level: int, theta: int) -> tuple[int, int]:
        """Return the reading that a level represents. Raises Invalid for a mechanism with edges."""

    def decode(self, symbol: int, theta: int) -> tuple[int, int]:
        """Return the unbiased estimate of the truncated reading, given a symbol.

        Raises Invalid for a mechanism with edges, which has no unbiased decode.
        """

    def variance(self, level: int, theta: int) -> tuple[int, int]:
        """Return the variance of ``decode`` at a level. Raises Invalid for a mechanism with edges."""
