"""The report of a device, byte by byte. Fixtures in tests/shared keep the format unchanged.

===== ===== =======================================================================================
byte  field meaning (big-endian)
===== ===== =======================================================================================
0     u8    version, 2
1     u8    kind: 0 threshold cohort, 1 report, 2 stream
2-9   8 B   fingerprint of the campaign body, the first 8 bytes of its sha256
10-13 u32   slot = floor(unix seconds / slot length)
14-17 u32   symbol (kinds 0, 1), or i32 the released X_i (kind 2)
18-19 u16   chain index i >= 1 (kind 2), 0 otherwise
20-23 u32   sequence: how many reports the device's ledger has drawn for this sensor, this one included
24    i32   further coordinates of a d-dimensional stream, 4 bytes each (kind 2)
===== ===== =======================================================================================
"""

import struct

from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

VERSION = 2
COHORT = 0
REPORT = 1
STREAM = 2
LENGTH = 24
FINGERPRINT_BYTES = 8
LARGEST_DIMENSION = 8
LARGEST_RELEASE = 0x7FFFFFFF
_U32 = 0xFFFFFFFF


def pack(kind: int, fingerprint: bytes, slot: int, values: tuple[int, ...], sequence: int, chain: int = 0) -> bytes:
    """Encode a report. Raises Invalid for a field out of range (``struct`` on a board would wrap silently)."""
    check_integer("kind", kind, COHORT, STREAM)
    if not isinstance(fingerprint, (bytes, bytearray)) or len(fingerprint) != FINGERPRINT_BYTES:
        raise Invalid("fingerprint is %r, expected %d bytes" % (fingerprint, FINGERPRINT_BYTES))
    check_integer("slot", slot, 0, _U32)
    check_integer("sequence", sequence, 1, _U32)
    if kind != STREAM:
        check_integer("number of values", len(values), 1, 1)
        check_integer("symbol", values[0], 0, _U32)
        check_integer("chain index", chain, 0, 0)
        return struct.pack(">BB8sIIHI", VERSION, kind, fingerprint, slot, values[0], chain, sequence)
    check_integer("number of values", len(values), 1, LARGEST_DIMENSION)
    check_integer("chain index", chain, 1, 0xFFFF)
    for value in values:
        # Every i32 is accepted, as by the decoder, although a device's releases lie in a symmetric range.
        check_integer("released value", value, -LARGEST_RELEASE - 1, LARGEST_RELEASE)
    packed = struct.pack(">BB8sIiHI", VERSION, STREAM, fingerprint, slot, values[0], chain, sequence)
    for value in values[1:]:
        packed += struct.pack(">i", value)
    return packed


def fingerprint_of(report: bytes) -> bytes:
    """Return the fingerprint in a report's bytes."""
    return report[2:10]
