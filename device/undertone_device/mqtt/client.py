"""The body of every device's loop: passes samples and campaigns to the reporter, and sends the reports.

``step`` does one round and returns; it never loops for ever. It raises no OSError of the network, and no OSError or
ValueError of a sensor. The existence, time and length of a message never depend on a reading: jitter comes from
entropy, and the time of a connection from a hash of the device's name (`knocks`).
"""

from undertone_device import unload
from undertone_device.core.slot_value import TICKS_MASK
from undertone_device.mqtt.knocks import PERIOD, Knocks
from undertone_device.mqtt.packets import ACKED, CONNECTED, DENIED, LOST, MESSAGE
from undertone_shared.campaign import HEADER_BYTES, handover_of
from undertone_shared.entropy import EntropyError
from undertone_shared.errors import Invalid, Refused
from undertone_shared.topics import config_topic, report_topic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from undertone_device.core.protocols import Sample
    from undertone_device.core.reporter import Reporter
    from undertone_device.mqtt.protocols import ClientSettings, Transport

_FIRST_DELAY = 1000
_OFFLINE = 0
_CONNECTING = 1
_ONLINE = 2
# State after a hand-over has arrived: the client must connect anew, to the addresses and topics of the hand-over.
_MOVED = 3
_RESYNC = 86400000
# Number of random words for one jitter: with so many, a draw fails with a probability below 2^-32.
_JITTER_WORDS = 32
# Beginning of ``trouble`` if the time server did not answer.
_NTP = "NTP: "


class Platform:
    """What a `Client` asks of the machine that it runs on.

    ``clock()``: Unix seconds; ``ticks()``: milliseconds modulo 2^30; ``idle(ms)`` waits. The owner of the loop sets the
    fields that it needs before it makes the client.
    """

    # Asks NTP and sets the clock, or raises OSError. If given, it is called before anything else, and daily.
    set_clock: "Callable[[], None] | None" = None
    # Returns, for Unix seconds, what `Reporter.observe` takes (an integer, a tuple, or a buffer of samples), or None if
    # the sensor has none. It is called once per slot, or every ``sample_seconds`` of the configuration. Without it, the
    # owner of the loop calls ``reporter.observe``.
    read: "Callable[[int], Sample | Sequence[Sample] | None] | None" = None
    # Functions that are called with a report: just before its bytes go to the transport, and after the broker's PUBACK.
    handed_over: "Callable[[bytes], object] | None" = None
    acknowledged: "Callable[[bytes], object] | None" = None
    # Feeds a watchdog; called in every round.
    alive: "Callable[[], None] | None" = None
    # Milliseconds between two attempts to connect to a server that does not answer, see `Knocks`.
    period = PERIOD

    def __init__(self, clock: "Callable[[], int]", ticks: "Callable[[], int]", idle: "Callable[[int], None]"):
        self.clock = clock
        self.ticks = ticks
        self.idle = idle


