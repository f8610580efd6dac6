"""Decoding of reports by their receiver. A board does not carry this module."""

import struct

from undertone_shared.errors import Invalid
from undertone_shared.report import COHORT, LARGEST_DIMENSION, LENGTH, STREAM, VERSION


class Report:
    """A decoded report; ``values`` contains the symbol or, in a report of a stream (kind 2), d coordinates.

    The fields are described in `undertone_shared.report`.
    """

    def __init__(self, kind: int, fingerprint: bytes, slot: int, values: tuple[int, ...], sequence: int, chain: int):
        self.kind = kind
        self.fingerprint = fingerprint
        self.slot = slot
        self.values = values
        self.sequence = sequence
        self.chain = chain


def unpack(payload: bytes) -> Report:
    """Decode the report in ``payload``. Raises Invalid for a wrong length, version, kind, chain index or sequence."""
    size = len(payload)
    if size < LENGTH or size % 4 or size > LENGTH + 4 * (LARGEST_DIMENSION - 1):
        most = LENGTH + 4 * (LARGEST_DIMENSION - 1)
        raise Invalid("the report has %d bytes, expected a multiple of 4 from %d to %d" % (size, LENGTH, most))
    if payload[0] != VERSION:
        raise Invalid("the report's version is %d, expected %d" % (payload[0], VERSION))
    kind = payload[1]
    if kind == STREAM:
        _, _, fingerprint, slot, value, chain, sequence = struct.unpack(">BB8sIiHI", payload[:LENGTH])
        if chain < 1:
            raise Invalid("the report's chain index is 0, expected at least 1")
        further = [struct.unpack(">i", payload[i : i + 4])[0] for i in range(LENGTH, size, 4)]
        return _numbered(Report(kind, fingerprint, slot, tuple([value] + further), sequence, chain))
    if kind > STREAM:
        raise Invalid("the report's kind is %d, expected %d to %d" % (kind, COHORT, STREAM))
    if size != LENGTH:
        raise Invalid("the report has %d bytes, expected %d in a report of kind %d" % (size, LENGTH, kind))
    _, _, fingerprint, slot, value, chain, sequence = struct.unpack(">BB8sIIHI", payload)
    if chain:
        raise Invalid("the report's chain index is %d, expected 0" % chain)
    return _numbered(Report(kind, fingerprint, slot, (value,), sequence, chain))


def _numbered(report: Report) -> Report:
    if report.sequence < 1:
        raise Invalid("the report's sequence is 0, expected at least 1")
    return report
