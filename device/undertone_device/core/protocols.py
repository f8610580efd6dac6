"""Interfaces of the objects that are passed to the core. For type checkers and readers: no device loads this."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from undertone_shared.campaign import Campaign


# A sensor's sample: a number, or a number for each coordinate.
Sample = int | tuple[int, ...]


class Accumulator(Protocol):
    """Accumulates one slot's samples."""

    measure: str

    def add(self, sample: "Sample", ticks: int) -> None:
        """Take one sample. Raises Invalid."""

    def add_many(self, samples: "Sequence[Sample]", ticks: int) -> None:
        """Take a buffer of samples. Raises Invalid."""

    def close(self, ticks: int) -> "Sample | None":
        """Return the slot's value, None if the samples give none; later samples belong to the next slot."""


class RuleState(Protocol):
    """The state that one kind of rule keeps from report to report, with its counts and charges."""

    def lost(self, now: int) -> None:
        """Count as spent everything that a lost ledger may have held."""

    def charge(self, campaign: "Campaign", now: int) -> None:
        """Charge the campaign as a whole. Raises Refused."""

    def restart(self) -> None:
        """Reset the counts, because another campaign becomes current."""

    def forget(self) -> None:
        """Forget the state, so that the next report continues no earlier one."""

    def obstacle(self, campaign: "Campaign", slot: int) -> "str | None":
        """Return one word why this kind may not draw the slot, or None."""

    def draw(self, campaign: "Campaign", slot: int, reading: "tuple[int, ...]") -> "tuple[tuple[int, ...], int]":
        """Return (values, chain index) of the slot's report. Raises EntropyError."""
