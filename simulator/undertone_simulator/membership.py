"""Names and cohort membership of many devices at once."""

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_shared.cohort import WHOLE


def device_names(sensor: str, count: int, first: int = 0, stop: int | None = None) -> list[str]:
    """Names of devices first <= i < stop of ``count``: `sensor`-001 and so on, as many digits as the last one needs."""
    width = max(3, len(str(count)))
    return [f"{sensor}-{number:0{width}d}" for number in range(first + 1, (count if stop is None else stop) + 1)]


def in_cohort(seed: bytes, share: int, slot: int, names: Sequence[bytes]) -> NDArray[np.bool_]:
    """`undertone_shared.cohort.in_cohort` for each name."""
    if share in (0, WHOLE):
        return np.full(len(names), share == WHOLE)
    head, hashed = seed + struct.pack(">I", slot), hashlib.sha256
    heads = b"".join([hashed(head + name).digest()[:4] for name in names])
    return np.frombuffer(heads, dtype=">u4") >> 8 < share
