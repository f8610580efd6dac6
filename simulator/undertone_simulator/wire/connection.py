"""The devices' MQTT codec on an asyncio transport: one TCP connection, from its CONNECT to its end."""

import asyncio
from typing import Any, Protocol, cast

from undertone_device.mqtt.packets import ACKED, CONNECTED, MESSAGE, ClientSession, ProtocolError
from undertone_simulator.wire.clock import real_ticks


class ConnectionListener(Protocol):
    """Callbacks of a connection; each names the connection, because an older one may still be closing."""

    def connected(self, connection: "DeviceConnection") -> None: ...
    def message(self, connection: "DeviceConnection", topic: str, payload: bytes) -> None: ...
    def acked(self, connection: "DeviceConnection", payload: bytes) -> None: ...
    def lost(self, connection: "DeviceConnection") -> None: ...


class DeviceConnection(asyncio.Protocol):
    """One connection of `user`; `publish` queues, `flush` writes everything in the queue to the transport at once."""

    def __init__(self, user: str, password: str | None, keepalive: int, listener: ConnectionListener):
        self.session = ClientSession(keepalive)
        self._user = user
        self._password = password
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, bytes] = {}

    @property
    def online(self) -> bool:
        """True if the connection is open and the broker has accepted it."""
        return self._transport is not None and self.session.connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.session.connect(self._user, self._user, self._password, real_ticks())
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            # The first element of an event is its type.
            events: list[Any] = list(self.session.receive(data, real_ticks()))
        except ProtocolError:
            self.abort()
            return
        for event in events:
            if event[0] == CONNECTED:
                self._listener.connected(self)
            elif event[0] == MESSAGE:
                self._listener.message(self, event[1], event[2])
            elif event[0] == ACKED and event[1] in self._waiting:
                self._listener.acked(self, self._waiting.pop(event[1]))
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.lost(self)

    def subscribe(self, topic: str) -> None:
        """Queue a subscription."""
        self.session.subscribe(topic, real_ticks())

    def publish(self, topic: str, payload: bytes) -> None:
        """Queue a publication at QoS 1; its acknowledgement is passed to the listener."""
        self._waiting[self.session.publish(topic, payload, real_ticks())] = payload

    def flush(self, cut: int = 0) -> None:
        """Write the queue to the transport, except for the last `cut` bytes."""
        output = self.session.output()
        if self._transport is not None and output:
            self._transport.write(output[: len(output) - cut])

    def check(self) -> None:
        """Send pings and repeat publications if due; abort if the broker is silent.

        Call it at least twice per keepalive.
        """
        if self.online:
            try:
                self.session.check(real_ticks())
            except ProtocolError:
                self.abort()
            self.flush()

    def abort(self) -> None:
        """Abort the TCP connection."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send DISCONNECT and close."""
        if self._transport is not None:
            self.session.disconnect(real_ticks())
            self.flush()
            self._transport.close()
