"""Publish a benchmark's backlog as fast as the broker accepts it.

The publisher speaks MQTT 3.1.1 at QoS 1 over a plain socket, because paho would be slower. It sends `_WINDOW` packets,
and waits until the broker has acknowledged all of them.
"""

import socket
from collections.abc import Iterable
from itertools import islice

from undertone_aggregator.mqtt import packets
from undertone_aggregator.mqtt.link import Address
from undertone_device.mqtt.packets import encode_publish

_WINDOW = 2000
_CONNACK_BYTES, _PUBACK_BYTES = 4, 4
_PATIENCE_SECONDS = 60.0


def publish(address: Address, reports: Iterable[tuple[str, bytes]]) -> None:
    """Publish all reports; return when the broker has acknowledged them. Raises OSError."""
    with socket.create_connection((address.host, address.port), _PATIENCE_SECONDS) as broker:
        user, password, keepalive = address.user, address.password, address.keepalive
        broker.sendall(packets.connect("bench-publisher", user, password, keepalive, clean=True))
        if _read(broker, _CONNACK_BYTES) != packets.connack(0):
            raise ConnectionError("the broker refused the benchmark's publisher")
        waiting = iter(reports)
        while window := list(islice(waiting, _WINDOW)):
            parts = [encode_publish(number, *each) for number, each in enumerate(window, 1)]
            broker.sendall(b"".join(parts))
            _read(broker, _PUBACK_BYTES * len(window))
        broker.sendall(packets.GOODBYE)


def _read(broker: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = broker.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection of the benchmark's publisher")
        data += more
    return data
