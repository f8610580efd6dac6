"""Rate limit of requests, by network and in all: token buckets. The caller passes the clock in."""

from collections.abc import Callable
from dataclasses import dataclass

from undertone_aggregator.mqtt.endpoint.shares import network_of

# Largest number of networks that are remembered. If there are more, the network that was quiet longest is forgotten.
_MOST_NETWORKS = 4096


@dataclass(frozen=True)
class Rate:
    """A bucket holds at most ``burst`` tokens, and gets ``per_second`` tokens each second."""

    burst: float
    per_second: float


class RateLimit:
    """Token buckets: one for each network, and one for all together. ``clock``: monotonic seconds.

    When a request is admitted, before its body is read, it takes a token from both buckets, so that requests under way
    are counted. If it turns out to cost more, `charge` takes the rest. A network's bucket falls to minus its burst at
    most; tokens beyond that are taken from neither bucket. So one network takes at most twice its burst from the common
    bucket, and from then on its rate.
    """

    def __init__(self, each: Rate, together: Rate, clock: Callable[[], float]) -> None:
        self._each = each
        self._together = together
        self._clock = clock
        self._all = (together.burst, clock())
        self._networks: dict[str, tuple[float, float]] = {}

    def admit(self, address: str) -> float:
        """Admit a request from this address (IPv6: its /64) and return 0. Otherwise return the seconds until one is
        admitted.
        """
        now = self._clock()
        own = _filled(self._each, self._networks.get(network_of(address), (self._each.burst, now)), now)
        everybody = _filled(self._together, self._all, now)
        waits = [(1 - tokens) / rate.per_second for rate, tokens in ((self._each, own), (self._together, everybody))]
        wait = max(0.0, *waits)
        if not wait:
            self.charge(address, 1)
        return wait

    def charge(self, address: str, cost: float) -> None:
        """Take tokens from both buckets for this address, but not below minus the burst of its network's bucket."""
        now, network = self._clock(), network_of(address)
        own = _filled(self._each, self._networks.pop(network, (self._each.burst, now)), now)
        taken = min(cost, own + self._each.burst)
        self._networks[network] = (own - taken, now)
        self._all = (_filled(self._together, self._all, now) - taken, now)
        if len(self._networks) > _MOST_NETWORKS:
            del self._networks[next(iter(self._networks))]


def _filled(rate: Rate, bucket: tuple[float, float], now: float) -> float:
    tokens, at = bucket
    return min(rate.burst, tokens + (now - at) * rate.per_second)
