"""Campaign and policy are parsed strictly: one clear sentence for anything that does not fit."""

import json

from frozen import FROZEN, FROZEN_STREAM, STREAM_POLICY, policy
from stream_fields import gaussian

from undertone_shared import campaign as campaigns
from undertone_shared.campaign import Campaign
from undertone_shared.errors import Invalid, Refused
from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.notation import parse_mechanism
from undertone_shared.off_board import issue
from undertone_shared.policy import parse_policy
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule
from undertone_shared.table import TableMechanism

# The digest that is signed for the frozen campaign.
DIGEST = bytes.fromhex("7dd1cb35e972c4b52417bbfcd0e18a21e2660545f9738eeee9c57762ff04d58d")


def invalid(function, *arguments):
    try:
        function(*arguments)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted")


def changed(path, value):
    """The frozen campaign with one field, given by its path, set to ``value``. The value ... removes the field."""
    fields = json.loads(FROZEN)
    inner = fields
    for name in path[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return canonical(fields)


def canonical(fields):
    """The body with these fields, in canonical form."""
    pieces = []
    campaigns.write_canonical(fields, pieces.append)
    return b"".join(pieces)


def table():
    rows = ((200, 56), (128, 128), (56, 200))
    packed = [b"".join(weight.to_bytes(3, "big") for weight in row) for row in rows]
    return TableMechanism(8, packed, (-4, 80, 200), 1)


def test_a_built_campaign_has_the_frozen_bytes():
    sw = WindowMechanism(2, 1, 3, 1, 3, (0, 100, 200, 500, 1000))
    hm = Hybrid(20000, WindowMechanism(2, 1, 1, 1, 1), WindowMechanism(2, 1, 3, 2, 16, None, 2))
    campaign = issue.build(
        name="load",
        sensor="energy",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=1000,
        slot_seconds=1800,
        cycle=48,
        epoch=1793491200,
        last_slot=999999,
        default=0,
        cohort=Cohort(sw),
        report=ReportRule(0, 300, hm),
        schedule=Schedule(bytes(range(16)), 1, 19),
    )
    assert campaign.body == FROZEN
    assert campaign.fingerprint == bytes.fromhex("0fd1bca4a2c9b1e2")
    message = issue.pack(campaign, 1793491000, lambda digest: digest + bytes(32))
    assert message[:12] == b"UTC2" + bytes.fromhex("6ae68038") + len(FROZEN).to_bytes(4, "big")
    assert (bytes(campaigns.body_of(message)), message[-64:]) == (FROZEN, campaigns.signature_of(message))
    assert campaigns.signature_of(message)[:32] == campaigns.digest_of(FROZEN) == DIGEST
    assert campaigns.signature_of(issue.pack(campaign, 5)) == bytes(64)
    assert campaigns.header(message) == (1793491000, campaign.fingerprint)
    assert campaign.first_slot * 1800 == campaign.epoch and campaign.end == 1000000 * 1800


def test_the_frozen_stream_campaign_is_what_build_writes():
    campaign = issue.build(
        name="load",
        sensor="energy",
        unit="Wh",
        measure="sum",
        offset=0,
        bound=1000,
        slot_seconds=1800,
        cycle=48,
        epoch=1793491200,
        last_slot=999999,
        default=0,
        cohort=None,
        report=None,
        stream=gaussian(),
    )
    assert campaign.body == FROZEN_STREAM
    read = campaigns.Campaign(FROZEN_STREAM)
    assert read.rule.describe() == gaussian().describe()
    assert read.report is None
    assert read.cohort is None
    assert (read.rule.kind, campaigns.Campaign(FROZEN).rule.kind) == ("stream", "scalar")


def test_a_stream_is_refused_unless_the_policy_allows_it():
    campaign = campaigns.Campaign(FROZEN_STREAM)
    duration = campaign.end - campaign.epoch
    cost = campaign.rule.charge()
    offers = (
        ("stream", None, {}),
        ("stream", {"laws": ["one-bit"]}, {}),
        ("stream", {"dimension": 2}, {}),
        ("rho", {"rho": cost - 1}, {}),
        ("rho", {"rho": cost, "period_seconds": 7 * 86400}, {}),
        ("theta", {}, {"theta": [1, 299]}),
        (None, {"rho": cost}, {}),
        (None, {"rho": 7 * cost, "period_seconds": 7 * 86400}, {}),
    )
    for reason, changes, others in offers:
        fields = dict(others)
        fields["duration_seconds"] = duration
        if changes is not None:
            fields["stream"] = dict(STREAM_POLICY)
            fields["stream"].update(changes)
        try:
            parse_policy(policy(**fields)).check_campaign(campaign)
            refusal = None
        except Refused as refused:
            refusal = refused.reason
        assert refusal == reason, (refusal, changes)


def test_a_stream_campaign_takes_no_turns_and_has_no_cohort():
    for stride, cohort_stride in ((5, 0), (1, 5), (5, 7)):
        fields = json.loads(FROZEN_STREAM)
        fields["schedule"].update({"stride": stride, "cohort_stride": cohort_stride})
        expected = "stride and cohort_stride are %d and %d, expected 1 and 0 in a stream campaign" % (
            stride,
            cohort_stride,
        )
        assert expected in invalid(Campaign, canonical(fields))


def test_a_stream_campaign_has_no_cohort():
    assert "cohort is {}" in invalid(Campaign, FROZEN_STREAM.replace(b'"cohort":null', b'"cohort":{}'))


def test_every_mechanism_is_read_back_as_it_was_written():
    for mechanism in (
        WindowMechanism(3, 2, 5, 2, 7),
        WindowMechanism(3, 2, 5, 1, 3, (-5, 0, 1, 7, 90)),
        Hybrid(65536, WindowMechanism(3, 2, 1, 1, 1), WindowMechanism(3, 2, 5, 2, 7, None, 2)),
        table(),
    ):
        text = json.dumps(mechanism.describe())
        again = parse_mechanism("mechanism", json.loads(text))
        assert again.certificate() == mechanism.certificate()
        assert [again.weights(k) for k in range(again.levels + 1)] == [
            mechanism.weights(k) for k in range(mechanism.levels + 1)
        ]
        assert again.edges == mechanism.edges


def test_each_field_that_does_not_fit_is_named():
    for path, value, named in (
        (["version"], 1, "version is 1"),
        (["campaign"], "Load", "campaign is 'Load'"),
        (["campaign"], ..., "no field 'campaign'"),
        (["sensor"], 5, "sensor is 5"),
        (["unit"], "x" * 17, "unit"),
        (["unit"], "W\u202eh", "unit has the character U+202E"),
        (["unit"], "W\u200fh", "unit has the character U+200F"),
        (["unit"], "\x85", "unit has the character U+0085"),
        (["measure"], "median", "measure is 'median'"),
        (["bound"], 0, "bound is 0"),
        (["offset"], None, "offset is None"),
        (["slot_seconds"], 0, "slot_seconds is 0"),
        (["epoch"], 1793491201, "epoch is 1793491201"),
        (["epoch"], -1800, "epoch is -1800"),
        (["last_slot"], 5, "last_slot is 5"),
        (["default"], 1001, "default is 1001"),
        (["cohort"], None, "cohort has kind None"),
        (["cohort"], {"kind": "laplace"}, "cohort has kind 'laplace'"),
        (["cohort"], {"kind": "window", "a": 2, "b": 1, "window": 1, "stride": 1, "levels": 1}, "not a square-wave"),
        (["cohort", "a"], 1, "a is 1"),
        (["cohort", "b"], 0, "b is 0"),
        (["cohort", "edges"], [0, 5, 5, 9], "edges[2] is 5"),
        (["cohort", "edges"], list(range(258)), "edges is not a list of 3 to 257"),
        (["schedule"], None, "schedule is None"),
        (["schedule", "seed"], "00", "schedule.seed"),
        (["schedule", "seed"], "zz" * 16, "schedule.seed is 'zz"),
        (["schedule", "seed"], 5, "schedule.seed is 5"),
        (["schedule", "stride"], 0, "schedule.stride is 0"),
        (["schedule", "stride"], 6, "schedule.stride is 6, expected no divisor in common with the cycle 48"),
        (["schedule", "cohort_stride"], 20, "schedule.cohort_stride is 20, expected no divisor in common"),
        (["schedule", "cohort_stride"], ..., "schedule has no field 'cohort_stride'"),
        (["rule"], None, "rule has kind None"),
        (["rule", "kind"], "turns", "rule has kind 'turns', expected one of scalar, stream"),
        (["rule", "kind"], ["scalar"], "rule has kind ['scalar']"),
        (["rule"], {"kind": "scalar", "mechanism": None, "ranges": []}, "schedule.cohort_stride is 19, expected 1"),
        (["rule", "mechanism"], None, "expected blocks if there is a mechanism, else none"),
        (["rule", "ranges"], [], "rule.ranges is [], expected blocks if there is a mechanism"),
        (["rule", "ranges"], 5, "rule.ranges is 5"),
        (["rule", "ranges"], [[0, 0, 0]], "a theta in rule.ranges is 0"),
        (["rule", "ranges"], [[0, 0, 1001]], "theta up to the bound 1000"),
        (["rule", "ranges"], [[0, 300, 300]], "a theta in rule.ranges is 300"),
        (["rule", "ranges"], [[1, 0, 300]], "expected slots from 0"),
        (["rule", "ranges"], [[0, 0, 300], [48, 0, 300]], "to below 48"),
        (["rule", "ranges"], [[0, 0, 300], [5, 0, 300], [5, 0, 300]], "a first slot in rule.ranges is 5"),
        (["rule", "ranges"], [[0, 0, 300]] * 9, "the number of rule.ranges is 9"),
        (["rule", "mechanism", "coin"], 65537, "coin is 65537"),
        (["rule", "mechanism", "piecewise"], [2, 1, 3, 2], "piecewise is not a list of 5"),
        (["rule", "mechanism", "piecewise"], [1 << 29, 1, 3, 2, 16], "total weight"),
        (["surplus"], 1, "unknown field 'surplus'"),
    ):
        message = invalid(Campaign, changed(path, value))
        assert named in message, (named, message)


def test_each_slot_of_the_cycle_has_its_block():
    rule = Campaign(changed(["rule", "ranges"], [[0, 0, 300], [12, 100, 400], [40, 0, 200]])).rule.report
    assert [rule.range_of(48 * 9 + at, 48) for at in (0, 11, 12, 39, 40, 47)] == [
        (0, 300), (0, 300), (100, 400), (100, 400), (0, 200), (0, 200),
    ]  # fmt: skip


def test_a_policy_checks_every_block():
    campaign = Campaign(changed(["rule", "ranges"], [[0, 0, 300], [12, 0, 400]]))
    duration = campaign.end - campaign.epoch
    parse_policy(policy(duration_seconds=duration, theta=[1, 400])).check_campaign(campaign)
    for theta in ([1, 399], [301, 400]):
        try:
            parse_policy(policy(duration_seconds=duration, theta=theta)).check_campaign(campaign)
        except Refused as refused:
            assert refused.reason == "theta"
        else:
            raise AssertionError(theta)


def test_a_body_that_is_not_canonical_is_refused():
    same = (
        FROZEN + b" ",
        b" " + FROZEN,
        FROZEN.replace(b":1000", b": 1000"),
        FROZEN.replace(b",", b",\n", 1),
        FROZEN.replace(b":0,", b":-0,", 1),
        FROZEN.replace(b":1000", b":1e3", 1),
        FROZEN.replace(b":1000", b":1000.0", 1),
        FROZEN.replace(b"load", b"\\u006coad"),
        FROZEN.replace(b'"campaign":"load"', b'"campaign":"other","campaign":"load"'),
        b'{"version":2,' + FROZEN[1:].replace(b',"version":2', b""),
        FROZEN.replace(b'"unit":"Wh"', b'"unit":"\\""'),
    )
    for body in same:
        json.loads(body)
        assert "not canonical" in invalid(Campaign, body), body
    assert Campaign(FROZEN.replace(b"Wh", "°C".encode())).unit == "°C"


def test_bodies_that_are_no_json_object_are_refused():
    for body in (b"", b"[]", b"7", b"null", b"{", FROZEN[:-1], b"\xff\xfe", b"[" * 9000, FROZEN + b" " * 12288):
        invalid(Campaign, body)
    # The parsers of boards take these for objects that they cannot sort or store.
    for body in (b'{1:2,"a":3}', b'{"a":{null:1,"b":2}}', b"{[1]:2}", b'{"a":{{}:1}}'):
        invalid(Campaign, body)


def test_tables_that_do_not_sum_or_cover_are_refused():
    description = table().describe()
    rows = description["rows"]
    good = changed(["rule", "mechanism"], description)
    # The mechanism's levels reach 100, so readings up to 300 are scaled.
    mechanism = Campaign(good).report.mechanism
    assert (mechanism.reach, mechanism.covers(300)) == (100, True)
    fields = json.loads(good)
    fields["rule"]["mechanism"]["values"] = [-4, -3, 1]
    assert "does not cover" in invalid(Campaign, canonical(fields))
    for name, value, named in (
        ("rows", rows[:2], "the table has 2 rows"),
        ("rows", rows[:2] + [rows[2] + "AAAB"], "row 2 of the table has 9 bytes"),
        ("rows", rows[:2] + [rows[2][:-4] + "AAAA"], "row 2, column 1 is 0"),
        ("rows", rows[:2] + [rows[2][:-4] + "AADJ"], "row 2 of the table sums to 257"),
        ("rows", rows[:2] + [rows[2][:-1] + "!"], "rows[2] is not plain base64"),
        ("rows", rows[:2] + [rows[2][:-4] + "AA=="], "row 2 of the table has 4 bytes"),
        ("rows", rows[:2] + ["A" * 6604], "rows have more than 6600 characters"),
        ("rows", rows[:2] + [7], "rows[2] is not plain base64"),
        ("rows", rows[:2] + [""], "rows[2] is not plain base64"),
        ("rows", "".join(rows), "rows is not a list"),
        ("values", [-4, 80, 80], "level value 2 is 80"),
        ("values", [4, 80, 200], "level value 0 is 4"),
        ("values", [0, 80, (1 << 20) + 1], "level value 2"),
        ("bits", 25, "bits is 25"),
    ):
        fields["rule"]["mechanism"] = dict(description)
        fields["rule"]["mechanism"][name] = value
        message = invalid(Campaign, canonical(fields))
        assert named in message, (named, message)


def test_a_policy_has_safe_defaults():
    parsed = parse_policy(policy())
    assert (parsed.reports_per_period, parsed.period_seconds, parsed.boots_per_day) == (48, 86400, 4)
    assert parsed.lead_seconds == 86400
    assert parsed.insecure and not parsed.signers and not parsed.one_shot and parsed.epoch_seconds == 0


def test_each_policy_field_that_does_not_fit_is_named():
    for changes, named in (
        ({"cap": [1, 2]}, "cap's numerator is 1"),
        ({"cap": 2.718}, "cap is 2.718"),
        ({"cap": [2, 0]}, "cap's denominator is 0"),
        ({"measures": []}, "measures is []"),
        ({"measures": ["median"]}, "measures is ['median']"),
        ({"theta": [9, 5]}, "theta[1] is 5"),
        ({"theta": 5}, "theta is 5"),
        ({"slot_seconds": 0}, "slot_seconds is 0"),
        ({"insecure": 1}, "insecure is 1"),
        ({"insecure": False}, "signers is (), expected 1 to 4"),
        ({"signers": [], "insecure": False}, "signers is [], expected 1 to 4"),
        ({"signers": ["00" * 32] * 5}, "expected 1 to 4"),
        ({"signers": "00" * 32}, "signers is '00"),
        ({"signers": ["00" * 31]}, "signers is ['00"),
        ({"signers": ["zz" * 32]}, "signers is ['zz"),
        ({"signers": [7]}, "signers is [7]"),
        ({"signers": 7}, "signers is 7"),
        ({"lead_seconds": 0}, "lead_seconds is 0"),
        ({"boots_per_day": -1}, "boots_per_day is -1"),
        ({"epsilon": 9}, "unknown field 'epsilon'"),
        ({"version": 2}, "version is 2"),
        ({"sensor": None}, "sensor is None"),
        ({"stream": {"rho": 1, "period_seconds": 1, "lifetime": -1}}, "stream.lifetime is -1"),
    ):
        message = invalid(parse_policy, policy(**changes))
        assert named in message, (named, message)
    for data in (b"", b"[]", b"null", b"\xff", b"{" * 5000, b"{}"):
        invalid(parse_policy, data)


def test_the_ends_of_what_a_campaign_may_say():
    # The bound 1 allows no theta above 1. The last slot ends before a second that 32 bits cannot hold.
    binary = changed(["bound"], 1)
    assert "expected slots from 0 to below 48 and theta up to the bound 1" in invalid(Campaign, binary)
    last = 0xFFFFFFFF // 1800 - 1
    assert Campaign(changed(["last_slot"], last)).last_slot == last
    assert "last_slot is %d" % (last + 1) in invalid(Campaign, changed(["last_slot"], last + 1))


def test_a_message_has_one_to_12288_bytes_of_body():
    for size in (1, 12288):
        message = campaigns.MAGIC + (5).to_bytes(4, "big") + size.to_bytes(4, "big") + bytes(size + 64)
        assert campaigns.header(message)[0] == 5
    for size in (0, 12289):
        message = campaigns.MAGIC + (5).to_bytes(4, "big") + size.to_bytes(4, "big") + bytes(size + 64)
        assert "has %d bytes, expected 77 to 12364" % len(message) in invalid(campaigns.header, message)


def test_a_message_says_how_long_its_body_is():
    for said in (0, 6, 8, 7 << 8):
        message = campaigns.MAGIC + (5).to_bytes(4, "big") + said.to_bytes(4, "big") + bytes(7 + 64)
        assert "length field is %d, which does not fit its 83 bytes" % said in invalid(campaigns.header, message)


def test_what_follows_the_signature_is_no_part_of_the_campaign():
    campaign = Campaign(FROZEN)
    message = issue.pack(campaign, 5, lambda digest: b"s" * 64, b"a hand-over" * 6)
    assert campaigns.header(message) == (5, campaign.fingerprint)
    assert bytes(campaigns.body_of(message)) == FROZEN
    assert campaigns.signature_of(message) == b"s" * 64
    assert bytes(campaigns.handover_of(message)) == b"a hand-over" * 6
    assert bytes(campaigns.handover_of(message[:-66])) == b""


def with_fields(**changes):
    fields = json.loads(FROZEN)
    for name in changes:
        fields[name] = changes[name]
    return canonical(fields)


def test_numbers_of_a_campaign_up_to_their_limits_and_no_further():
    largest, week = (1 << 30) - 1, 7 * 86400
    for name, value, others in (
        ("offset", largest, {"default": largest}),
        ("offset", -largest, {"default": 1000 - largest}),
        ("bound", largest, {}),
        ("slot_seconds", week, {"epoch": 2000 * week, "last_slot": 2000}),
        ("slot_seconds", 1, {"last_slot": 1793491200}),
        ("cycle", 1 << 20, {}),
        ("cycle", 1, {}),
        ("epoch", 0, {"last_slot": 0}),
        ("last_slot", 0xFFFFFFFE, {"slot_seconds": 1}),
        ("default", 1000, {}),
        ("unit", "x" * 16, {}),
        ("unit", "", {}),
    ):
        fields = dict(others)
        fields[name] = value
        assert getattr(Campaign(with_fields(**fields)), name) == value, name
    for name, value, others in (
        ("offset", largest + 1, {"default": largest + 1}),
        ("offset", -largest - 1, {"default": -largest}),
        ("bound", largest + 1, {}),
        ("slot_seconds", week + 1, {"epoch": 2000 * (week + 1), "last_slot": 2000}),
        ("cycle", (1 << 20) + 1, {}),
        ("cycle", 0, {}),
        ("last_slot", 0xFFFFFFFF, {"slot_seconds": 1}),
        ("last_slot", 1793491200 // 1800 - 1, {}),
        ("default", -1, {}),
    ):
        fields = dict(others)
        fields[name] = value
        assert "%s is %d" % (name, value) in invalid(Campaign, with_fields(**fields)), name
    assert "not JSON" in invalid(Campaign, b"?" * 12288)
    assert "12289 bytes" in invalid(Campaign, b"?" * 12289)
    assert "a block of rule.ranges" in invalid(Campaign, changed(["rule", "ranges"], [[0, 0, 300, 1]]))
    assert "theta up to the bound 1000" in invalid(
        Campaign, changed(["rule", "ranges"], [[0, 0, 300], [5, 0, 1001], [9, 0, 300]])
    )
