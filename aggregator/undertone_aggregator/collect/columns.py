"""Many reports at once, as arrays: the bytes of `undertone_shared.report` and nothing of their meaning."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertone_shared.report import LENGTH, VERSION

# The table in `undertone_shared.report`, for a report with one value. `value` is signed in a stream alone.
_REPORT = np.dtype(
    [
        ("version", "u1"),
        ("kind", "u1"),
        ("fingerprint", ">u8"),
        ("slot", ">u4"),
        ("value", ">u4"),
        ("chain", ">u2"),
        ("sequence", ">u4"),
    ]
)
_BLANK = bytes(LENGTH)


class Columns:
    """Fields [n] of n payloads, native and wide enough to compute with. ``sound``: those that are a report's bytes.

    A payload of another length is not sound, whatever its columns hold; so a report of several coordinates is not.
    ``device``: the keys of the devices, which the caller sets.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        sized = np.fromiter(map(len, payloads), np.int64, len(payloads)) == LENGTH
        if sized.all():
            data = b"".join(payloads)
        else:
            data = b"".join([payload if len(payload) == LENGTH else _BLANK for payload in payloads])
        table = np.frombuffer(data, _REPORT)
        self.kind: NDArray[np.uint8] = table["kind"]
        self.fingerprint = table["fingerprint"].astype(np.uint64)
        self.slot = table["slot"].astype(np.int64)
        self.symbol = table["value"].astype(np.int64)
        self.released = table["value"].astype(np.uint32).view(np.int32).astype(np.int64)
        self.chain = table["chain"].astype(np.int64)
        self.sequence = table["sequence"].astype(np.int64)
        self.device: NDArray[np.uint64] = np.zeros(len(payloads), dtype=np.uint64)
        self.sound: NDArray[np.bool_] = sized & (table["version"] == VERSION) & (table["sequence"] > 0)
