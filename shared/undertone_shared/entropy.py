"""The only source of random numbers for a device's reports: buffered bytes with a continuous health test.

Draw contract (so that board, phone, server and numpy agree bit for bit): a *word* is 4 bytes, little-endian,
masked to the bit length of n - 1; words >= n are rejected and the next one is taken. For scalar reports, ``refill``
is called before a draw, never within, so that a draw allocates nothing and its time does not depend on the reading.
"""

import os

from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Size of the buffer: 64 words. The draw of a scalar report accepts at most three words and rejects each with
# probability below 1/2, independently of any reading: the buffer is used up within a draw with probability below
# 2081 / 2^64 < 2^-52.
BUFFER_BYTES = 256
# Number of bytes in one request to the source: few requests, and little memory for each.
_CHUNK = 128

# Repetition count test (NIST SP 800-90B, 4.4.1) at a claimed 8 bits per byte: an ideal source gives six equal bytes in
# a row with probability 2^-40 at each byte, about 4e-6 per device-year of half-hourly refills.
REPETITION_CUTOFF = 6
_APART = REPETITION_CUTOFF - 1


class EntropyError(Exception):
    """The byte source is absent, returns too few bytes or fails the health test, or the buffer is used up.

    Nothing may be drawn then.
    """


class Entropy:
    """Exactly uniform integers from a byte source.

    ``source(n)`` returns n fresh random bytes; by default ``os.urandom``. Raises EntropyError where there is none.
    """

    def __init__(self, source: "Callable[[int], bytes] | None" = None):
        if source is None:
            source = getattr(os, "urandom", None)
            if source is None:
                raise EntropyError("this machine has no os.urandom to draw noise from")
        self._source = source
        self._buffer = bytearray(BUFFER_BYTES)
        self._next = BUFFER_BYTES
        self._last = -1
        self._run = 0

    def refill(self) -> None:
        """Fill the whole buffer with fresh bytes.

        Raises EntropyError if the source gives too few bytes, or if they fail the health test.
        """
        self._next = BUFFER_BYTES
        position = 0
        while position < BUFFER_BYTES:
            chunk = self._source(_CHUNK)
            if len(chunk) != _CHUNK:
                raise EntropyError("the random source gave %d bytes, expected %d" % (len(chunk), _CHUNK))
            self._buffer[position : position + _CHUNK] = chunk
            position += _CHUNK
        if self._repeats():
            raise EntropyError("the random source repeated one byte %d times or more" % REPETITION_CUTOFF)
        self._next = 0

    def _repeats(self) -> bool:
        """Return True if the same byte occurs six times or more in a row, including bytes before this buffer.

        The first five of any six bytes in a row include a position divisible by five, so the search for a run compares
        only the byte at each such position with the next one: a fifth of the work.
        """
        buffer = self._buffer
        # Length of the run of equal bytes at the end of the last buffer.
        run = self._run
        first = 0
        while first < BUFFER_BYTES and buffer[first] == self._last:
            first += 1
            run += 1
        failed = first > 0 and run >= REPETITION_CUTOFF
        for position in range(0, BUFFER_BYTES - _APART, _APART):
            if buffer[position] == buffer[position + 1]:
                byte = buffer[position]
                start = position
                while start and buffer[start - 1] == byte:
                    start -= 1
                end = position + 1
                while end < BUFFER_BYTES and buffer[end] == byte:
                    end += 1
                if end - start >= REPETITION_CUTOFF:
                    failed = True
        if first < BUFFER_BYTES:
            run = 1
            self._last = buffer[BUFFER_BYTES - 1]
            while run < BUFFER_BYTES and buffer[BUFFER_BYTES - 1 - run] == self._last:
                run += 1
        self._run = run
        return failed

    @property
    def left(self) -> int:
        """Return the number of words left in the buffer."""
        return (BUFFER_BYTES - self._next) // 4

    def below(self, n: int) -> int:
        """Draw a uniform integer in [0, n), 1 <= n <= 2^30.

        It uses one word, also for n = 1, and one more for each rejection.

        Raises Invalid for n out of range, EntropyError if the buffer is used up (call ``refill`` before a draw).
        """
        if n < 1 or n > 0x40000000:
            raise Invalid("n is %d, expected 1 to 2^30" % n)
        mask = n - 1
        mask |= mask >> 1
        mask |= mask >> 2
        mask |= mask >> 4
        mask |= mask >> 8
        mask |= mask >> 16
        buffer = self._buffer
        i = self._next
        while i < BUFFER_BYTES:
            # The top byte is masked before the shift, so that no intermediate exceeds a 31-bit small integer.
            word = (buffer[i] | buffer[i + 1] << 8 | buffer[i + 2] << 16 | (buffer[i + 3] & mask >> 24) << 24) & mask
            buffer[i] = buffer[i + 1] = buffer[i + 2] = buffer[i + 3] = 0
            i += 4
            if word < n:
                self._next = i
                return word
        self._next = i
        raise EntropyError("the entropy buffer is used up: refill it before a draw")
