"""The endpoint: an `Intake` from its devices' connections, and a `Publisher` of their campaign.

One thread runs the connections in an event loop. All of them append to one queue; whoever takes from it commits and
then acknowledges, and only then a PUBACK goes to the very connection that delivered. Nothing is kept here: what is
not acknowledged a device has kept, and sends again.
"""

import asyncio
import contextlib
import ssl
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence, Set
from concurrent.futures import Future
from typing import Any, cast

from undertone_aggregator.collect.intake import Delivery
from undertone_aggregator.collect.mqtt import packets
from undertone_aggregator.direct.connection import Connection, Receipt
from undertone_aggregator.direct.gate import Gate
from undertone_aggregator.direct.limits import Limits
from undertone_aggregator.direct.listener import Listener, new_loop
from undertone_aggregator.direct.queue import Queue
from undertone_shared.errors import Invalid
from undertone_shared.topics import config_topic, report_topic

_WINDOW_SECONDS = 0.02
_SWEEP_SECONDS = 1.0
_TELL_SECONDS = 60.0
_FAN_OUT = 256
_END_SECONDS = 5.0
_LEAVE_SECONDS = 2.0


class Endpoint:
    """A context with a thread; it listens from ``listen`` on. ``take``, ``acknowledge``: of one thread; else of any.

    ``refused`` counts refusals by reason, ``throttled`` how often a connection was not read for its limits' sake.
    """

    def __init__(
        self,
        listener: Listener,
        gate: Gate,
        limits: Limits,
        prefix: str,
        campaign: str,
        *,
        batch: int = 2000,
        batch_seconds: float = _WINDOW_SECONDS,
        say: Callable[[str], None] = lambda _: None,
        loop: Callable[[], asyncio.AbstractEventLoop] = new_loop,
    ) -> None:
        self.gate = gate
        self.limits = limits
        self.config_topic = config_topic(prefix, campaign)
        self.retained = b""
        self.refused: Counter[str] = Counter()
        self.throttled = 0
        self._listener = listener
        self._prefix = prefix
        self._campaign = campaign
        self._say = say
        self._context = listener.context()
        self._loop = loop()
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)
        self._server: asyncio.AbstractServer | None = None
        self._open: set[Connection] = set()
        self._online: dict[str, Connection] = {}
        self._strangers: Counter[str] = Counter()
        self._queue = Queue(batch, batch_seconds)
        self.now: Callable[[], float] = self._loop.time
        self.deliver: Callable[[Delivery], None] = self._queue.put
        self._tell_at = 0.0
        self._told = (0, 0)

    # --- its life

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return int(cast(Any, self._server).sockets[0].getsockname()[1])

    def __enter__(self) -> "Endpoint":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(TimeoutError):
            self._in_loop(self._leave()).result(_END_SECONDS)
        self._end()

    def listen(self) -> None:
        """Let devices in. Raises Invalid where it cannot."""
        try:
            self._in_loop(self._listen()).result()
        except OSError as wrong:
            where = f"{self._listener.host}:{self._listener.port}"
            raise Invalid(f"the endpoint cannot listen on {where}: {wrong.strerror or wrong}") from None

    def reload(self) -> None:
        """Read passwords, certificate and key again. Whose entry is gone or another one is disconnected.

        Raises Invalid or OSError, and goes on with what it has.
        """
        if self._context is not None:
            self._listener.load(self._context)
        self._in_loop(self._expel(self.gate.reload())).result()

    def facts(self) -> dict[str, Any]:
        """Counters for the log and for health: connections, backlog, oldest report without PUBACK in seconds."""
        return {
            "connections": len(self._open),
            "devices_online": len(self._online),
            "backlog": self._queue.uncommitted,
            "oldest_unacknowledged_seconds": self._queue.oldest_seconds,
            "throttled": self.throttled,
            "refused": dict(self.refused),
        }

    # --- Publisher

    @property
    def connected(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = lambda: True
    ) -> None:
        """Hand the campaign to all who subscribed, now and later. Other topics are nobody's here."""
        if topic == self.config_topic:
            self._in_loop(self._fan_out(topic, payload))

    # --- Intake

    @property
    def ready(self) -> bool:
        """Whether devices are let in."""
        return self._server is not None

    def take(self, seconds: float) -> list[Delivery]:
        """The next batch: what has come within the window after the first, or as much as a batch holds."""
        return self._queue.take(seconds)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs to the connections that delivered, those that still stand."""
        self._queue.done(len(deliveries))
        self._loop.call_soon_threadsafe(self._acknowledge, deliveries)

    def close(self) -> None:
        """Everything acknowledged so far goes out; nothing else is taken in."""
        with contextlib.suppress(TimeoutError):
            self._in_loop(self._stop_listening()).result(_END_SECONDS)

    # --- what connections call, in the loop

    @property
    def has_room(self) -> bool:
        """Whether more may wait for the store."""
        return len(self._queue.waiting) < self.limits.backlog

    def topic_of(self, user: str) -> str:
        """The topic of a device's reports."""
        return report_topic(self._prefix, self._campaign, user)

    def arrived(self, connection: Connection) -> str:
        """A stranger: the reason to send it away, "" for none."""
        self._open.add(connection)
        self._strangers[connection.address] += 1
        if len(self._open) > self.limits.connections:
            return "connections"
        return "strangers" if self._strangers[connection.address] > self.limits.strangers else ""

    def entered(self, connection: Connection) -> None:
        """It is a device: its older connection ends."""
        self._known(connection)
        older = self._online.get(connection.user)
        self._online[connection.user] = connection
        if older is not None:
            older.abort("taken_over")

    def left(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        if not connection.user:
            self._known(connection)
        elif self._online.get(connection.user) is connection:
            del self._online[connection.user]

    # --- inside

    def _known(self, connection: Connection) -> None:
        self._strangers[connection.address] -= 1
        if self._strangers[connection.address] <= 0:
            del self._strangers[connection.address]

    def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        by_connection: defaultdict[Connection, list[int]] = defaultdict(list)
        for delivery in deliveries:
            connection, number = cast(Receipt, delivery.receipt)
            by_connection[connection].append(number)
        for connection, numbers in by_connection.items():
            connection.acknowledge(numbers)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._on_exception)
        self._loop.run_forever()

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio's own failures: a handshake that broke off, or no descriptor left for a new connection."""
        self.refused["handshake" if self._context is not None else "system"] += 1
        wrong = context.get("exception")
        if not isinstance(wrong, (OSError, ssl.SSLError)):
            self._say(f"in the endpoint: {context.get('message')}: {wrong!r}")

    def _in_loop(self, coroutine: Coroutine[Any, Any, None]) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _listen(self) -> None:
        self._server = await self._listener.listen(self._loop, lambda: Connection(self), self._context)
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._open):
            connection.check(now)
        if now >= self._tell_at:
            self._tell_at = now + _TELL_SECONDS
            self._tell()
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _tell(self) -> None:
        """Say who was refused or not read, when that is more than it was."""
        counted = (self.refused.total(), self.throttled)
        if counted != self._told:
            self._told = counted
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(self.refused.items())) or "none"
            online, paused = len(self._online), self.throttled
            self._say(f"{online} devices online; connections ended: {reasons}; reading paused {paused} times")

    async def _fan_out(self, topic: str, payload: bytes) -> None:
        self.retained = kept = packets.publish(topic, payload, retained=True)
        message = packets.publish(topic, payload, retained=False)
        listening = [connection for connection in self._open if connection.subscribed]
        for first in range(0, len(listening), _FAN_OUT):
            for connection in listening[first : first + _FAN_OUT]:
                connection.write(message)
            await asyncio.sleep(0)
            if self.retained is not kept:
                # A newer campaign is on its way to all of them.
                return

    async def _expel(self, users: Set[str]) -> None:
        for user in users & self._online.keys():
            self._online[user].abort("removed")

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _leave(self) -> None:
        await self._stop_listening()
        for connection in list(self._open):
            connection.close()
        # What is written goes out first, where somebody reads it.
        ends = self._loop.time() + _LEAVE_SECONDS
        while self._open:
            await asyncio.sleep(0.01)
            if self._loop.time() > ends:
                for connection in list(self._open):
                    connection.abort("leaving")

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
