"""Accounting of a limited resource by network address, so that one address cannot use up the resource."""

import ipaddress
from collections import defaultdict
from typing import Generic, TypeVar

Member = TypeVar("Member")

# Length in bits of the prefix that one customer gets. Whoever has one address with this prefix has all of them.
_IPV6_NETWORK_BITS = 64


def network_of(address: str) -> str:
    """Return the part of an address that stands for one customer: a whole IPv4 address, or the /64 of an IPv6 address.

    Other text is returned unchanged.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))


class Shares(Generic[Member]):
    """Members by network, oldest first, and the network with the most members. Every operation takes constant time."""

    def __init__(self) -> None:
        # Dictionaries are used as sets because they keep the order of arrival.
        self._members: dict[str, dict[Member, None]] = {}
        self._networks_of_size: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._largest = 0
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def count(self, network: str) -> int:
        """Return the number of members of this network."""
        return len(self._members.get(network, ()))

    @property
    def largest(self) -> int:
        """Number of members of the largest network."""
        return self._largest

    def add(self, network: str, member: Member) -> None:
        """Add a member as the newest of its network."""
        members = self._members.setdefault(network, {})
        members[member] = None
        self._total += 1
        self._move(network, len(members) - 1, len(members))

    def remove(self, network: str, member: Member) -> None:
        """Remove a member. Raises KeyError if it is not there."""
        members = self._members[network]
        del members[member]
        self._total -= 1
        self._move(network, len(members) + 1, len(members))
        if not members:
            del self._members[network]

    def oldest(self, network: str) -> Member:
        """Return the oldest member of a network. Raises KeyError for a network without members."""
        return next(iter(self._members[network]))

    def most_crowded(self) -> Member:
        """Return the oldest member of the network with the most members. Raises KeyError if there are no members."""
        if not self._total:
            raise KeyError("there is no member")
        return self.oldest(next(iter(self._networks_of_size[self._largest])))

    def _move(self, network: str, before: int, after: int) -> None:
        sizes = self._networks_of_size
        if before:
            del sizes[before][network]
            if not sizes[before]:
                del sizes[before]
        if after:
            sizes[after][network] = None
        # Each call adds or removes one member, so the size of the largest network changes by at most one.
        if after > self._largest or (before == self._largest and before not in sizes):
            self._largest = after
