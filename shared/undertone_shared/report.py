"""The report: what a device releases, byte by byte. Frozen by the fixtures in tests/shared.

==== ===== =======================================================================================
byte field meaning (big-endian)
==== ===== =======================================================================================
0    u8    version, 1
1    u8    kind: 0 threshold cohort, 1 report, 2 stream
2-5  4 B   fingerprint of the campaign body, the first 4 bytes of its sha256
6-9  u32   slot = floor(unix seconds / slot length)
10   u32   symbol (kinds 0, 1), or i32 the released X_i (kind 2)
14   u16   chain index i >= 1 (kind 2), 0 otherwise
16   i32   further coordinates of a d-dimensional stream, 4 bytes each (kind 2)
==== ===== =======================================================================================
"""

import struct

from undertone_shared.errors import Invalid
from undertone_shared.mechanism import check_integer

VERSION = 1
COHORT = 0
REPORT = 1
STREAM = 2
LENGTH = 16
LARGEST_DIMENSION = 8
_U32 = 0xFFFFFFFF


class Report:
    """A decoded report; ``values`` holds the symbol (kinds 0, 1) or the d coordinates of X_i (kind 2)."""

    def __init__(self, kind: int, fingerprint: bytes, slot: int, values: tuple[int, ...], chain: int):
        self.kind = kind
        self.fingerprint = fingerprint
        self.slot = slot
        self.values = values
        self.chain = chain


def pack(kind: int, fingerprint: bytes, slot: int, values: tuple[int, ...], chain: int = 0) -> bytes:
    """The report's bytes. Raises Invalid for a field out of range (``struct`` on a board would wrap silently)."""
    check_integer("kind", kind, COHORT, STREAM)
    if not isinstance(fingerprint, (bytes, bytearray)) or len(fingerprint) != 4:
        raise Invalid("fingerprint is %r, expected 4 bytes" % (fingerprint,))
    check_integer("slot", slot, 0, _U32)
    if kind != STREAM:
        check_integer("number of values", len(values), 1, 1)
        check_integer("symbol", values[0], 0, _U32)
        check_integer("chain index", chain, 0, 0)
        return struct.pack(">BB4sIIH", VERSION, kind, fingerprint, slot, values[0], chain)
    check_integer("number of values", len(values), 1, LARGEST_DIMENSION)
    check_integer("chain index", chain, 1, 0xFFFF)
    for value in values:
        check_integer("released value", value, -0x7FFFFFFF, 0x7FFFFFFF)
    packed = struct.pack(">BB4sIiH", VERSION, kind, fingerprint, slot, values[0], chain)
    for value in values[1:]:
        packed += struct.pack(">i", value)
    return packed


def unpack(payload: bytes) -> Report:
    """The report in ``payload``. Raises Invalid for a wrong length, version, kind or chain index."""
    size = len(payload)
    if size < LENGTH or size % 4 or size > LENGTH + 4 * (LARGEST_DIMENSION - 1):
        raise Invalid("the report has %d bytes, expected %d" % (size, LENGTH))
    if payload[0] != VERSION:
        raise Invalid("the report's version is %d, expected %d" % (payload[0], VERSION))
    kind = payload[1]
    if kind == STREAM:
        _, _, fingerprint, slot, value, chain = struct.unpack(">BB4sIiH", payload[:LENGTH])
        if chain < 1:
            raise Invalid("the chain index is 0, expected at least 1")
        further = [struct.unpack(">i", payload[i : i + 4])[0] for i in range(LENGTH, size, 4)]
        return Report(kind, fingerprint, slot, tuple([value] + further), chain)
    if kind > STREAM:
        raise Invalid("the report's kind is %d, expected %d to %d" % (kind, COHORT, STREAM))
    if size != LENGTH:
        raise Invalid("the report has %d bytes, expected %d" % (size, LENGTH))
    _, _, fingerprint, slot, value, chain = struct.unpack(">BB4sIIH", payload)
    if chain:
        raise Invalid("the chain index is %d, expected 0" % chain)
    return Report(kind, fingerprint, slot, (value,), chain)
