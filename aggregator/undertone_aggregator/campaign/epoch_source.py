"""Protocol of the objects that decide on a campaign's epochs, and the input of such a decision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.partial import Partial


def _ignore(_: str) -> None:
    """Do nothing. This takes the sentences about progress if nobody wants them."""


def _none(_: int) -> int:
    """Return 0, the number of strays (`campaign.strays`) of a campaign without a store."""
    return 0


@dataclass(frozen=True)
class EpochMeans:
    """The objects that a decision on epochs needs besides the plan."""

    # Seed from which the schedule is drawn.
    seed: bytes
    # (first, last, kind of report) -> the store's Partial of this kind, for the slots first <= slot <= last.
    read: Callable[[int, int, int], Partial]
    # Clock in Unix seconds that shows how long a choice of θ has taken; None: a choice counts as taking no time.
    clock: Callable[[], float] | None = None
    # Receives sentences about the progress of a choice.
    progress: Callable[[str], None] = _ignore
    # Receives warnings, such as why nothing was decided.
    warn: Callable[[str], None] = _ignore
    # Unix second -> how many devices then follow an epoch that the store does not know (`campaign.strays.Strays`).
    strays: Callable[[int], int] = _none


class EpochSource(Protocol):
    """Decides which epoch a campaign issues next, and when.

    ``fixed_end``: why the campaign's length cannot change once it has begun; empty if it can.
    """

    fixed_end: str

    def warnings(self) -> dict[str, str]:
        """Return a map: kind -> sentence about a plan that will work, but badly."""

    def first(self, now: int) -> Epoch:
        """Return the campaign's first epoch."""

    def planned(self, now: int) -> list[Epoch]:
        """Return the epochs of a campaign that begins now, as far as they are known.

        The campaign's guarantee is made from the guarantees of these epochs.
        """

    def last_slot(self, timeline: Timeline) -> int:
        """Return the campaign's last slot by the plan and the epochs that were issued."""

    def learning_ends(self, timeline: Timeline) -> int | None:
        """Return the Unix second at which the first report phase begins if no round is late; None if it has begun."""

    def reissued(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the newest epoch with the plan's present end, if it has to be issued again; else None.

        That is so if the plan's end was extended since, or if devices follow an epoch that the store does not know.
        """

    def due(self, timeline: Timeline, now: int) -> int | None:
        """Return the Unix second from which the next epoch can be decided; None if no epoch is left to issue."""

    def waits(self, timeline: Timeline, now: int) -> str:
        """Return why no epoch after the first may be issued at Unix second ``now``; empty if an epoch may be issued."""

    def next(self, timeline: Timeline, now: int) -> Epoch | None:
        """Return the epoch to issue at Unix second ``now``, once it is ``due``; None if no epoch is to be issued."""
