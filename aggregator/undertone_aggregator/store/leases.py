"""Leases: which worker owns which part of a campaign, for workers on several machines.

A lease is a row of the database and expires by the database's clock. Taking a lease increments its fencing token. Every
transaction of an owner first checks that its token is still the newest. So if an owner comes back after a pause of any
length, it is refused (`Fenced`), whatever clocks and networks did meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

COORDINATOR = "coordinator"


class Fenced(Exception):
    """A worker's lease belongs to another worker now. The worker's transaction was rolled back."""


@dataclass(frozen=True)
class Lease:
    """The right to a role, for ``seconds`` from the last renewal."""

    role: str
    token: int
    seconds: float


class Leases(Protocol):
    """The roles of one campaign, and the workers that share them. Every method may raise StoreError."""

    def reset(self, roles: Iterable[str]) -> None:
        """Replace the roles. Afterwards all roles are free, and transactions of earlier holders are refused."""

    def take(self, role: str, owner: str, seconds: float) -> Lease | None:
        """Take a lease that has expired or was released. Return None while another owner holds it."""

    def renew(self, lease: Lease) -> None:
        """Extend the lease to ``lease.seconds`` from now. Raises Fenced if another has it: then stop all work."""

    def release(self, lease: Lease) -> None:
        """Give the lease back, if this owner still has it."""

    def begin(self, lease: Lease) -> None:
        """Note that the broker queues reports for the lease's partition. Raises Fenced."""

    def begun(self) -> bool:
        """Return True if the broker queues reports for every partition."""

    def free(self) -> list[str]:
        """Return the roles that nobody holds now."""

    def owners(self) -> dict[str, str]:
        """Return a map: role -> its holder now, empty if nobody holds it."""

    def join(self, name: str, most: int, seconds: float) -> None:
        """Enter this worker in the list of members for ``seconds``. It takes at most ``most`` partitions."""

    def leave(self, name: str) -> None:
        """Remove this worker from the list of members."""

    def members(self) -> dict[str, int]:
        """Return a map: member -> the largest number of partitions that it takes."""


def fair_shares(partitions: int, members: Mapping[str, int]) -> dict[str, int]:
    """Return each worker's number of partitions. Numbers differ by at most one, unless a worker takes fewer."""
    shares = dict.fromkeys(sorted(members), 0)
    left = min(partitions, sum(members.values()))
    while left:
        for name in shares:
            if left and shares[name] < members[name]:
                shares[name] += 1
                left -= 1
    return shares
