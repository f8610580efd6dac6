"""Who is connected: strangers and devices, what they may take, and why others were sent away."""

import math
import time
from collections import Counter
from collections.abc import Callable, Set, Sized

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.endpoint.connection import Bucket, Connection
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.shares import Shares, network_of
from undertone_shared.topics import config_topic, report_topic

_TELL_SECONDS = 60.0


class Roster:
    """The connections of one campaign, all used by one thread at a time; their reports go to ``queue``.

    ``retained``: the campaign as a packet. ``refused`` counts refusals by reason, ``throttled`` how often a connection
    was not read for its limits' sake.
    """

    def __init__(
        self, gate: Gate, limits: Limits, prefix: str, campaign: str, queue: Queue, say: Callable[[str], None]
    ) -> None:
        self.gate = gate
        self.limits = limits
        self.config_topic = config_topic(prefix, campaign)
        self.retained = b""
        self.refused: Counter[str] = Counter()
        self.throttled = 0
        self.open: set[Connection] = set()
        self.online: dict[str, Connection] = {}
        self.strangers: Shares[Connection] = Shares()
        self.now: Callable[[], float] = time.monotonic
        self.deliver: Callable[[Delivery], None] = queue.put
        self.backlog: Sized = queue.waiting
        self._prefix = prefix
        self._campaign = campaign
        self._say = say
        # The buckets of devices that went away, until they would be full again.
        self._left: dict[str, Bucket] = {}
        self._tell_at = -math.inf
        self._told = (0, 0)

    # --- what connections call

    def topic_of(self, user: str) -> str:
        """The topic of a device's reports."""
        return report_topic(self._prefix, self._campaign, user)

    def arrived(self, connection: Connection) -> None:
        """Take in a stranger. One too many ends an older one: those who show at once who they are always get in."""
        self.open.add(connection)
        network = network_of(connection.address)
        self.strangers.add(network, connection)
        if self.strangers.count(network) > self.limits.strangers_of_address:
            self.strangers.oldest(network).abort("strangers")
        elif len(self.strangers) > self.limits.strangers:
            self.make_room()

    def make_room(self) -> bool:
        """End the oldest stranger of the address with the most; whether there was one."""
        if self.strangers:
            self.strangers.most_crowded().abort("strangers")
            return True
        return False

    def full(self, user: str) -> bool:
        """Whether there are as many devices as there may be, and this one is not among them."""
        return len(self.online) >= self.limits.connections and user not in self.online

    def entered(self, connection: Connection) -> None:
        """It is a device: its older connection ends."""
        self._known(connection)
        user = connection.user
        older = self.online.get(user)
        # To come again fills no bucket.
        bucket = self._left.pop(user, None) if older is None else older.bucket
        if bucket is not None:
            connection.bucket = bucket
        self.online[user] = connection
        if older is not None:
            older.abort("taken_over")

    def left(self, connection: Connection) -> None:
        """It is closed."""
        self.open.discard(connection)
        if not connection.user:
            self._known(connection)
        elif self.online.get(connection.user) is connection:
            del self.online[connection.user]
            self._left[connection.user] = connection.bucket

    # --- what the endpoint calls

    def sweep(self) -> None:
        """End the connections that have overrun a deadline; say from time to time who was refused."""
        now = self.now()
        for connection in list(self.open):
            connection.check(now)
        burst, rate = self.limits.burst, self.limits.per_second
        for user in [user for user, (tokens, at) in self._left.items() if tokens + (now - at) * rate >= burst]:
            del self._left[user]
        if now >= self._tell_at:
            self._tell_at = now + _TELL_SECONDS
            self._tell()

    def expel(self, users: Set[str]) -> None:
        """End these devices' connections."""
        for user in users & self.online.keys():
            self.online[user].abort("removed")

    # --- inside

    def _known(self, connection: Connection) -> None:
        self.strangers.remove(network_of(connection.address), connection)

    def _tell(self) -> None:
        """Say who was refused or not read, when that is more than it was."""
        counted = (self.refused.total(), self.throttled)
        if counted != self._told:
            self._told = counted
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.refused.items())) or "none"
            online, paused = len(self.online), self.throttled
            self._say(f"{online} devices online; connections ended: {reasons}; reading paused {paused} times")
