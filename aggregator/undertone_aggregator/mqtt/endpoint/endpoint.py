"""The endpoint: an `Intake` from its devices' connections, and a `Publisher` of their campaign.

Whoever takes reads the connections, commits, and then writes the acknowledgements, all in one thread: two would wait
for each other at every report. Only while nobody takes, for the store is slow or fails, a thread of its own goes on
reading, so that no device thinks that we are gone. A PUBACK goes to the very connection that delivered. Nothing is
kept here: what is not acknowledged a device has kept, and sends again.
"""

import errno
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
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
    """A context; it listens from ``listen`` on. ``take``, ``acknowledge``: of one thread; everything else of any."""

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
    ) -> None:
        self.limits = limits
        self._queue = Queue()
        self.roster = Roster(gate, limits, prefix, campaign, self._queue, say)
        # Held while anything of a connection is touched.
        self.turn = threading.Lock()
        self._listener = listener
        self._context = listener.context()
        self._batch = batch
        self._batch_seconds = batch_seconds
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._listening: list[socket.socket] = []
        # Those for which there was no descriptor: they are looked at again with the next sweep.
        self._deaf: list[socket.socket] = []
        self._sweep_at = -math.inf
        self._taking = False
        self._taken_at = -math.inf
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="endpoint", daemon=True)

    # --- its life

    @property
    def config_topic(self) -> str:
        """Where the campaign is published."""
        return self.roster.config_topic

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
        self.close()
        with self.turn:
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
        """Let devices in. Raises Invalid where it cannot."""
        try:
            opened = self._listener.open()
        except OSError as wrong:
            where = f"{self._listener.host}:{self._listener.port}"
            raise Invalid(f"the endpoint cannot listen on {where}: {wrong.strerror or wrong}") from None
        with self.turn:
            self._listening = opened
            self._hear(opened)

    def reload(self) -> None:
        """Read passwords, certificate and key again. Whose entry is gone or another one is disconnected.

        Raises Invalid or OSError, and goes on with what it has.
        """
        if self._context is not None:
            self._listener.load(self._context)
        changed = self.roster.gate.reload()
        with self.turn:
            self.roster.expel(changed)

    def facts(self) -> dict[str, Any]:
        """Counters for the log and for health: connections, backlog, oldest report without PUBACK in seconds."""
        return {
            "connections": len(self.roster.open),
            "devices_online": len(self.roster.online),
            "backlog": self._queue.uncommitted,
            "oldest_unacknowledged_seconds": self._queue.oldest_seconds,
            "throttled": self.roster.throttled,
            "refused": dict(self.roster.refused),
        }

    # --- Publisher

    @property
    def connected(self) -> bool:
        """Whether it listens."""
        return bool(self._listening)

    def publish(
        self, topic: str, payload: bytes, *, again: bool = False, permitted: Callable[[], bool] = lambda: True
    ) -> None:
        """Hand the campaign to all who subscribed, now and later. Other topics are nobody's here."""
        if topic != self.config_topic:
            return
        with self.turn:
            self.roster.retained = kept = packets.publish(topic, payload, retained=True)
            listening = [connection for connection in self.roster.open if connection.subscribed]
        message = packets.publish(topic, payload, retained=False)
        for first in range(0, len(listening), _FAN_OUT):
            with self.turn:
                if self.roster.retained is not kept:
                    # A newer campaign is on its way to all of them.
                    return
                for connection in listening[first : first + _FAN_OUT]:
                    connection.write(message)

    # --- Intake

    @property
    def ready(self) -> bool:
        """Whether devices are let in."""
        return bool(self._listening)

    def take(self, seconds: float) -> list[Delivery]:
        """The next batch: what has come within the window after the first, or as much as a batch holds."""
        queue = self._queue
        self._taking = True
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
            self._taken_at = time.monotonic()
            self._taking = False
        with self.turn:
            return queue.take(self._batch)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs to the connections that delivered, those that still stand."""
        answers: dict[Connection, bytes] = {}
        for connection, puback in cast("list[Receipt]", [delivery.receipt for delivery in deliveries]):
            answers[connection] = answers.get(connection, b"") + puback
        with self.turn:
            self._queue.done(len(deliveries))
            for connection, pubacks in answers.items():
                connection.acknowledge(pubacks, len(pubacks) // packets.PUBACK_BYTES)

    def close(self) -> None:
        """Everything acknowledged so far is out; nobody else is let in."""
        with self.turn:
            for listening in self._listening:
                if listening not in self._deaf:
                    self._selector.unregister(listening)
                listening.close()
            self._listening, self._deaf = [], []

    # --- inside

    def _serve(self, seconds: float) -> int:
        """Wait for anything to happen and see to it; how much it was."""
        happened = self._selector.select(seconds)
        with self.turn:
            for key, _ in happened:
                try:
                    key.data()
                except Exception as wrong:
                    # A mistake of ours costs one connection, and not the others'.
                    self._say(f"in the endpoint: {wrong!r}")
            if time.monotonic() >= self._sweep_at:
                self._sweep_at = time.monotonic() + _SWEEP_SECONDS
                deaf, self._deaf = self._deaf, []
                self._hear(deaf)
                self.roster.sweep()
        return len(happened)

    def _keep(self) -> None:
        """Serve while nobody takes."""
        while not self._ended.wait(_KEEP_SECONDS):
            while not (self._ended.is_set() or self._taking or time.monotonic() < self._taken_at + _PATIENCE_SECONDS):
                self._serve(_KEEP_SECONDS)

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
