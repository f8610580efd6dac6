"""How long a device waits before it tries a server again that is away, or that did not let it in.

A *knock* is one attempt at each of the device's addresses. If all devices lose their server at the same moment, they
must not all come back at the same moment. So each device waits for a time of its own, which is a hash of its name and
does not depend on a reading.
"""

import hashlib

# Milliseconds between two knocks while no server answers: 100,000 devices make 1,667 knocks a second.
PERIOD = 60000
# Least milliseconds that a device waits, so that two devices with the same name do not close each other's connection
# all the time.
_LEAST = 1000
_DOUBLINGS = 2


class Knocks:
    """The waits of one device. ``period``: milliseconds between two knocks while nobody answers.

    h is the big-endian number in bytes 1 to 3, counted from 0, of sha256(device). All results are milliseconds.
    """

    def __init__(self, device: str, period: int = PERIOD):
        digest = hashlib.sha256(device.encode()).digest()
        self._hash = digest[1] << 16 | digest[2] << 8 | digest[3]
        self._period = period
        self._spread = False
        self._refused = 0

    def accepted(self) -> None:
        """Note that the server has let the device in."""
        self._refused = 0

    def lost(self) -> int:
        """Return the wait from the end of a connection until the next knock: up to a period, by the hash."""
        self._spread = True
        least = min(_LEAST, self._period // 2)
        return least + self._hash % (self._period - least)

    def failed(self, reached: bool) -> int:
        """Return the wait from the beginning of a knock that failed until the next one.

        If no server was ``reached``, the wait is a period; the first time after a start it is as in ``lost``. If a
        server was reached and did not let the device in, the wait is w + h mod w, where w is 1 period for the first
        such knock in a row, 2 for the second and 4 for each further one.
        """
        if reached:
            longer = self._period << min(self._refused, _DOUBLINGS)
            self._refused += 1
            self._spread = True
            return longer + self._hash % longer
        return self._period if self._spread else self.lost()
