"""What heap_device.py needs beside the device, compiled like it: a broker, a clock, random bytes, all in the heap."""


class Broker:
    """A broker of one client. ``gaps`` counts reports whose slot did not follow the one before."""

    def __init__(self):
        self._pieces = []
        self.count = 0
        self.gaps = 0
        self._slot = None

    def open(self):
        return self

    def send(self, topic, path, size):
        """A file's content as a message; it is read as it is sent, for a network's buffers are not in the heap."""
        size += 2 + len(topic)
        self._pieces.append(bytes((0x30, size & 127 | 128, size >> 7, 0, len(topic))) + topic.encode())
        self._pieces.append(open(path, "rb"))  # noqa: SIM115

    def read(self, buffer):
        while self._pieces:
            piece = self._pieces[0]
            if not isinstance(piece, bytes):
                count = piece.readinto(buffer)
                if count:
                    return count
            self._pieces.pop(0)
            if isinstance(piece, bytes):
                buffer[: len(piece)] = piece
                return len(piece)
        return None

    def write(self, data):
        start = 0
        while start < len(data):
            kind = data[start] & 0xF0
            body = start + 2
            start = body + data[start + 1]
            if kind == 0x10:
                self._pieces.append(b"\x20\x02\0\0")
            elif kind == 0x80:
                self._pieces.append(b"\x90\x03" + bytes(data[body : body + 2]) + b"\0")
            elif kind == 0x30:
                self._take(bytes(data[start - 16 : start]))
                end = start - 16
                self._pieces.append(b"\x40\x02" + bytes(data[end - 2 : end]))
        return len(data)

    def _take(self, report):
        slot = int.from_bytes(report[6:10], "big")
        if self._slot is not None and slot != self._slot + 1:
            self.gaps += 1
        self._slot = slot
        self.count += 1

    def wait(self, milliseconds, writing):
        pass

    def close(self):
        pass


class Machine:
    """Clock, ticks and random bytes; ``random`` allocates what a board's does, the bytes that it returns."""

    def __init__(self, now):
        self.now = now
        self._ticks = 5
        self._state = 1
        self._buffer = bytearray(32)

    def clock(self):
        return self.now

    def ticks(self):
        return self._ticks & 0x3FFFFFFF

    def advance(self, seconds):
        self.now += seconds
        self._ticks += 1000 * seconds

    def random(self, n):
        for i in range(n):
            self._state = (self._state * 75 + 74) % 65537
            self._buffer[i] = self._state & 255
        return bytes(self._buffer)
