"""Who owns what of a campaign whose workers are on several machines: leases in the database, by its clock.

Whoever takes a lease counts its token up. Each transaction of an owner begins by finding its token there: one that
comes late, after a pause of any length, is refused (`Fenced`), whatever clocks and networks did meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

COORDINATOR = "coordinator"


class Fenced(Exception):
    """The lease is another owner's now: nothing of the transaction was kept."""


@dataclass(frozen=True)
class Lease:
    """One owner's hold on a role, for ``seconds`` from its last renewal."""

    role: str
    token: int
    seconds: float


class Leases(Protocol):
    """Roles of one campaign, and the workers that share them out. Every method raises StoreError."""

    def reset(self, roles: Iterable[str]) -> None:
        """From now on these are the roles, and nobody holds one: whoever did is refused."""

    def take(self, role: str, owner: str, seconds: float) -> Lease | None:
        """A lease whose time is over, or that was let go; None while it is somebody's."""

    def renew(self, lease: Lease) -> None:
        """It lasts ``seconds`` from now. Raises Fenced when it is another's; then its holder must do nothing more."""

    def release(self, lease: Lease) -> None:
        """Let it go, if it is still ours."""

    def begin(self, lease: Lease) -> None:
        """The broker keeps reports for this partition from now on. Raises Fenced."""

    def begun(self) -> bool:
        """Whether it does so for every partition."""

    def free(self) -> list[str]:
        """Roles that can be taken."""

    def owners(self) -> dict[str, str]:
        """Role -> who holds it now, "" for nobody."""

    def join(self, name: str, most: int, seconds: float) -> None:
        """This worker is here for so long, and takes at most so many partitions."""

    def leave(self, name: str) -> None:
        """It is not any more."""

    def members(self) -> dict[str, int]:
        """The workers that are here, with the most that each takes."""


def fair_shares(partitions: int, members: Mapping[str, int]) -> dict[str, int]:
    """How many partitions each worker takes: equal to within one, none more than its most."""
    shares = dict.fromkeys(sorted(members), 0)
    left = min(partitions, sum(members.values()))
    while left:
        for name in shares:
            if left and shares[name] < members[name]:
                shares[name] += 1
                left -= 1
    return shares