class Client:
    """One reporter on one broker."""

    def __init__(self, reporter: "Reporter", transport: "Transport", config: "ClientSettings", platform: Platform):
        self.reporter = reporter
        self.counts = {"connected": 0, "heard": 0, "sent": 0, "acked": 0, "sensor_failures": 0}
        # The owner of the loop sets ``reachable`` to False while there is no network to connect over.
        self.reachable = True
        # For status displays: what went wrong last, with the time server, the connection, a campaign or a hand-over;
        # "" after a new connection.
        self.trouble = ""
        self.transport = transport
        self.config = config
        self.platform = platform
        self._state = _OFFLINE
        self._knocks = Knocks(reporter.device, platform.period)
        # The current knock, see `knocks`: how many addresses it has not tried yet, when it began, whether it reached a
        # server.
        self._untried = 0
        self._knocked = 0
        self._reached = False
        self._wait = 0
        self._waits_since = 0
        self._sampled = -1
        # The longest wait until a time server that did not answer is asked again.
        self._delay = 0
        self._clock_set_at: int | None = None
        self._hold = 0
        self._held_since = 0
        self._flying: dict[int, bytes] = {}
        # The campaign of the last report that was sent, and the topic of its reports. The topic is kept, because
        # computing it takes a hash.
        self._topic = ("", "")

    @property
    def online(self) -> bool:
        """True if the broker has accepted the connection."""
        return self._state == _ONLINE

    def step(self, milliseconds: int = 500) -> "bytes | None":
        """Sample if due, close the slot if it is over, exchange with the broker within ``milliseconds``.

        Returns the report drawn in this round, if any. The limit of ``milliseconds`` holds while online: opening a
        connection may take longer.
        """
        report = None
        if self._clock_is_set():
            now = self.platform.clock()
            self._sample(now)
            report = self.reporter.close_slot(now)
            if report is not None:
                self._hold_back()
        self.exchange(milliseconds)
        return report

    def exchange(self, milliseconds: int) -> None:
        """Do the network's part of a round."""
        if self.platform.alive is not None:
            self.platform.alive()
        if not self._clock_is_set():
            self.platform.idle(milliseconds)
            return
        if self._state == _OFFLINE:
            self._connect()
        if self._state == _OFFLINE:
            self.platform.idle(milliseconds)
            return
        if self._state == _ONLINE:
            self._send()
        held = self._held()
        for event in self.transport.poll(min(milliseconds, held) if held else milliseconds):
            self._handle(event)
        if self._state == _MOVED:
            self.transport.close()
            self._go_offline()
            self._pause(self._knocks.lost(), self.platform.ticks())

    def finish(self, milliseconds: int) -> None:
        """Send the outbox at once, without spreading reports in time, for at most ``milliseconds``; then disconnect.

        Unsent reports stay in the outbox.
        """
        started = self.platform.ticks()
        self._hold = 0
        while len(self.reporter.outbox) and self._since(started) < milliseconds:
            self.exchange(100)
        self.transport.close()
        self._go_offline()

    def wake(self, read: "Callable[[], Sample | Sequence[int] | None]", milliseconds: int) -> "bytes | None":
        """Do one wake of a deep-sleep device: receive the campaign, report the slot that ended last, wait for the
        PUBACK.

        Returns the report drawn, None if there was none (see ``reporter.paused``); it stays in the outbox if the broker
        did not answer within ``milliseconds``.
        """
        started = self.platform.ticks()
        while not self.counts["heard"] and self._since(started) < milliseconds:
            self.exchange(100)
        try:
            report = self.reporter.run_once(read(), self.platform.clock())
        except (OSError, ValueError):
            self.counts["sensor_failures"] += 1
            report = self.reporter.run_once(None, self.platform.clock())
        self.finish(max(0, milliseconds - self._since(started)))
        return report

    # Methods for the clock and the sensor.

    def _clock_is_set(self) -> bool:
        if self.platform.set_clock is None:
            return True
        if self._clock_set_at is not None and self._since(self._clock_set_at) < _RESYNC:
            return True
        return self._ask_clock(self.platform.set_clock)

    def _ask_clock(self, set_clock: "Callable[[], None]") -> bool:
        # This is not part of `_clock_is_set`, which runs in every round: on boards each call of a function with many
        # variables makes much garbage.
        if not self.reachable or self._since(self._waits_since) < self._wait:
            return self._clock_set_at is not None
        try:
            set_clock()
        except OSError as error:
            self.trouble = _NTP + str(error)
            # NTP uses UDP, whose packets may be lost, so the first waits are short.
            self._delay = min(max(_FIRST_DELAY, 2 * self._delay), PERIOD)
            self._pause(self.jitter(self._delay), self.platform.ticks())
            return self._clock_set_at is not None
        self._clock_set_at = self.platform.ticks()
        self._delay = self._wait = 0
        if self.trouble.startswith(_NTP):
            self.trouble = ""
        return True

    def _sample(self, now: int) -> None:
        campaign = self.reporter.campaign
        if self.platform.read is None or campaign is None:
            return
        slot = now // campaign.slot_seconds
        index = now // self.config.sample_seconds if self.config.sample_seconds else slot
        if index == self._sampled:
            return
        self._sampled = index
        try:
            sample = self.platform.read(now)
            if self.platform.clock() // campaign.slot_seconds != slot:
                # Reading the sensor took until the next slot began, so the reading belongs to neither slot.
                raise ValueError
            if sample is not None:
                self.reporter.observe(sample, now)
        except (OSError, ValueError):
            self.counts["sensor_failures"] += 1

    # Methods for the network.

    def _since(self, ticks: int) -> int:
        return (self.platform.ticks() - ticks) & TICKS_MASK

    def jitter(self, n: int) -> int:
        """Draw uniformly below ``n``, 1 to 2^30, from the words that the last draw left, or from a refill.

        If entropy fails, return n // 2: nothing private depends on this number.
        """
        n = max(1, n)
        entropy = self.reporter.entropy
        try:
            if entropy.left < _JITTER_WORDS:
                entropy.refill()
            return entropy.below(n)
        except EntropyError:
            return n // 2

    def _pause(self, milliseconds: int, since: int) -> None:
        self._wait = milliseconds
        self._waits_since = since

    def _hold_back(self) -> None:
        campaign = self.reporter.campaign
        if campaign is not None:
            self._hold = self.jitter(campaign.slot_seconds * 10 * self.config.spread_percent)
            self._held_since = self.platform.ticks()

    def _held(self) -> int:
        if self._hold:
            left = self._hold - self._since(self._held_since)
            if left > 0:
                return left
            self._hold = 0
        return 0

    def _connect(self) -> None:
        if not self.reachable or self._since(self._waits_since) < self._wait:
            return
        if not self._untried:
            self._untried = len(self.transport.places)
            self._knocked = self.platform.ticks()
            self._reached = False
        self._untried -= 1
        try:
            self.transport.connect()
        except OSError as error:
            self._lost(str(error))
            return
        self._state = _CONNECTING

    def _go_offline(self) -> None:
        self._state = _OFFLINE
        self._flying = {}

    def _lost(self, why: str) -> None:
        self.trouble = why
        online = self.online
        self._go_offline()
        if online:
            self._pause(self._knocks.lost(), self.platform.ticks())
            return
        self._reached = self._reached or self.transport.reached
        if not self._untried:
            self._pause(self._knocks.failed(self._reached), self._knocked)

    def _handle(self, event: "Any") -> None:
        kind = event[0]
        if kind == ACKED:
            report = self._flying.pop(event[1], None)
            if report is not None:
                self.reporter.acked(report)
                self.counts["acked"] += 1
                if self.platform.acknowledged is not None:
                    self.platform.acknowledged(report)
        elif kind == MESSAGE:
            self._accept(event[1], event[2])
        elif kind == CONNECTED:
            self._connected()
        elif kind == DENIED:
            self.trouble = "the broker refuses the subscription to %s" % event[1]
        elif kind == LOST:
            self._lost(event[1])

    def _connected(self) -> None:
        self._state = _ONLINE
        self._untried = 0
        self._knocks.accepted()
        self.trouble = ""
        self.counts["connected"] += 1
        for name in self.config.campaigns:
            self.transport.subscribe(config_topic(self.config.prefix, name))

    def _accept(self, topic: str, payload: "bytes | memoryview") -> None:
        for name in self.config.campaigns:
            if topic == config_topic(self.config.prefix, name):
                if not len(payload):
                    # The server clears the retained campaign when it retires the campaign.
                    self.trouble = "the server has ended campaign " + name
                    return
                try:
                    self.reporter.accept(payload, self.platform.clock(), name, self.platform.alive)
                    self.counts["heard"] += 1
                except (Refused, Invalid) as refused:
                    self.trouble = "campaign refused: %.300s" % refused
                except MemoryError:
                    self.trouble = "campaign refused: not enough memory for %d bytes" % len(payload)
                if self.reporter.policy.handover and len(payload) > HEADER_BYTES and len(handover_of(payload)):
                    from undertone_device.core import handover

                    if handover.follow(self, name, handover_of(payload)):
                        self._state = _MOVED
                    unload(handover.__name__)

    def _send(self) -> None:
        outbox = self.reporter.outbox
        flying = self._flying
        end = len(outbox)
        if self._held():
            end -= 1
        index = 0
        while index < end and len(flying) < self.config.in_flight:
            report = outbox[index]
            index += 1
            if report in flying.values():
                continue
            if self.platform.handed_over is not None:
                self.platform.handed_over(report)
            name = self.reporter.campaign_of(report) or self.config.campaigns[0]
            if name != self._topic[0]:
                self._topic = (name, report_topic(self.config.prefix, name, self.reporter.device))
            flying[self.transport.publish(self._topic[1], report)] = report
            self.counts["sent"] += 1
