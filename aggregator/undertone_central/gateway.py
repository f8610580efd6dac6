"""The gateway: it receives raw readings over MQTT on a trusted network and passes them to a release.

A message is the value, or a running number and the value (``17 250``). If messages have running numbers, a
message whose number is not above the last one is a repetition and is dropped. If they have none, a redelivery after a
crash is recognised by its packet id. A batch is acknowledged once its release is in the output file, or at the broker
of the output.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.inbox import Inbox, is_repeated, packet_of
from undertone_aggregator.mqtt.link import Address
from undertone_central.document import TITLE
from undertone_central.feed import not_whole, parse
from undertone_central.job import ReleaseJob

BATCH = 1000
PAUSE = 0.2
SECONDS = 60.0


class TopicSink:
    """Publishes each line of a release at QoS 1. The public parameters are retained under ``<topic>/about``.

    After a restart the lines of the last batch may be published twice, with equal numbers. Raises OSError if the broker
    cannot be reached.
    """

    def __init__(self, address: Address, topic: str, client_id: str) -> None:
        self._topic = topic
        self._client = address.client(client_id, clean_session=True)
        self._client.max_inflight_messages_set(BATCH)
        try:
            self._client.connect(address.host, address.port, address.keepalive)
        except (OSError, ValueError) as wrong:
            raise OSError(f"the broker at {address.host}:{address.port} cannot be reached: {wrong}") from None
        self._client.loop_start()

    def append(self, text: str, at: int) -> None:
        """Publish the lines and wait until the broker has them. Raises OSError if that takes more than a minute."""
        sent = []
        for line in text.splitlines():
            about = line.startswith(TITLE)
            topic = f"{self._topic}/about" if about else self._topic
            payload = line[len(TITLE) :] if about else line
            sent.append(self._client.publish(topic, payload.encode(), qos=1, retain=about))
        deadline = time.monotonic() + SECONDS
        for info in sent:
            while not info.is_published():
                if time.monotonic() > deadline:
                    raise OSError(
                        f"the broker did not acknowledge the release on topic {self._topic} within {SECONDS:g} seconds"
                    )
                time.sleep(0.002)

    def close(self) -> None:
        """Disconnect from the broker."""
        self._client.disconnect()
        self._client.loop_stop()


class Gateway:
    """Reads one topic and passes the readings to a `ReleaseJob`. ``step`` processes the readings that have arrived."""

    def __init__(
        self, job: ReleaseJob, address: Address, topic: str, client_id: str, scale: Fraction, say: Callable[[str], None]
    ) -> None:
        self._job = job
        self._scale = scale
        self._say = say
        self._inbox = Inbox(address, client_id, [topic], BATCH, say)
        # State after the last committed batch: the ids of packets whose acknowledgement may not have reached the
        # broker, and the newest running number.
        self._packets: set[int] = set(job.notes.get("packets", ()))
        self._number: int = job.notes.get("number", -1)

    @property
    def subscribed(self) -> bool:
        """True if the subscription is active, so that readings can arrive."""
        return self._inbox.ready

    def step(self) -> int:
        """Release the readings that have arrived, after a short wait for the first; return how many numbers it gave."""
        deliveries = self._inbox.take(PAUSE)
        if not deliveries:
            return 0
        values = [value for value in map(self._value, deliveries) if value is not None]
        packets = [packet_of(delivery) for delivery in deliveries]
        released = 0
        if values:
            notes: dict[str, Any] = {"packets": packets, "number": self._number}
            released = self._job.step(np.array(values, dtype=np.int64), notes)
            self._packets = set(packets)
        self._inbox.acknowledge(deliveries)
        return released

    def close(self) -> None:
        """Disconnect; the broker stores readings until the next start."""
        self._inbox.close()

    def _value(self, delivery: Delivery) -> int | None:
        """Return the reading, which is 0 if the message has no whole number.

        Returns None for a message that is not counted: a retained one, a repetition, or one without a valid running
        number.
        """
        if delivery.retained:
            self._say("a retained message was left out: it may be an old reading")
            return None
        words = delivery.payload.decode("utf-8", "replace").replace(",", " ").split()
        value = parse(words[-1], self._scale) if len(words) in (1, 2) else None
        if len(words) == 2:
            number = parse(words[0], Fraction(1))
            if number is None or number <= self._number:
                return None
            self._number = number
        elif is_repeated(delivery) and packet_of(delivery) in self._packets:
            return None
        if value is None:
            text = delivery.payload.decode("utf-8", "replace")
            self._say(not_whole(words[-1] if len(words) in (1, 2) else text, self._scale))
        return value or 0
