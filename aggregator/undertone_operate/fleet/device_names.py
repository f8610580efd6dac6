"""Names and cohort membership of many devices at once, with array operations."""

import contextlib
import hashlib
import importlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def device_names(sensor: str, count: int, first: int = 0, stop: int | None = None) -> list[str]:
    """Return the names of devices first <= i < stop of ``count``: `sensor`-001 and so on, with equally many digits."""
    width = max(3, len(str(count)))
    return [f"{sensor}-{number:0{width}d}" for number in range(first + 1, (count if stop is None else stop) + 1)]


def cohort_hashes(seed: bytes, sensor: str, count: int, first: int, stop: int) -> tuple[Integers, Integers]:
    """Return the hashes h and h' of devices first <= i < stop of ``count``, see `undertone_shared.schedule`."""
    width = max(3, len(str(count)))
    head = seed + f"{sensor}-".encode()
    # The array has a row of bytes for each device: the seed and its name.
    rows = np.empty((stop - first, len(head) + width), dtype=np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
    numbers = np.arange(first + 1, stop + 1)
    for place in range(1, width + 1):
        numbers, digit = np.divmod(numbers, 10)
        rows[:, -place] = digit + ord("0")
    digests = b"".join([_sha256(row).digest() for (row,) in struct.iter_unpack(f"{rows.shape[1]}s", rows.tobytes())])
    words = np.frombuffer(digests, dtype=">u4").reshape(-1, 8)
    return words[:, 0].astype(np.int64), words[:, 1].astype(np.int64)


def _constructor() -> Callable[[bytes], Any]:
    """Return the constructor of SHA-256, if possible CPython's own, which is faster for short texts than OpenSSL's."""
    for module in ("_sha2", "_sha256"):
        with contextlib.suppress(ImportError, AttributeError):
            constructor: Callable[[bytes], Any] = importlib.import_module(module).sha256
            return constructor
    return hashlib.sha256


_sha256 = _constructor()
