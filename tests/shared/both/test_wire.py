"""Reports, topics and the cohort rule: the bytes on which device and server agree never change."""

from undertone_shared import report as reports
from undertone_shared import topics
from undertone_shared.errors import Invalid
from undertone_shared.off_board import intake, issue
from undertone_shared.scalar import truncate

FINGERPRINT = b"\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"
# Whoever changes these bytes changes what all devices in the field send.
FROZEN = (
    ((reports.COHORT, FINGERPRINT, 994314, (42,), 1, 0), "0200a1b2c3d4e5f60718000f2c0a0000002a000000000001"),
    ((reports.REPORT, FINGERPRINT, 994314, (1646,), 70000, 0), "0201a1b2c3d4e5f60718000f2c0a0000066e000000011170"),
    ((reports.STREAM, FINGERPRINT, 994314, (-3,), 12, 7), "0202a1b2c3d4e5f60718000f2c0afffffffd00070000000c"),
    (
        (reports.STREAM, FINGERPRINT, 0xFFFFFFFF, (1, -2, 3), 0xFFFFFFFF, 0xFFFF),
        "0202a1b2c3d4e5f60718ffffffff00000001ffffffffffff" + "fffffffe00000003",
    ),
)


def invalid(function, *arguments):
    try:
        function(*arguments)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted %r" % (arguments,))


def test_reports_have_the_frozen_bytes():
    for fields, expected in FROZEN:
        payload = reports.pack(*fields)
        assert payload == bytes.fromhex(expected)
        assert reports.fingerprint_of(payload) == FINGERPRINT
        report = intake.unpack(payload)
        assert (report.kind, report.fingerprint, report.slot, report.values, report.sequence, report.chain) == fields


def test_fields_out_of_range_are_never_packed():
    good = (reports.REPORT, FINGERPRINT, 5, (1,), 1, 0)
    for position, value, named in (
        (0, 3, "kind"),
        (0, -1, "kind"),
        (1, b"abcd", "fingerprint"),
        (2, -1, "slot"),
        (2, 1 << 32, "slot"),
        (2, 1.0, "slot"),
        (2, True, "slot"),
        (3, (-1,), "symbol"),
        (3, (1 << 32,), "symbol"),
        (3, (1, 2), "number of values"),
        (4, 0, "sequence"),
        (4, 1 << 32, "sequence"),
        (5, 1, "chain index"),
    ):
        fields = list(good)
        fields[position] = value
        assert named in invalid(reports.pack, *fields)
    assert "released value" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, (1 << 31,), 1, 1)
    assert intake.unpack(reports.pack(reports.STREAM, FINGERPRINT, 5, (-(1 << 31),), 1, 1)).values == (-(1 << 31),)
    assert "chain index" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, (1,), 1, 0)
    assert "number of values" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, tuple(range(9)), 1, 1)


def test_reports_of_a_wrong_length_version_or_kind_are_refused():
    good = reports.pack(reports.REPORT, FINGERPRINT, 5, (1,), 1)
    assert "23 bytes" in invalid(intake.unpack, good[:23])
    assert "0 bytes" in invalid(intake.unpack, b"")
    assert "28 bytes" in invalid(intake.unpack, good + b"1234")
    most = reports.pack(reports.STREAM, FINGERPRINT, 5, (1,) * reports.LARGEST_DIMENSION, 1, 1)
    assert len(intake.unpack(most).values) == reports.LARGEST_DIMENSION
    for further in (4, 8, 12):
        assert "%d bytes" % (len(most) + further) in invalid(intake.unpack, most + bytes(further))
    assert "version is 1" in invalid(intake.unpack, b"\x01" + good[1:])
    assert "kind is 9" in invalid(intake.unpack, b"\x02\x09" + good[2:])
    assert "chain index is 1" in invalid(intake.unpack, good[:19] + b"\x01" + good[20:])
    assert "chain index is 0" in invalid(intake.unpack, b"\x02\x02" + good[2:])
    assert "sequence is 0" in invalid(intake.unpack, good[:20] + bytes(4))


def test_topics():
    assert topics.config_topic("undertone/v2", "load") == "undertone/v2/load/config"
    assert topics.report_topic("undertone/v2", "load", "meter-1") == "undertone/v2/load/56/meter-1/report"
    assert issue.aggregate_topic("undertone/v2", "load", "mean") == "undertone/v2/load/aggregate/mean"


def test_shards_cover_sixty_four():
    shards = {topics.shard("meter-%d" % i) for i in range(1000)}
    assert min(shards) == 0 and max(shards) == 63 and len(shards) == 64


def test_truncation():
    assert [truncate(x, 0, 0, 10) for x in (-5, 0, 3, 10, 99)] == [0, 0, 3, 10, 10]
    assert [truncate(x, -50, 20, 60) for x in (-99, -30, 0, 10, 11)] == [0, 0, 30, 40, 40]


def test_fields_are_packed_up_to_their_limits_and_no_further():
    for kind, slot, values, sequence, chain in (
        (reports.REPORT, 0, (0,), 1, 0),
        (reports.COHORT, 0xFFFFFFFF, (0xFFFFFFFF,), 0xFFFFFFFF, 0),
        (reports.STREAM, 0, (-0x80000000,), 1, 1),
        (reports.STREAM, 0, (0x7FFFFFFF,) * 8, 1, 0xFFFF),
    ):
        report = intake.unpack(reports.pack(kind, FINGERPRINT, slot, values, sequence, chain))
        assert (report.kind, report.slot, report.values, report.sequence, report.chain) == (
            kind, slot, values, sequence, chain,
        )  # fmt: skip
    for named, kind, values, chain in (
        ("chain index is 65536", reports.STREAM, (1,), 0x10000),
        ("chain index is 0", reports.STREAM, (1,), 0),
        ("chain index is 1", reports.REPORT, (1,), 1),
        ("released value is -2147483649", reports.STREAM, (-0x80000001,), 1),
        ("released value is 2147483648", reports.STREAM, (1, 0x80000000), 1),
        ("number of values is 9", reports.STREAM, (1,) * 9, 1),
        ("number of values is 0", reports.STREAM, (), 1),
        ("number of values is 2", reports.REPORT, (1, 2), 0),
    ):
        assert named in invalid(reports.pack, kind, FINGERPRINT, 5, values, 1, chain)
