"""A fleet that sends to a direct endpoint until each report is acknowledged, however often the endpoint ends."""

import asyncio
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from support.over_websocket import OverWebSocket
from support.waiting import wait_for
from undertone_simulator.wire.connection import DeviceConnection

_PAUSE = 0.1


class _Member:
    """One device. It keeps, in order, the reports that were handed over and are not acknowledged."""

    def __init__(self, fleet: "DirectSender", user: str, password: str) -> None:
        self.fleet = fleet
        self.user = user
        self.password = password
        # Every other device connects over WebSocket, if the server has it.
        self.port = fleet.websocket_port if fleet.websocket_port and len(fleet._members) % 2 else fleet.port
        self.waiting: dict[tuple[str, bytes], None] = {}
        # The number of connections that ended before the server let the device in.
        self.refused = 0
        self.connection: DeviceConnection | None = None
        self.task: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()

    def protocol(self) -> asyncio.Protocol:
        connection = DeviceConnection(self.user, self.password, 30, self)
        return connection if self.port == self.fleet.port else OverWebSocket(connection)

    async def live(self) -> None:
        while True:
            # The event is made before the connection, because a connection may be lost before this code knows that it
            # was made.
            self.gone = asyncio.Event()
            try:
                host = None if self.fleet.context is None else "localhost"
                await asyncio.get_running_loop().create_connection(
                    self.protocol,
                    "127.0.0.1",
                    self.port,
                    ssl=self.fleet.context,
                    server_hostname=host,
                )
                await self.gone.wait()
            except OSError:
                pass
            await asyncio.sleep(_PAUSE)

    def connected(self, connection: DeviceConnection) -> None:
        self.connection = connection
        for topic, payload in self.waiting:
            connection.publish(topic, payload)
        connection.flush()

    def message(self, connection: DeviceConnection, topic: str, payload: bytes) -> None:
        pass

    def acked(self, connection: DeviceConnection, payload: bytes) -> None:
        # The same object is looked for, since a message of another topic may have equal bytes.
        for key in [key for key in self.waiting if key[1] is payload]:
            del self.waiting[key]
            self.fleet.acknowledged.add((self.user, *key))

    def lost(self, connection: DeviceConnection) -> None:
        if self.connection is connection:
            self.connection = None
        else:
            self.refused += 1
        self.gone.set()

    def send(self, topic: str, payload: bytes) -> None:
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self.live())
        if self.connection is None and (topic, payload) in self.waiting:
            self.fleet.merged += 1
        self.waiting[topic, payload] = None
        if self.connection is not None:
            self.connection.publish(topic, payload)
            self.connection.flush()


class DirectSender:
    """``send`` hands over (topic, payload), and the device named in the topic sends it.

    All messages are kept. ``merged``: how many messages were equal to one that a device without a connection still
    held. The device sends such a message only once. ``websocket_port``: the port of MQTT over WebSocket, through which
    half of the devices connect, or 0.
    """

    def __init__(
        self, port: int, passwords: Mapping[str, str], context: ssl.SSLContext | None = None, websocket_port: int = 0
    ) -> None:
        self.port = port
        self.websocket_port = websocket_port
        self.context = context
        self.sent: list[tuple[str, bytes]] = []
        self.merged = 0
        self.acknowledged: set[tuple[str, str, bytes]] = set()
        self._passwords = passwords
        self._members: dict[str, _Member] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, deliveries: Iterable[tuple[str, bytes]]) -> list[tuple[str, str, bytes]]:
        """Hand over reports; return what to wait for."""
        made = []
        for topic, payload in deliveries:
            user = topic.split("/")[-2]
            self.sent.append((topic, payload))
            made.append((user, topic, payload))
        self._loop.call_soon_threadsafe(self._send, made)
        return made

    def flush(self, made: Iterable[tuple[str, str, bytes]], seconds: float = 120.0) -> None:
        """Wait until the endpoint has acknowledged these messages."""
        wanted = set(made)
        wait_for(lambda: wanted <= self.acknowledged, seconds, "the endpoint's acknowledgement")

    def refused(self, user: str) -> int:
        """Return how often a device was not let in."""
        return self._members[user].refused

    def close(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # A handshake that breaks off because the server ends is expected, so it is not logged.
        self._loop.set_exception_handler(lambda *_: None)
        self._loop.run_forever()

    def _send(self, made: list[tuple[str, str, bytes]]) -> None:
        for user, topic, payload in made:
            if user not in self._members:
                self._members[user] = _Member(self, user, self._passwords[user])
            self._members[user].send(topic, payload)

    async def _end(self) -> None:
        tasks: list[Any] = [member.task for member in self._members.values() if member.task is not None]
        for member in self._members.values():
            if member.connection is not None:
                member.connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        deadline = time.monotonic() + 30
        while any(member.connection is not None for member in self._members.values()) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
