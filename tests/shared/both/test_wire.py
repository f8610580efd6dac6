"""Report, topics and cohort rule: the bytes that device and aggregator agree on, frozen."""

from undertone_shared import intake, issue, topics
from undertone_shared import report as reports
from undertone_shared.cohort import WHOLE, in_cohort
from undertone_shared.errors import Invalid
from undertone_shared.truncation import truncate

FINGERPRINT = b"\xa1\xb2\xc3\xd4"
# Whoever changes these changes what every device in the field sends.
FROZEN = (
    ((reports.COHORT, FINGERPRINT, 994314, (42,), 0), "0100a1b2c3d4000f2c0a0000002a0000"),
    ((reports.REPORT, FINGERPRINT, 994314, (1646,), 0), "0101a1b2c3d4000f2c0a0000066e0000"),
    ((reports.STREAM, FINGERPRINT, 994314, (-3,), 7), "0102a1b2c3d4000f2c0afffffffd0007"),
    ((reports.STREAM, FINGERPRINT, 0xFFFFFFFF, (1, -2, 3), 0xFFFF), "0102a1b2c3d4ffffffff00000001fffffffffffe00000003"),
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
        report = intake.unpack(payload)
        assert (report.kind, report.fingerprint, report.slot, report.values, report.chain) == fields


def test_fields_out_of_range_are_never_packed():
    good = (reports.REPORT, FINGERPRINT, 5, (1,), 0)
    for position, value, named in (
        (0, 3, "kind"),
        (0, -1, "kind"),
        (1, b"abc", "fingerprint"),
        (2, -1, "slot"),
        (2, 1 << 32, "slot"),
        (2, 1.0, "slot"),
        (2, True, "slot"),
        (3, (-1,), "symbol"),
        (3, (1 << 32,), "symbol"),
        (3, (1, 2), "number of values"),
        (4, 1, "chain index"),
    ):
        fields = list(good)
        fields[position] = value
        assert named in invalid(reports.pack, *fields)
    assert "released value" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, (1 << 31,), 1)
    assert "chain index" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, (1,), 0)
    assert "number of values" in invalid(reports.pack, reports.STREAM, FINGERPRINT, 5, tuple(range(9)), 1)


def test_reports_of_a_wrong_length_version_or_kind_are_refused():
    good = reports.pack(reports.REPORT, FINGERPRINT, 5, (1,))
    assert "15 bytes" in invalid(intake.unpack, good[:15])
    assert "0 bytes" in invalid(intake.unpack, b"")
    assert "20 bytes" in invalid(intake.unpack, good + b"1234")
    assert "version is 2" in invalid(intake.unpack, b"\x02" + good[1:])
    assert "kind is 9" in invalid(intake.unpack, b"\x01\x09" + good[2:])
    assert "chain index is 1" in invalid(intake.unpack, good[:15] + b"\x01")
    assert "chain index is 0" in invalid(intake.unpack, b"\x01\x02" + good[2:])


def test_topics():
    assert topics.config_topic("undertone/v1", "load") == "undertone/v1/load/config"
    assert topics.report_topic("undertone/v1", "load", "meter-1") == "undertone/v1/load/56/meter-1/report"
    assert issue.aggregate_topic("undertone/v1", "load", "mean") == "undertone/v1/load/aggregate/mean"
    assert intake.parse_report_topic("undertone/v1", "undertone/v1/load/56/meter-1/report") == ("load", 56, "meter-1")


def test_only_exact_topics_and_names_are_parsed():
    for topic in (
        "undertone/v1/load/56/meter-1/report/",
        "undertone/v1/load/56/meter-1",
        "undertone/v1/load/49/x/meter-1/report",
        "undertone/v2/load/56/meter-1/report",
        "undertone/v1/load/049/meter-1/report",
        "undertone/v1/load/64/meter-1/report",
        "undertone/v1/load/-1/meter-1/report",
        "undertone/v1/load//meter-1/report",
        "undertone/v1/load/1/METER/report",
        "undertone/v1/load/1/+/report",
        "undertone/v1/load/1/#/report",
        "undertone/v1/load/1/" + "m" * 33 + "/report",
    ):
        invalid(intake.parse_report_topic, "undertone/v1", topic)


def test_shards_cover_sixty_four():
    shards = {topics.shard("meter-%d" % i) for i in range(1000)}
    assert min(shards) == 0 and max(shards) == 63 and len(shards) == 64


def test_the_cohort_rule_is_frozen_and_its_share_is_kept():
    seed = bytes(range(16))
    assert [slot for slot in range(40) if in_cohort(seed, WHOLE // 8, slot, "meter-1")] == [9, 12, 18, 23, 26]
    assert not in_cohort(seed, 0, 1, "meter-1")
    assert in_cohort(seed, WHOLE, 1, "meter-1")


def test_truncation():
    assert [truncate(x, 0, 0, 10) for x in (-5, 0, 3, 10, 99)] == [0, 0, 3, 10, 10]
    assert [truncate(x, -50, 20, 60) for x in (-99, -30, 0, 10, 11)] == [0, 0, 30, 40, 40]
