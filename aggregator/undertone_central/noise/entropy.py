"""Random bytes in bulk, by the device's rules: from the operating system only, with a continuous health test."""

import hashlib
import os
import struct
from collections.abc import Callable
from typing import Protocol

import numpy as np

from undertone_shared.entropy import EntropyError

# Repetition count test (NIST SP 800-90B, 4.4.1) at 8 bits per byte: an ideal source gives nine equal bytes in a row
# with probability 2^-64 at each byte. With the device's cutoff of six, the probability would be 2^-40, which is too
# much for a release of a billion values.
REPETITION_CUTOFF = 9
KEY_BYTES = 32

ByteSource = Callable[[int], bytes]


class Bytes(Protocol):
    """A sequence of independent uniform bytes."""

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        ...


class FreshBytes:
    """Bytes of ``source``, by default ``os.urandom``.

    Raises EntropyError if the source returns another number of bytes than asked for, or fails the health test.
    """

    def __init__(self, source: ByteSource | None = None) -> None:
        self._source = os.urandom if source is None else source
        self._last = b""

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes, after the health test."""
        taken = self._source(n)
        if len(taken) != n:
            raise EntropyError(f"the random source gave {len(taken)} bytes, expected {n}")
        run = np.frombuffer(self._last + taken, dtype=np.uint8)
        repeats = np.flatnonzero(run[1:] == run[:-1])
        span = REPETITION_CUTOFF - 2
        if np.any(repeats[span:] - repeats[: len(repeats) - span if len(repeats) > span else 0] == span):
            raise EntropyError(
                f"the system's random bytes cannot be trusted: one byte came {REPETITION_CUTOFF} times or more in a"
                " row, and nothing is drawn from them"
            )
        self._last = (self._last + taken)[-(REPETITION_CUTOFF - 1) :]
        return taken

    def key(self) -> bytes:
        """Return a fresh key for `KeyedBytes`."""
        return self.take(KEY_BYTES)


class KeyedBytes:
    """Bytes determined by a secret key and a public address: SHAKE128(key ‖ address ‖ number of the call).

    They are used for noise that is needed twice and is too large to store.
    """

    def __init__(self, key: bytes, *address: int) -> None:
        self._prefix = key + struct.pack(f"<{len(address)}Q", *address)
        self._calls = 0

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        taken = hashlib.shake_128(self._prefix + struct.pack("<Q", self._calls)).digest(n)
        self._calls += 1
        return taken
