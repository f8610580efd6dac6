"""A proxy between a phone and the server's WebSocket. It notes each report that passes, as a device's log does."""

import contextlib
import socket
import threading
from collections.abc import Callable


class Packets:
    """The MQTT packets in one direction of a WebSocket connection. ``noted(first byte, body)`` is called for each."""

    def __init__(self, noted: Callable[[int, bytes], None]) -> None:
        self._noted = noted
        self._http = True
        self._frames = b""
        self._mqtt = b""

    def feed(self, data: bytes) -> None:
        """Take bytes as they came over the network."""
        self._frames += data
        if self._http:
            _, end, rest = self._frames.partition(b"\r\n\r\n")
            if not end:
                return
            self._http, self._frames = False, rest
        while (frame := self._frame()) is not None:
            self._mqtt += frame
            while self._packet():
                pass

    def _frame(self) -> bytes | None:
        data = self._frames
        if len(data) < 2:
            return None
        size, at = data[1] & 127, 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, at = int.from_bytes(data[2 : 2 + wide], "big"), 2 + wide
        masked = data[1] & 128
        mask = data[at : at + 4] if masked else bytes(4)
        at += 4 if masked else 0
        if len(data) < at + size:
            return None
        self._frames = data[at + size :]
        if data[0] & 15 not in (0, 2):
            return b""
        return bytes(byte ^ mask[i & 3] for i, byte in enumerate(data[at : at + size]))

    def _packet(self) -> bool:
        size, at = 0, 1
        while at < len(self._mqtt):
            size |= (self._mqtt[at] & 127) << 7 * (at - 1)
            at += 1
            if self._mqtt[at - 1] < 128:
                if len(self._mqtt) < at + size:
                    return False
                self._noted(self._mqtt[0], self._mqtt[at : at + size])
                self._mqtt = self._mqtt[at + size :]
                return True
        return False


class Tap:
    """Forwards connections to 127.0.0.1:``port`` to ``server``.

    ``sent(topic, report)`` is called before a report is forwarded.
    """

    def __init__(self, port: int, server: tuple[str, int], sent: Callable[[str, bytes], None]) -> None:
        self._server = server
        self._sent = sent
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                phone, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                phone.close()
                continue
            packets = Packets(self._note)
            for source, target, feed in ((phone, server, packets.feed), (server, phone, None)):
                threading.Thread(target=self._pump, args=(source, target, feed), daemon=True).start()

    def _note(self, first: int, body: bytes) -> None:
        if first & 0xF0 == 0x30:
            # A PUBLISH at QoS 1 has the topic, the packet id and the payload.
            size = 2 + int.from_bytes(body[:2], "big")
            self._sent(body[2:size].decode(), body[size + 2 :])

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, feed: Callable[[bytes], None] | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if feed is not None:
                    feed(data)
                target.sendall(data)
        # Both threads of a connection end here. The second one closes what is closed already.
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
