"""Reports as their receiver reads them: topic and bytes. A board does not carry this module."""

import struct

from undertone_shared.errors import Invalid
from undertone_shared.report import COHORT, LARGEST_DIMENSION, LENGTH, STREAM, VERSION
from undertone_shared.topics import SHARDS, check_name


class Report:
    """A decoded report; ``values`` holds the symbol (kinds 0, 1) or the d coordinates of X_i (kind 2)."""

    def __init__(self, kind: int, fingerprint: bytes, slot: int, values: tuple[int, ...], sequence: int, chain: int):
        self.kind = kind
        self.fingerprint = fingerprint
        self.slot = slot
        self.values = values
        self.sequence = sequence
        self.chain = chain


def unpack(payload: bytes) -> Report:
    """The report in ``payload``. Raises Invalid for a wrong length, version, kind, chain index or sequence."""
    size = len(payload)
    if size < LENGTH or size % 4 or size > LENGTH + 4 * (LARGEST_DIMENSION - 1):
        raise Invalid("the report has %d bytes, expected %d" % (size, LENGTH))
    if payload[0] != VERSION:
        raise Invalid("the report's version is %d, expected %d" % (payload[0], VERSION))
    kind = payload[1]
    if kind == STREAM:
        _, _, fingerprint, slot, value, chain, sequence = struct.unpack(">BB8sIiHI", payload[:LENGTH])
        if chain < 1:
            raise Invalid("the chain index is 0, expected at least 1")
        further = [struct.unpack(">i", payload[i : i + 4])[0] for i in range(LENGTH, size, 4)]
        return _numbered(Report(kind, fingerprint, slot, tuple([value] + further), sequence, chain))
    if kind > STREAM:
        raise Invalid("the report's kind is %d, expected %d to %d" % (kind, COHORT, STREAM))
    if size != LENGTH:
        raise Invalid("the report has %d bytes, expected %d" % (size, LENGTH))
    _, _, fingerprint, slot, value, chain, sequence = struct.unpack(">BB8sIIHI", payload)
    if chain:
        raise Invalid("the chain index is %d, expected 0" % chain)
    return _numbered(Report(kind, fingerprint, slot, (value,), sequence, chain))


def _numbered(report: Report) -> Report:
    if report.sequence < 1:
        raise Invalid("the sequence is 0, expected at least 1")
    return report


def parse_report_topic(prefix: str, topic: str) -> tuple[str, int, str]:
    """(campaign, shard, device) of a report topic; the shard is as written, not checked against the device.

    Raises Invalid unless the levels are exactly those of ``report_topic``.
    """
    if not topic.startswith(prefix + "/"):
        raise Invalid("topic %r, expected it to start with %s/" % (topic, prefix))
    levels = topic[len(prefix) + 1 :].split("/")
    if len(levels) != 4 or levels[3] != "report":
        raise Invalid("topic %r, expected %s/<campaign>/<shard>/<device>/report" % (topic, prefix))
    check_name("campaign", levels[0])
    check_name("device", levels[2])
    number = levels[1]
    for digit in number:
        if digit not in "0123456789":
            raise Invalid("shard is %r, expected 0 to %d" % (number, SHARDS - 1))
    if not 1 <= len(number) <= 2 or str(int(number)) != number or int(number) >= SHARDS:
        raise Invalid("shard is %r, expected 0 to %d" % (number, SHARDS - 1))
    return levels[0], int(number), levels[2]
