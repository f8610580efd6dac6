"""The endpoint: an MQTT server for devices, from which each campaign takes its own reports, and for readers.

A PUBACK goes to the connection that delivered the report, after the report's campaign has committed it. The endpoint
stores nothing: a device keeps unacknowledged reports and sends them again.

**Threads.** One thread at a time is the *reader*: it holds ``Endpoint.turn`` while it handles what has come over the
sockets. Other threads never touch a connection. They append a call to ``_calls``, and the holder of ``turn`` makes it::

    sockets --> READER (_serve): Connection reads packets --> Queue, one for each campaign
                   ^                                            |
                   | _calls                                     v
                   +--- PUBACKs <--- commit <--- count <--- Queue.take: the thread of that campaign (Ingest.step)
                   +--- messages, configuration: the server's other threads (publish, serve, reload)

    state                                   who uses it
    --------------------------------------  --------------------------------------------------------------------
    connections, roster, _deaf, _sweep_at   the holder of turn; `facts` reads their numbers without it
    _calls                                  any thread appends, the holder of turn takes
    Queue.waiting, since, newest            the reader puts, the campaign's thread takes; neither has a lock
    Queue.due                               the reader sets it when the batch is over, the campaign's thread clears it
    _taking                                 `open` and `CampaignIntake.close` write it, all others only read
    _reading, _read_at                      the thread of the only campaign writes, the endpoint's thread reads

**Who is the reader?** That depends on how many campaigns take reports:

- *One* (`_alone`): the campaign's own thread, inside `take_from`. It waits for the first report, sleeps until the batch
  is over, reads all sockets at once, commits, and writes the PUBACKs. If it stays away for long, because its store is
  slow or fails, the endpoint's thread reads (`_idle`), so that no device takes the server for dead.
- *Several*: the endpoint's thread (`_keep`), so that no campaign waits for another's store. It calls each campaign
  whose batch is over (`_call_takers`). It takes turns with the threads that commit
  (`undertone_aggregator.base.interpreter`), because threads that compete for the interpreter cost more. A
  thread that waits for its store holds up nobody.

The second way would also work for a single campaign, but it costs more processor time a report, because batches pass
from one thread to another.
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
from typing import TYPE_CHECKING, Any, cast

from undertone_aggregator.base.interpreter import INGEST_THREADS
from undertone_aggregator.base.open_files import EXHAUSTED
from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.endpoint.connection import Connection, Receipt
from undertone_aggregator.mqtt.endpoint.gate import Gate
from undertone_aggregator.mqtt.endpoint.limits import Limits
from undertone_aggregator.mqtt.endpoint.listener import Listener
from undertone_aggregator.mqtt.endpoint.queue import Queue
from undertone_aggregator.mqtt.endpoint.roster import Roster
from undertone_aggregator.mqtt.endpoint.stream import Stream

if TYPE_CHECKING:
    from undertone_aggregator.mqtt.endpoint.websocket import WebSocket

_WINDOW_SECONDS = 0.02
# With several campaigns, a batch with at least _MANY reports waits longer while more reports arrive: for
# _WINDOW_OF_CAMPAIGN_SECONDS times the number of campaigns, and at most _LONGEST_WINDOW_SECONDS. Each batch costs about
# 1 ms of processor time, however few reports it has, so few large batches are cheaper than many small ones.
_MANY = 24
_WINDOW_OF_CAMPAIGN_SECONDS = 0.005
_LONGEST_WINDOW_SECONDS = 0.1
# With several campaigns, the endpoint's thread begins to read the sockets at most once in this many seconds. It takes
# turns with the threads that commit, and a few long turns cost less than many short ones.
_PASS_SECONDS = 0.005
_SWEEP_SECONDS = 1.0
# If the only campaign has taken no reports for _PATIENCE_SECONDS, the endpoint's own thread reads the connections, for
# _KEEP_SECONDS at a time.
_PATIENCE_SECONDS = 0.2
_KEEP_SECONDS = 0.05
# Largest number of devices, and of readers, to which one call sends a message. Calls that came meanwhile are made
# before the message goes to the others.
_FAN_OUT = 256
_FAN_OUT_READERS = 64
# Largest number of new connections accepted before the existing ones are served again.
_ACCEPT = 256
_LEAVE_SECONDS = 2.0
# Error numbers of accept that mean: there is no file descriptor or no memory for another connection.
_WITHOUT_ROOM = (*EXHAUSTED, errno.ENOBUFS, errno.ENOMEM)


class Endpoint:
    """The endpoint, a context manager that accepts devices once ``listen`` is called. Any thread may call its methods.

    ``batch``: largest number of reports that a campaign takes at once; ``batch_seconds``: how long it waits for more
    reports after the first. ``starved`` is called each time that the process can open no more files for a
    connection.
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
        starved: Callable[[], None] = lambda: None,
    ) -> None:
        self.roster = Roster(gate, limits, prefix, say)
        # The lock on roster, connections and selector, and the calls that other threads want to make on them.
        self.turn = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._listener = listener
        self._context = listener.context()
        self._batch = batch
        self._batch_seconds = batch_seconds
        self._say = say
        self._starved = starved
        self._selector = selectors.DefaultSelector()
        self._opening = threading.Lock()
        self._listening: list[socket.socket] = []
        # The listening sockets that serve WebSocket.
        self._websockets: list[socket.socket] = []
        # Listening sockets whose accept found no free descriptor or no memory; the next sweep tries them again.
        self._deaf: list[socket.socket] = []
        self._sweep_at = -math.inf
        # Campaign -> slot length in seconds, for the campaigns that take reports now.
        self._taking: dict[str, int] = {}
        self._reading = False
        self._read_at = -math.inf
        # Monotonic time at which the sockets were last asked for events.
        self._polled_at = -math.inf
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="endpoint", daemon=True)

    # --- Start, stop and configuration.

    @property
    def limits(self) -> Limits:
        """Limits of what devices may use of the endpoint."""
        return self.roster.limits

    @property
    def port(self) -> int:
        """TCP port on which the endpoint listens."""
        return int(self._listening[0].getsockname()[1])

    @property
    def websocket_port(self) -> int:
        """TCP port of MQTT over WebSocket."""
        return int(self._websockets[0].getsockname()[1])

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
            self._listening, self._websockets, self._deaf = [], [], []
            for connection in list(self.roster.open):
                connection.close()
        # Pending bytes are sent before the connections close, if their clients take them within `_LEAVE_SECONDS`.
        ends = time.monotonic() + _LEAVE_SECONDS
        while self.roster.open and time.monotonic() < ends:
            self._serve(_KEEP_SECONDS)
        with self.turn:
            for connection in list(self.roster.open):
                connection.abort("leaving")
            self._selector.close()

    def listen(self) -> None:
        """Start to accept devices, if that has not been done yet. Raises Invalid if the address cannot be bound."""
        with self._opening:
            if self._listening:
                return
            opened, self._websockets = self._listener.open()
            self._hear([*opened, *self._websockets])
            self._listening = [*opened, *self._websockets]

    def serve(self, campaigns: Collection[str]) -> None:
        """From now on queue reports for these campaigns, until they take them, and for no other campaigns."""
        self._do(partial(self.roster.serve, tuple(campaigns)))

    def open(self, campaign: str, slot_seconds: int) -> "CampaignIntake":
        """Return the intake from which a campaign takes its reports. A campaign may have only one at a time."""
        queue = self.roster.serve_also(campaign)
        self._taking[campaign] = slot_seconds
        # `_do` runs queued calls one at a time, and each reads `_taking` only then, so the last one sees all campaigns.
        self._do(lambda: self.roster.allow(list(self._taking.values())))
        return CampaignIntake(self, queue)

    def reload(self) -> None:
        """Read passwords, access rules, certificate and key again.

        Disconnect users whose entry was removed or changed, and users who may now read other topics. On an error,
        raises Invalid or OSError and keeps the old ones.
        """
        # A new context is made. If certificate and key were replaced in the context in use, handshakes in other threads
        # could fail meanwhile.
        context = self._listener.context()
        changed = self.roster.gate.reload()
        self._context = context
        self._do(partial(self.roster.expel, changed))

    def facts(self) -> dict[str, Any]:
        """Return counters for the log and for health checks.

        The age of the oldest report without PUBACK is in seconds.
        """
        queues = list(self.roster.queues.values())
        return {
            "connections": len(self.roster.open),
            "devices_online": len(self.roster.online),
            "turned_away": len(self.roster.turned_away),
            "readers_online": len(self.roster.readers),
            "websockets": self.roster.websockets,
            "backlog": sum(queue.uncommitted for queue in queues),
            "oldest_unacknowledged_seconds": max((queue.oldest_seconds for queue in queues), default=0.0),
            "throttled": self.roster.throttled,
            "unknown_campaign": self.roster.unknown,
            "refused": dict(self.roster.refused),
        }

    @property
    def listens(self) -> bool:
        """True if devices can connect."""
        return bool(self._listening)

    def publish(self, topic: str, payload: bytes) -> None:
        """Send a message to all devices and readers that have subscribed to its topic, and to later subscribers."""
        self._do(partial(self._publish, topic, payload))

    # --- Methods that a campaign's intake calls.

    def take_from(self, queue: Queue, seconds: float) -> list[Delivery]:
        """Wait up to ``seconds`` for a first report; return the next batch, which is empty if none came.

        The batch has the reports that arrive within about ``batch_seconds`` after the first, at most ``batch`` of them.
        With several campaigns, batches of many reports wait longer while more arrive.
        """
        if self._alone:
            self._read_for(queue, seconds)
        elif queue.due.wait(seconds):
            # The batch grows while this thread waits for its turn. The turn ends when the store begins to commit.
            INGEST_THREADS.enter()
            queue.due.clear()
        else:
            return []
        return queue.take(self._batch)

    def acknowledge_from(self, queue: Queue, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs to the connections that delivered the reports, as far as these are still open."""
        queue.done(len(deliveries))
        self._do(partial(self._acknowledge, deliveries))

    def close(self, queue: Queue) -> None:
        """End a campaign's intake. Reports that were taken but not acknowledged are kept for the next intake."""
        self._taking.pop(queue.campaign, None)
        queue.put_back()

    # --- Calls on connections, which the holder of ``turn`` makes.

    def _do(self, call: Callable[[], None]) -> None:
        """Make a call now, or leave it to the thread that holds the lock on the connections."""
        self._calls.append(call)
        self._catch_up()

    def _catch_up(self) -> None:
        """Make the queued calls; if another thread holds the lock, it makes them when it has released the lock."""
        while self._calls and self.turn.acquire(blocking=False):
            try:
                for _ in range(len(self._calls)):
                    self._guard(self._calls.popleft())
            finally:
                self.turn.release()

    def _guard(self, call: Callable[[], object]) -> None:
        """Call a function and log its exception, so that a bug costs only one connection or call."""
        try:
            call()
        except Exception as wrong:
            self._say(f"an error in the endpoint was caught: {wrong!r}")

    def _acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        answers: dict[Connection, bytes] = {}
        for connection, puback in cast("list[Receipt]", [delivery.receipt for delivery in deliveries]):
            answers[connection] = answers.get(connection, b"") + puback
        for connection, pubacks in answers.items():
            try:
                connection.acknowledge(pubacks, len(pubacks) // packets.PUBACK_BYTES)
            except Exception as wrong:
                # A bug costs only this connection, and its device connects again. All others still get their PUBACKs.
                self._say(f"an error in the endpoint was caught: {wrong!r}")
                connection.abort("system")

    def _publish(self, topic: str, payload: bytes) -> None:
        self.roster.retain(topic, payload)
        retained = self.roster.retained.get(topic)
        if devices := list(self.roster.subscribers.get(topic, ())):
            self._fan_out(topic, retained, packets.publish(topic, payload, retained=False), devices)
        if readers := list(self.roster.readers.values()):
            self._offer(topic, retained, payload, readers)

    def _fan_out(self, topic: str, retained: bytes | None, message: bytes, connections: list[Connection]) -> None:
        """Send a message to the first `_FAN_OUT` connections, and to the others by later calls."""
        if self.roster.retained.get(topic) is not retained:
            # A newer message on the topic has replaced this one, and is being sent to all subscribers.
            return
        for connection in connections[:_FAN_OUT]:
            connection.write(message)
        if connections[_FAN_OUT:]:
            self._calls.append(partial(self._fan_out, topic, retained, message, connections[_FAN_OUT:]))

    def _offer(self, topic: str, retained: bytes | None, payload: bytes, readers: list[Connection]) -> None:
        """Offer a message to the first `_FAN_OUT_READERS` readers, and to the others by later calls."""
        if self.roster.retained.get(topic) is not retained:
            return
        for connection in readers[:_FAN_OUT_READERS]:
            if connection.session is not None:
                connection.session.offer(topic, payload)
        if readers[_FAN_OUT_READERS:]:
            self._calls.append(partial(self._offer, topic, retained, payload, readers[_FAN_OUT_READERS:]))

    # --- Reading the sockets: see "Who is the reader?" above.

    @property
    def _alone(self) -> bool:
        """True if a single campaign takes reports. Its own thread is then the reader."""
        return len(self._taking) == 1

    def _read_for(self, queue: Queue, seconds: float) -> None:
        """Read all connections in this thread until a batch is complete, or until no report has come for ``seconds``.

        The batch is that of the only campaign that takes reports.
        """
        self._reading = True
        try:
            if not queue.waiting:
                self._serve(seconds)
            if 0 < len(queue.waiting) < self._batch:
                # Wait for the end of the batch's time and then read everything at once, which costs less than waking up
                # for each report.
                time.sleep(max(0.0, queue.since + self._batch_seconds - time.monotonic()))
                ends = time.monotonic() + self._batch_seconds
                while len(queue.waiting) < self._batch and self._serve(0) and time.monotonic() < ends:
                    pass
        finally:
            self._read_at = time.monotonic()
            self._reading = False

    def _serve(self, seconds: float) -> int:
        """Wait for events on the sockets and handle them. Return the number of events."""
        happened = self._selector.select(seconds)
        self._polled_at = time.monotonic()
        with INGEST_THREADS.limited(), self.turn:
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
        """Read the connections whenever no campaign's thread does."""
        wait = _KEEP_SECONDS
        while not self._ended.is_set():
            if self._idle:
                self._ended.wait(_KEEP_SECONDS)
                continue
            began = time.monotonic()
            self._serve(wait)
            wait = _KEEP_SECONDS
            if len(self._taking) > 1:
                wait = self._call_takers()
                time.sleep(max(0.0, began + _PASS_SECONDS - time.monotonic()))

    def _call_takers(self) -> float:
        """Have each campaign whose batch is due take it.

        Return the seconds until the next batch is due, at most `_KEEP_SECONDS`.
        """
        now, soonest = self._polled_at, math.inf
        longest = min(_WINDOW_OF_CAMPAIGN_SECONDS * len(self._taking), _LONGEST_WINDOW_SECONDS)
        for queue in list(self.roster.queues.values()):
            reports = len(queue.waiting)
            if reports and not queue.due.is_set():
                due = queue.since + self._batch_seconds
                if reports >= _MANY:
                    due = max(due, min(queue.newest + self._batch_seconds, queue.since + longest))
                if due <= now or reports >= self._batch:
                    queue.due.set()
                else:
                    soonest = min(soonest, due)
        return min(max(soonest - time.monotonic(), 0.0), _KEEP_SECONDS)

    @property
    def _idle(self) -> bool:
        """True if the endpoint's own thread need not read.

        Either the only campaign's thread reads, or read a moment ago, or nothing listens yet.
        """
        if not self._alone:
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
                if wrong.errno in _WITHOUT_ROOM:
                    if wrong.errno in EXHAUSTED:
                        self.roster.refused["without a free file"] += 1
                        self._starved()
                    else:
                        self.roster.refused["without memory"] += 1
                    if wrong.errno == errno.EMFILE and self.roster.make_room():
                        # A connection that had not authenticated was closed. Its descriptor is now free for the device
                        # that waits: try again.
                        continue
                    self._selector.unregister(listening)
                    self._deaf.append(listening)
                    return
                # Any other error concerns only this client's connection, which the client has already closed.
                continue
            try:
                stream = Stream(accepted, self._context, self._selector, self.limits.unread_bytes)
            except OSError:
                accepted.close()
                continue
            wire = self._over_websocket(stream) if listening in self._websockets else stream
            Connection(self.roster, wire, str(peer[0]))

    def _over_websocket(self, stream: Stream) -> "WebSocket":
        # Imported here because the import is slow, and not every server uses it.
        from undertone_aggregator.mqtt.endpoint.websocket import WebSocket

        return WebSocket(stream, self.limits, self.roster.now)


class CampaignIntake:
    """The `Intake` of one campaign at the endpoint."""

    def __init__(self, endpoint: Endpoint, queue: Queue) -> None:
        self._endpoint = endpoint
        self._queue = queue

    @property
    def ready(self) -> bool:
        """True if devices can connect."""
        return self._endpoint.listens

    def take(self, seconds: float) -> list[Delivery]:
        """Return the next batch, waiting up to ``seconds`` for its first report."""
        return self._endpoint.take_from(self._queue, seconds)

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Send the PUBACKs of these deliveries, as far as their connections are still open."""
        self._endpoint.acknowledge_from(self._queue, deliveries)

    def close(self) -> None:
        """End the intake; reports that arrive from now on wait for the next one."""
        self._endpoint.close(self._queue)
