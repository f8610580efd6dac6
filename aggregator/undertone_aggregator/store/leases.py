"""Leases: which worker owns which role of a campaign with workers on several machines, by the database's clock.

Taking a lease increments its token. Each transaction of an owner begins by checking its token: a transaction that comes
late, after a pause of any length, is refused (`Fenced`), whatever clocks and networks did meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

COORDINATOR = "coordinator"


class Fenced(Exception):
    """The lease belongs to another owner now: nothing of the transaction was stored."""


@dataclass(frozen=True)
class Lease:
    """One owner's lease on a role, for ``seconds`` from its last renewal."""

    role: str
    token: int
    seconds: float


class Leases(Protocol):
    """Roles of one campaign, and the workers that share them. Every method raises StoreError."""

    def reset(self, roles: Iterable[str]) -> None:
        """Replace the roles and end all leases: their owners are refused from now on."""

    def take(self, role: str, owner: str, seconds: float) -> Lease | None:
        """Take a lease that has expired or was released; return None while another owner has it."""

    def renew(self, lease: Lease) -> None:
        """Extend the lease by ``seconds`` from now.

        Raises Fenced if another owner has it; then the caller must stop its work.
        """

    def release(self, lease: Lease) -> None:
        """Release the lease, if it is still ours."""

    def begin(self, lease: Lease) -> None:
        """Note that the broker stores reports for this partition from now on. Raises Fenced."""

    def begun(self) -> bool:
        """Return True if the broker stores reports for every partition."""

    def free(self) -> list[str]:
        """Return the roles whose lease can be taken."""

    def owners(self) -> dict[str, str]:
        """Return role -> current owner, "" for none."""

    def join(self, name: str, most: int, seconds: float) -> None:
        """Register this worker for ``seconds``, with the largest number of partitions that it takes."""

    def leave(self, name: str) -> None:
        """Remove this worker's registration."""

    def members(self) -> dict[str, int]:
        """Return the registered workers, with the largest number of partitions that each takes."""


def fair_shares(partitions: int, members: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each worker: equal to within one, and none above its maximum."""
    shares = dict.fromkeys(sorted(members), 0)
    left = min(partitions, sum(members.values()))
    while left:
        for name in shares:
            if left and shares[name] < members[name]:
                shares[name] += 1
                left -= 1
    return shares
