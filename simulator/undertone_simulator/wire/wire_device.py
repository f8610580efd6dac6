"""One simulated device on the wire: the shipped reporter core with an asyncio connection, and its faults."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from undertone_device.core import handover
from undertone_device.host.paho_transport import ANSWERS
from undertone_device.mqtt.knocks import Knocks
from undertone_shared.campaign import HEADER_BYTES, handover_of
from undertone_shared.errors import Invalid, Refused
from undertone_shared.off_board.intake import unpack
from undertone_shared.topics import config_topic, report_topic
from undertone_simulator.wire.commons import Wire
from undertone_simulator.wire.connection import DeviceConnection
from undertone_simulator.wire.liar import Liar

# Moments at which a fault can kill a device: after its draw is on file and before the ledger records it as
# sent; in the middle of sending the packet; after the packet and before its acknowledgement.
DEATHS = ("drawn", "torn", "sent")


class WireDevice:
    """A device: `boot` makes its reporter from its storage, `measure` reads its meter in a slot.

    `tick` draws at most one report; `hand_over` publishes the queue, after the caller has flushed the ledger.
    `place`: the address (host, port) of its server, by default the wire's. `password` is called at every connect,
    because it may have been rotated. `sent`: reports of an earlier run that the ledger records as sent and not
    acknowledged. `leaves`: returns False for a slot whose report is never sent. `joined`: returns False for slots
    before the device joined. `lying`: see `Liar`.
    """

    def __init__(
        self,
        name: str,
        password: Callable[[], str | None],
        boot: Callable[[], Liar],
        measure: Callable[[int], int | tuple[int, ...] | None],
        wire: Wire,
        sent: Iterable[bytes] = (),
        leaves: Callable[[int], bool] = lambda slot: True,
        joined: Callable[[int], bool] = lambda slot: True,
        lying: bool = False,
        place: tuple[str, int] | None = None,
    ):
        self.name = name
        self._configured = place or (wire.host, wire.port)
        self.connections = 0
        self.drawn = 0
        self.die_at: str | None = None
        self.duplicate_next = False
        # Seconds by which the device's clock is ahead.
        self.ahead = 0
        self.held: list[bytes] | None = None
        self._lying = lying
        self._leaves = leaves
        self._joined = joined
        self._password = password
        self._boot = boot
        self._measure = measure
        self._wire = wire
        self._topic = report_topic(wire.prefix, wire.campaign, name)
        self._connection: DeviceConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._knocks = Knocks(name, wire.period)
        # The current attempt to connect (a knock, see `knocks`): how many addresses are still to be tried, when it
        # began, whether it reached a server.
        self._untried = 0
        self._knocked = 0.0
        self._reached = False
        self._queue: list[bytes] = []
        self._observed = -1
        # Reports that were sent, and neither acknowledged nor lost.
        self._sent = set(sent)
        self.reporter: Liar | None = None
        # Addresses to try in turn: that of the newest hand-over, then the configured one.
        self._places = [self._configured]
        self._place = 0
        self._start_reporter()

    def _start_reporter(self) -> None:
        self.reporter = self._boot()
        self._go_to(handover.load(self.reporter.guard.storage))
        self.reporter.lying = self._lying
        outbox = self.reporter.outbox
        waiting = {outbox[i] for i in range(len(outbox))}
        self._lose([report for report in self._sent if report not in waiting], "killed")
        self._observed = -1

    # Methods for the device's connection.

    def start(self, after: float = 0.0) -> None:
        """Connect after `after` seconds, and again whenever the connection ends, as devices do (`Knocks`)."""
        self._untried = 0
        self._task = asyncio.get_running_loop().create_task(self._knock(after))

    async def _knock(self, wait: float) -> None:
        """Wait for ``wait`` seconds, then try the addresses in turn; repeat until a server takes the connection."""
        wire = self._wire
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(wait)
            if not self._untried:
                self._untried, self._knocked, self._reached = len(self._places), loop.time(), False
            while self._untried:
                self._untried -= 1
                # The attribute is set before the connection is open, because the connection may be lost before this
                # task runs again.
                connection = self._connection = DeviceConnection(self.name, self._password(), wire.keepalive, self)
                try:
                    if wire.cut:
                        raise ConnectionRefusedError
                    host, port = self._places[self._place]
                    async with wire.connecting:
                        await loop.create_connection(lambda made=connection: made, host, port, ssl=wire.tls)
                    return
                except OSError as wrong:
                    self._reached = self._reached or isinstance(wrong, ANSWERS)
                    self._try_next_place()
            wait = self._rest()

    def _rest(self) -> float:
        """Return the seconds from a knock that failed until the next one."""
        passed = asyncio.get_running_loop().time() - self._knocked
        return max(0.0, self._knocks.failed(self._reached) / 1000 - passed)

    def _go_to(self, entry: dict[str, Any]) -> bool:
        """Take the addresses of a hand-over; return True if they are new."""
        before, self._places = self._places, handover.places(entry, self._configured)
        self._place = 0
        return self._places != before

    def _try_next_place(self) -> None:
        self._place = (self._place + 1) % len(self._places)

    def connected(self, connection: DeviceConnection) -> None:
        """Handle the broker's acceptance of the device: subscribe to the campaign, send all unacknowledged reports."""
        if connection is not self._connection:
            return
        self.connections += 1
        self._untried = 0
        self._knocks.accepted()
        connection.subscribe(config_topic(self._wire.prefix, self._wire.campaign))
        if self.reporter is not None:
            waiting = [self.reporter.outbox[i] for i in range(len(self.reporter.outbox))]
            self._queue = [report for report in waiting if not self._drops_out(report)]
            self._record()
            self._wire.ledger.flush()
            self.hand_over()

    def message(self, connection: DeviceConnection, topic: str, payload: bytes) -> None:
        """Pass a campaign message to the reporter, which accepts it, or counts why not and keeps the last valid one.

        If the message has a hand-over that the device's policy allows, go to the address that it names.
        """
        if self.reporter is None or topic != config_topic(self._wire.prefix, self._wire.campaign):
            return
        now = int(self._wire.clock.now()) + self.ahead
        with contextlib.suppress(Invalid, Refused):
            if self.reporter.accept(payload, now):
                self._wire.on_campaign(payload)
        if not (self.reporter.policy.handover and len(payload) > HEADER_BYTES and len(handover_of(payload))):
            return
        with contextlib.suppress(Invalid, Refused):
            entry = handover.take(
                handover_of(payload), self._wire.campaign, self.name, self.reporter.guard, now, alive=None
            )
            if entry is not None and self._go_to(entry):
                connection.abort()

    def acked(self, connection: DeviceConnection, payload: bytes) -> None:
        """Record that the broker has acknowledged a report."""
        self._wire.ledger.acked(self.name, payload)
        if connection is self._connection:
            self._sent.discard(payload)
            if self.reporter is not None:
                self.reporter.acked(payload)

    def lost(self, connection: DeviceConnection) -> None:
        """Reconnect, unless the connection belonged to a device that was killed or has finished."""
        if connection is self._connection:
            self._connection = None
            if connection.session.connected:
                wait = self._knocks.lost() / 1000
            else:
                self._reached = True
                self._try_next_place()
                wait = 0.0 if self._untried else self._rest()
            self._task = asyncio.get_running_loop().create_task(self._knock(wait))

    def check(self) -> None:
        """Send pings and repetitions that are due, and abort a connection on which the broker is silent."""
        if self._connection is not None:
            self._connection.check()

    # Methods that handle slots.

    def tick(self, slot: int) -> bool:
        """Close the slot before `slot`, if that is still open, and read the meter in `slot`.

        Return True if it was too early for the draw, so that the caller must call again later in the slot. A report is
        queued and added to the ledger, unless it drops out or is held back, or the device is offline or is killed here;
        the caller flushes the ledger.
        """
        reporter = self.reporter
        # A device does not report the slot in which it is switched on, because it does not measure all of it.
        if reporter is None or not self._joined(slot + 1):
            return False
        now = int(self._wire.clock.now()) + self.ahead
        dropped = reporter.dropped
        oldest = reporter.outbox[0] if len(reporter.outbox) else b""
        report = reporter.close_slot(now)
        if self._observed < slot:
            self._observed = slot
            sample = self._measure(slot)
            if sample is not None:
                reporter.observe(sample, now)
        if report is not None:
            self.drawn += 1
            if reporter.dropped > dropped:
                self._lose([oldest], "outbox_full")
            stays = self._drops_out(report)
            if self.die_at == "drawn" or (self.die_at is not None and stays):
                self.kill()
            elif not stays:
                self._queue.append(report)
                self._record()
        return reporter.paused == "rate"

    def _drops_out(self, report: bytes) -> bool:
        """Return True if this report drops out: it is then removed from the outbox and never sent."""
        if self._leaves(unpack(report).slot):
            return False
        if self.reporter is not None:
            self.reporter.acked(report)
        return True

    def _record(self) -> None:
        """Record the queue in the ledger before it is sent; empty it if there is no connection or reports are held."""
        if self._connection is None or not self._connection.online:
            self._queue.clear()  # The reports remain in the outbox, which sends them in the next connection.
        elif self.held is not None:
            self.held += self._queue
            self._queue.clear()
        for report in self._queue:
            self._wire.ledger.sent(self.name, report)
            self._sent.add(report)

    def hand_over(self) -> None:
        """Publish the queue. The caller has flushed the ledger before."""
        queue, self._queue = self._queue, []
        connection = self._connection
        if connection is None or not queue:
            return
        for report in queue:
            connection.publish(self._topic, report)
            if self.duplicate_next:
                self._wire.ledger.fault("duplicated", self.name)
                connection.publish(self._topic, report)
                self.duplicate_next = False
        connection.flush(cut=7 if self.die_at == "torn" else 0)
        if self.die_at in ("torn", "sent"):
            self.kill()

    # Methods that simulate faults.

    def kill(self) -> None:
        """End abruptly: everything that is not in the storage is lost. `restart` brings the device back."""
        self._wire.ledger.fault("killed", self.name)
        self.die_at = None
        self.held = None
        self.reporter = None
        self._queue.clear()
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if self._task is not None:
            self._task.cancel()
        if connection is not None:
            connection.abort()

    def restart(self) -> None:
        """Boot from the storage; reports that were sent and are not in the storage are recorded as lost."""
        self._start_reporter()
        self.start()

    def drop_connection(self) -> None:
        """Abort the TCP connection; the device reconnects by itself."""
        self._wire.ledger.fault("disconnected", self.name)
        if self._connection is not None:
            self._connection.abort()

    def lie(self) -> None:
        """Send the largest symbol from now on."""
        self._wire.ledger.fault("lying", self.name)
        self._lying = True
        if self.reporter is not None:
            self.reporter.lying = True

    def hold_back(self) -> None:
        """Hold reports back from now on, until `release`."""
        self._wire.ledger.fault("held", self.name)
        self.held = []

    def release(self) -> None:
        """Send the reports that were held back, the newest first."""
        self._queue = list(reversed(self.held or []))
        self.held = None
        self._record()
        self._wire.ledger.flush()
        self.hand_over()

    def _lose(self, reports: list[bytes], fault: str) -> None:
        for report in reports:
            if report in self._sent:
                self._sent.discard(report)
                self._wire.ledger.lost(self.name, report, fault)

    # Methods that the fleet calls at the end of a run.

    @property
    def unacknowledged(self) -> int:
        """Number of reports in the outbox."""
        return 0 if self.reporter is None else len(self.reporter.outbox)

    def close(self, fault: str = "stopped") -> None:
        """Disconnect for good; unacknowledged reports are recorded as lost by the named fault."""
        connection, self._connection = self._connection, None
        if self._task is not None:
            self._task.cancel()
        if connection is not None:
            connection.close()
        self._lose(list(self._sent), fault)
