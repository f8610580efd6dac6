"""An asyncio protocol for MQTT's bytes over a WebSocket."""

import asyncio
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri


class OverWebSocket(asyncio.Protocol):
    """Connects the protocol ``inner`` over a WebSocket, and is the transport to which ``inner`` writes."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._client = ClientProtocol(parse_uri("ws://localhost/mqtt"), subprotocols=[Subprotocol("mqtt")])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._client.send_request(self._client.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._client.receive_data(data)
        for event in self._client.events_received():
            if isinstance(event, Response) and self._client.handshake_exc is None:
                self._inner.connection_made(cast(Any, self))
            elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                self._inner.data_received(bytes(event.data))
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def write(self, data: bytes) -> None:
        self._client.send_binary(data)
        self._flush()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _flush(self) -> None:
        self._transport.write(b"".join(self._client.data_to_send()))
