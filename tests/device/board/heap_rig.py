"""Sockets over /dev/net and an injected clock for heap_device.py. This file is compiled like the device's code."""

AF_INET = 2
SOCK_STREAM = 1
POLLIN = 1
POLLOUT = 4


def getaddrinfo(host, port, family, kind):
    return ((AF_INET, kind, 0, "", (host, port)),)


class socket:
    def __init__(self, family, kind):
        pass

    def connect(self, address):
        self._file = open("/dev/net", "r+b")  # noqa: SIM115
        self.write = self._file.write
        self.close = self._file.close

    def readinto(self, buffer):
        return self._file.readinto(buffer) or None

    def settimeout(self, seconds):
        pass

    def setblocking(self, blocking):
        pass


class poll:
    """Does nothing: the interpreter itself waits for the server's answers between two steps."""

    def register(self, stream, events):
        pass

    def modify(self, stream, events):
        pass

    def poll(self, milliseconds):
        pass


class Clock:
    """Seconds and ticks that only ``advance`` moves, together."""

    def __init__(self, now):
        self._now = now
        self._ticks = 5

    def unix_time(self):
        return self._now

    def ticks(self):
        return self._ticks & 0x3FFFFFFF

    def advance(self, seconds):
        self._now += seconds
        self._ticks += 1000 * seconds
