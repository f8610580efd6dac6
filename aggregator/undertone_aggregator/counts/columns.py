"""Many reports at once, as arrays: decodes the bytes of `undertone_shared.report` without interpreting them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertone_shared.report import LENGTH, VERSION

# The layout of `undertone_shared.report`, for a report with one value. `value` is signed in streams only.
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


@dataclass
class Columns:
    """Fields [n] of n reports, as native integers of 64 bits.

    ``device``: the devices' keys. ``symbol``, ``released``: the value, read as unsigned and as signed.
    """

    kind: NDArray[Any]
    fingerprint: NDArray[np.uint64]
    slot: NDArray[np.int64]
    symbol: NDArray[np.int64]
    released: NDArray[np.int64]
    chain: NDArray[np.int64]
    sequence: NDArray[np.int64]
    device: NDArray[np.uint64]


def unpack(payloads: Sequence[bytes]) -> tuple[Columns, NDArray[np.bool_]]:
    """Return (the fields of payloads [n], a mask of the payloads that are reports). The caller must set ``device``.

    The mask excludes payloads of another length, among them reports of several coordinates, and those of another
    version or without a sequence number. The fields of excluded payloads are undefined.
    """
    if set(map(len, payloads)) == {LENGTH}:
        sized = np.ones(len(payloads), dtype=bool)
        data = b"".join(payloads)
    else:
        sized = np.fromiter(map(len, payloads), np.int64, len(payloads)) == LENGTH
        data = b"".join([payload if len(payload) == LENGTH else _BLANK for payload in payloads])
    table = np.frombuffer(data, _REPORT)
    columns = Columns(
        kind=table["kind"],
        fingerprint=table["fingerprint"].astype(np.uint64),
        slot=table["slot"].astype(np.int64),
        symbol=table["value"].astype(np.int64),
        released=table["value"].astype(np.uint32).view(np.int32).astype(np.int64),
        chain=table["chain"].astype(np.int64),
        sequence=table["sequence"].astype(np.int64),
        device=np.zeros(len(payloads), dtype=np.uint64),
    )
    return columns, sized & (table["version"] == VERSION) & (table["sequence"] > 0)
