"""An intake by paho with one packet per call: the baseline for our own subscriber."""

import time
from collections.abc import Sequence
from typing import Any

import paho.mqtt.client as mqtt

from undertone_aggregator.ingest.intake import Delivery
from undertone_aggregator.mqtt.link import Address


class PahoIntake:
    """A persistent session through paho."""

    def __init__(self, address: Address, client_id: str, topic: str, limit: int) -> None:
        self.ready = False
        self._limit = limit
        self._taken: list[Delivery] = []
        self._client = address.client(client_id, clean_session=False, manual_ack=True)
        self._client.on_connect = lambda client, *_: client.subscribe(topic, 1)
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._client.on_socket_register_write = lambda *_: None
        self._client.connect(address.host, address.port)

    def take(self, seconds: float) -> list[Delivery]:
        """Return the deliveries that have arrived. If there are none, wait for the first one, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        while len(self._taken) < self._limit:
            if self._client.want_write():
                self._client.loop_write()
            held = len(self._taken)
            # paho-mqtt reads one packet per call, so this loop calls it until a call adds none.
            while len(self._taken) < self._limit:
                before = len(self._taken)
                self._client.loop_read()
                if len(self._taken) == before:
                    break
            if len(self._taken) == held:
                if held or time.monotonic() > deadline:
                    break
                time.sleep(0.005)
        taken, self._taken = self._taken, []
        return taken

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge all deliveries in one write."""
        data = b"".join(b"\x40\x02" + int(str(delivery.receipt)).to_bytes(2, "big") for delivery in deliveries)
        sock: Any = self._client.socket()
        sock.setblocking(True)
        sock.sendall(data)
        sock.setblocking(False)

    def close(self) -> None:
        """Disconnect."""
        self._client.disconnect()

    def _on_subscribe(self, *_: Any) -> None:
        self.ready = True

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        self._taken.append(Delivery(message.topic, bytes(message.payload), message.retain, message.mid))
