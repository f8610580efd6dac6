"""The endpoint: devices connect to it, and each campaign takes its own reports from it.

A PUBACK goes to the very connection that delivered, after the report's own campaign has committed it. Nothing is kept
here: a device keeps what is not acknowledged, and sends it again.

With one campaign, the thread that takes reads the connections, commits, and writes the acknowledgements: two threads
would wait for each other at every report. Only while that thread is busy for long, as with a store that is slow or
fails, does the endpoint's own thread go on reading, so that no device thinks that the server is gone. With several
campaigns the endpoint's thread reads for all of them, so that none waits for another's store.
"""

import errno
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.connection import Connection, Receipt
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.roster import Roster
from undertone_aggregator.mqtt.endpoint.stream import Stream
from undertone_shared.errors import Invalid

_WINDOW_SECONDS = 0.02
_SWEEP_SECONDS = 1.0
# So long nobody takes before the endpoint reads by itself, and so long it reads before it looks again.
_PATIENCE_SECONDS = 0.2
_KEEP_SECONDS = 0.05
_FAN_OUT = 256
# New connections between two looks at the others.
_ACCEPT = 256
_LEAVE_SECONDS = 2.0
# No descriptor, or no memory, for another connection.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Endpoint:
    """A context; it listens from ``listen`` on. Any thread may call it.

    ``batch``: most reports that a campaign takes at once; ``batch_seconds``: how long it waits for more than one.
    """

    def __init__(
        self,
        listener: Listener,
        gate: Gate,
        limits: Limits,
        prefix: str,
        *,
        batch: int = 2000,
        batch_seconds: float = _WINDOW_SECONDS,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.roster = Roster(gate, limits, prefix, say)
        # Held while anything of a connection is touched; and what threads want done with connections. None of them
        # waits for the lock: the thread that has it does it for them.
        self.turn = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._listener = listener
        self._context = listener.context()
        self._batch = batch
        self._batch_seconds = batch_seconds
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._opening = threading.Lock()
        self._listening: list[socket.socket] = []
        # Those for which there was no descriptor: they are looked at again with the next sweep.
        self._deaf: list[socket.socket] = []
        self._sweep_at = -math.inf
        # Campaigns that take, and the length of their slots.
        self._taking: dict[str, int] = {}
        self._reading = False
        self._read_at = -math.inf
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="endpoint", daemon=True)

    # --- its life

    @property
    def limits(self) -> Limits:
        """What devices may take of it."""
        return self.roster.limits

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listening[0].getsockname()[1])

    def __enter__(self) -> "Endpoint":
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._keeper.join()
        with self.turn:
            for listening in self._listening:
                if listening not in self._deaf:
                    self._selector.unregister(listening)
                listening.close()
            self._listening, self._deaf = [], []
            for connection in list(self.roster.open):
                connection.close()
        # What is written goes out first, where somebody reads it.
        ends = time.monotonic() + _LEAVE_SECONDS
        while self.roster.open and time.monotonic() < ends:
            self._serve(_KEEP_SECONDS)
        with self.turn:
            for connection in list(self.roster.open):
                connection.abort("leaving")
            self._selector.close()

    def listen(self) -> None:
        """Let devices in, unless they are already. Raises Invalid where it cannot listen."""
        with self._opening:
            if self._listening:
                return
            try:
                opened = self._listener.open()
            except OSError as wrong:
                where = f"{self._listener.host}:{self._listener.port}"
                raise Invalid(f"the endpoint cannot listen on {where}: {wrong.strerror or wrong}") from None
            self._hear(opened)
            self._listening = opened

    def serve(self, campaigns: Collection[str]) -> None:
        """Keep reports for these campaigns from now on, until they take them, and for no others."""
        self._do(partial(self.roster.serve, tuple(campaigns)))

    def open(self, campaign: str, slot_seconds: int) -> "CampaignIntake":
        """Return what one of the campaigns that it serves takes its reports from; one at a time for each."""
        queue = self.roster.queues.setdefault(campaign, Queue(campaign))
        self._taking[campaign] = slot_seconds
        self.roster.allow(list(self._taking.values()))
        return CampaignIntake(self, queue)

    def reload(self) -> None:
        """Read passwords, certificate and key again. Whose entry is gone or another one is disconnected.

        Raises Invalid or OSError, and goes on with what it has.
        """
        if self._context is not None:
            self._listener.load(self._context)
        self._do(partial(self.roster.expel, self.roster.gate.reload()))

    def facts(self) -> dict[str, Any]:
        """Counters for the log and for health: connections, backlog, oldest report without PUBACK in seconds."""
        queues = list(self.roster.queues.values())
        return {
            "connections": len(self.roster.open),
            "devices_online": len(self.roster.online),
            "backlog": sum(queue.uncommitted for queue in queues),
            "oldest_unacknowledged_seconds": max((queue.oldest_seconds for queue in queues), default=0.0),
            "throttled": self.roster.throttled,
            "unknown_campaign": self.roster.unknown,
            "refused": dict(self.roster.refused),
        }

    @property
    def listens(self) -> bool:
        """Whether devices are let in."""
        return bool(self._listening)

    def publish(self, topic: str, payload: bytes) -> None:
        """Hand a campaign to all devices that subscribed to its topic, now and later."""
        self._do(partial(self._publish, topic, payload))

    # --- what a campaign's intake calls

    def take_from(self, queue: Queue, seconds: float) -> list[Delivery]:
        """The next batch: what has come within the window after the first, or as much as a batch holds."""
        if len(self._taking) == 1:
            self._read_for(queue, seconds)
        else:
            queue.wait(seconds)
            if 0 < len(queue.waiting) < self._batch:
                time.sleep(max(0.0, queue.since + self._batch_seconds - time.monotonic()))
        return queue.take(self._batch)

    def acknowledge_from(self, queue: Queue, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs to the connections that delivered, those that are still open."""
        queue.done(len(deliveries))
        self._do(partial(self._acknowledge, deliveries))

    def close(self, queue: Queue) -> None:
        """Everything acknowledged so far is out; what was taken and not acknowledged waits for who takes next."""
        self._taking.pop(queue.campaign, None)
        queue.put_back()

    # --- inside

    def _do(self, call: Callable[[], None]) -> None:
        """Do it now, or have the thread do it that is at work with connections."""
        self._calls.append(call)
        self._catch_up()

    def _catch_up(self) -> None:
        """Do what threads have asked for; whoever has held the lock calls this afterwards."""
        while self._calls and self.turn.acquire(blocking=False):
            try:
                for _ in range(len(self._calls)):
                    self._guard(self._calls.popleft())
            finally:
                self.turn.release()

    def _guard(self, call: Callable[[], object]) -> None:
        """A mistake of ours costs one connection or one call, and not the others'."""
        try:
            call()
        except Exception as wrong:
            self._say(f"in the endpoint: {wrong!r}")

    def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        answers: dict[Connection, bytes] = {}
        for connection, puback in cast("list[Receipt]", [delivery.receipt for delivery in deliveries]):
            answers[connection] = answers.get(connection, b"") + puback
        for connection, pubacks in answers.items():
            connection.acknowledge(pubacks, len(pubacks) // packets.PUBACK_BYTES)

    def _publish(self, topic: str, payload: bytes) -> None:
        self.roster.retain(topic, payload)
        message = packets.publish(topic, payload, retained=False)
        self._fan_out(topic, self.roster.retained.get(topic), message, list(self.roster.subscribers.get(topic, ())))

    def _fan_out(self, topic: str, kept: bytes | None, message: bytes, connections: list[Connection]) -> None:
        """Send a few hundred of them the message, and the others after what else there is to do."""
        if self.roster.retained.get(topic) is not kept:
            # A newer campaign is on its way to all of them.
            return
        for connection in connections[:_FAN_OUT]:
            connection.write(message)
        if connections[_FAN_OUT:]:
            self._calls.append(partial(self._fan_out, topic, kept, message, connections[_FAN_OUT:]))

    def _read_for(self, queue: Queue, seconds: float) -> None:
        """Read all connections in this thread, until the only campaign that takes has a batch."""
        self._reading = True
        try:
            if not queue.waiting:
                self._serve(seconds)
            if 0 < len(queue.waiting) < self._batch:
                # To read it all together at the end costs less than to be woken for each.
                time.sleep(max(0.0, queue.since + self._batch_seconds - time.monotonic()))
                ends = time.monotonic() + self._batch_seconds
                while len(queue.waiting) < self._batch and self._serve(0) and time.monotonic() < ends:
                    pass
        finally:
            self._read_at = time.monotonic()
            self._reading = False

    def _serve(self, seconds: float) -> int:
        """Wait for anything to happen and see to it; how much it was."""
        happened = self._selector.select(seconds)
        with self.turn:
            for key, _ in happened:
                self._guard(key.data)
            if time.monotonic() >= self._sweep_at:
                self._sweep_at = time.monotonic() + _SWEEP_SECONDS
                deaf, self._deaf = self._deaf, []
                self._hear(deaf)
                self._guard(self.roster.sweep)
        self._catch_up()
        return len(happened)

    def _keep(self) -> None:
        """Read while no campaign does."""
        while not self._ended.is_set():
            if self._idle:
                self._ended.wait(_KEEP_SECONDS)
            else:
                self._serve(_KEEP_SECONDS)

    @property
    def _idle(self) -> bool:
        """Whether the only campaign that takes reads, or has done so a moment ago."""
        if len(self._taking) != 1:
            return not self._listening
        return self._reading or time.monotonic() < self._read_at + _PATIENCE_SECONDS

    def _hear(self, sockets: Sequence[socket.socket]) -> None:
        for listening in sockets:
            self._selector.register(listening, selectors.EVENT_READ, partial(self._accept, listening))

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPT):
            try:
                accepted, peer = listening.accept()
            except BlockingIOError:
                return
            except OSError as wrong:
                if wrong.errno in _EXHAUSTED:
                    self.roster.refused["system"] += 1
                    if wrong.errno == errno.EMFILE and self.roster.make_room():
                        # Devices that wait to be accepted take the stranger's place.
                        continue
                    self._selector.unregister(listening)
                    self._deaf.append(listening)
                    return
                # The other side's, who has gone again.
                continue
            try:
                stream = Stream(accepted, self._context, self._selector, self.limits.unread_bytes)
            except OSError:
                accepted.close()
                continue
            Connection(self.roster, stream, str(peer[0]))


class CampaignIntake:
    """One campaign's `Intake` at the endpoint."""

    def __init__(self, endpoint: Endpoint, queue: Queue) -> None:
        self._endpoint = endpoint
        self._queue = queue

    @property
    def ready(self) -> bool:
        """Whether devices are let in."""
        return self._endpoint.listens

    def take(self, seconds: float) -> list[Delivery]:
        """The next batch, waiting up to ``seconds`` for its first report."""
        return self._endpoint.take_from(self._queue, seconds)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send their PUBACKs, if their connections are still open."""
        self._endpoint.acknowledge_from(self._queue, deliveries)

    def close(self) -> None:
        """Take no more: what comes from now on waits for who takes next."""
        self._endpoint.close(self._queue)
