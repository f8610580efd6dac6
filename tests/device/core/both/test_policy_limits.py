"""The largest and least values that a policy accepts, the first ones that it refuses, and the values by default."""

import json

from rig import DAY, SLOT, START, make_campaign, make_policy

from undertone_shared.errors import Invalid, Refused
from undertone_shared.policy import parse_policy
from undertone_shared.stream_policy import StreamPolicy

YEAR = 366 * DAY
LIMITS = (
    ("slot_seconds", 1, 7 * DAY),
    ("boots_per_day", 1, 1000),
    ("reports_per_period", 1, 1 << 24),
    ("duration_seconds", 1, 100 * YEAR),
    ("period_seconds", 1, YEAR),
    ("rest_seconds", 0, 6 * DAY),
    ("lifetime", 0, 1 << 62),
    ("epoch_seconds", 0, YEAR),
    ("write_seconds", 1, DAY),
    ("lead_seconds", 1, YEAR),
)
NEEDED = {
    "version": 1,
    "sensor": "energy",
    "measures": ["sum"],
    "cap": [2, 1],
    "slot_seconds": SLOT,
    "theta": [1, 1000],
    "duration_seconds": DAY,
    "signers": ["00" * 32],
}


def refused(**changes):
    try:
        make_policy(**changes)
    except Invalid:
        return True
    return False


def reason(policy, campaign):
    """Why the policy refuses the campaign, None if it does not."""
    try:
        policy.check_campaign(campaign)
    except Refused as refusal:
        return refusal.reason
    return None


def test_numbers_up_to_their_limits_and_no_further():
    for name, least, most in LIMITS:
        for value in (least, most):
            assert getattr(make_policy(**{name: value}), name) == value
        assert refused(**{name: least - 1}), name
        assert refused(**{name: most + 1}), name


def test_what_the_owner_left_out():
    policy = parse_policy(json.dumps(NEEDED).encode())
    assert (policy.period_seconds, policy.reports_per_period, policy.boots_per_day) == (DAY, 48, 4)
    assert (policy.rest_seconds, policy.rest_by, policy.lifetime, policy.epoch_seconds) == (0, "ticks", 0, 0)
    assert (policy.write_seconds, policy.lead_seconds, policy.one_shot, policy.insecure) == (60, DAY, False, False)
    assert policy.stream is None


def test_every_field_that_is_needed_is_missed():
    for name in NEEDED:
        fields = dict(NEEDED)
        del fields[name]
        try:
            parse_policy(json.dumps(fields).encode())
        except Invalid:
            continue
        raise AssertionError(name)


def test_a_policys_bytes_are_bounded():
    data = json.dumps(NEEDED).encode()
    assert parse_policy(data + b" " * (4096 - len(data))).sensor == "energy"
    try:
        parse_policy(data + b" " * (4097 - len(data)))
    except Invalid as error:
        assert str(error) == "the policy has 4097 bytes or more, expected at most 4096"
    else:
        raise AssertionError("a policy of 4097 bytes was read")


def test_one_to_four_signers_of_32_bytes():
    for count in (1, 4):
        assert len(make_policy(signers=["ab" * 32] * count, insecure=False).signers) == count
    assert make_policy(signers=[], insecure=True).signers == ()
    assert refused(signers=[], insecure=False)
    for signers in (["ab" * 32] * 5, ["ab" * 31], ["ab" * 33], ["ab" * 32, "ab" * 31], ["xy" * 32], [7], 7):
        assert refused(signers=signers, insecure=False)
        assert refused(signers=signers, insecure=True)


def test_what_was_agreed_is_named_by_32_hexadecimal_digits():
    digits = "0123456789abcdef"
    for agreed in ("", digits + digits):
        assert make_policy(agreed=agreed).agreed == agreed
    for agreed in (digits, digits + digits[1:], digits + digits + "0", digits + digits[1:] + "g", "A" * 32, 7, None):
        assert refused(agreed=agreed), agreed


def test_theta_is_a_range_of_small_integers():
    largest = (1 << 30) - 1
    assert make_policy(theta=[1, 1]).theta == (1, 1)
    assert make_policy(theta=[largest, largest]).theta == (largest, largest)
    assert refused(theta=[1 << 30, 1 << 30])
    assert refused(theta=[1 << 30, (1 << 31) - 1])
    assert refused(theta=[1, 1 << 30])
    try:
        make_policy(theta=[1 << 30, 1 << 30])
    except Invalid as error:
        assert "theta[0]" in str(error), error
    assert refused(theta=[0, 5])
    assert refused(theta=[5, 4])
    assert refused(theta=[5])
    assert refused(theta=[5, 6, 7])


def test_a_campaign_at_the_owners_limits_and_just_beyond():
    campaign = make_campaign()
    seconds = campaign.end - campaign.epoch
    limits = {"theta": [300, 1000], "slot_seconds": SLOT, "duration_seconds": seconds, "cap": [2, 1]}
    limits.update(unit=campaign.unit, until=campaign.end)
    assert reason(make_policy(**limits), campaign) is None
    limits["theta"] = [1, 1000]
    assert reason(make_policy(**limits), campaign) is None
    for name, value, word in (
        ("theta", [301, 1000], "theta"),
        ("theta", [1, 299], "theta"),
        ("slot_seconds", SLOT + 1, "slot_seconds"),
        ("duration_seconds", seconds - 1, "duration"),
        ("cap", [1999, 1000], "epsilon"),
        ("sensor", "water", "sensor"),
        ("measures", ["mean"], "measure"),
        ("unit", "kWh", "unit"),
        ("until", campaign.end - 1, "until"),
    ):
        changed = dict(limits)
        changed[name] = value
        assert reason(make_policy(**changed), campaign) == word, name


def test_an_epochs_time_at_its_limits():
    """The next epoch begins at least ``epoch_seconds`` after the last one, or a cycle if ``epoch_seconds`` is 0.

    Both are a day here.
    """
    first = make_campaign()
    later = make_campaign(epoch=START + DAY)
    assert later.cycle * later.slot_seconds == DAY
    for epoch_seconds in (DAY, 0):
        policy = make_policy(epoch_seconds=epoch_seconds, lead_seconds=DAY)
        for campaign, accepted, last, now, word in (
            (later, None, 0, START, None),
            (later, None, 0, START - 1, "epoch_ahead"),
            (later, first, START, START, None),
            (later, first, START + 1, START, "epoch_too_soon"),
            (later, first, START + DAY, START, "epoch_rollback"),
            (later, None, START + DAY, START, "epoch_rollback"),
            (first, None, 0, first.end - 1, None),
            (first, None, 0, first.end, "ended"),
        ):
            try:
                policy.check_succession(campaign, accepted, last, now)
                said = None
            except Refused as refusal:
                said = refusal.reason
            assert said == word, (epoch_seconds, last, now)


def test_another_campaign_gets_the_sensor_at_the_end_of_the_first():
    first = make_campaign()
    other = make_campaign(name="other", epoch=first.end, last_slot=first.last_slot + 96)
    policy = make_policy()
    policy.check_succession(other, first, START, first.end)
    try:
        policy.check_succession(other, first, START, first.end - 1)
    except Refused as refusal:
        assert refusal.reason == "sensor_busy"
    else:
        raise AssertionError("two campaigns hold a sensor")


def test_what_is_allowed_of_streams_at_its_limits():
    fields = {"rho": 1000, "period_seconds": DAY, "laws": ["gaussian"], "dimension": 1, "per_report": False}
    largest = {"rho": (1 << 32) - 1, "period_seconds": 36525 * DAY, "dimension": 8, "lifetime": 1 << 62}
    for name in largest:
        for value in (1, largest[name]):
            assert getattr(StreamPolicy(dict(fields, **{name: value})), name) == value
    beyond = [(name, value) for name in largest for value in (-1, largest[name] + 1, "1", None)]
    beyond += [(name, 0) for name in largest if name != "lifetime"]
    for law in ([], ["laplace"], ["gaussian", "laplace"], "gaussian", None, 5):
        beyond.append(("laws", law))
    for name, value in beyond + [("per_report", 1), ("per_report", None), ("other", 1)]:
        try:
            StreamPolicy(dict(fields, **{name: value}))
        except Invalid as error:
            assert name in str(error)
        else:
            raise AssertionError("%s: %r was taken" % (name, value))
    assert StreamPolicy({"rho": 1, "period_seconds": 1}).laws == ("gaussian", "one-bit")


def test_the_ends_of_a_cap_as_epsilon_and_delta():
    """epsilon is above 0 and at most 64, delta is 2^-1 to 2^-1000, and rho is at least 2^-20."""
    for epsilon, bits in (([64, 1], 1), ([64, 1], 1000), ([1 << 29, 1 << 28], 40)):
        assert StreamPolicy({"epsilon": epsilon, "delta_bits": bits, "period_seconds": DAY}).rho > 0
    for epsilon, bits, word in (
        ([65, 1], 1, "numerator"),
        ([0, 1], 1, "numerator"),
        ([1, 0], 1, "denominator"),
        ([1], 1, "epsilon"),
        ([1, 1, 1], 1, "epsilon"),
        ([1, 1], 0, "delta_bits"),
        ([1, 1], 1001, "delta_bits"),
        # The rho of this cap would be below 2^-20.
        ([1, 1000000], 1000, "rho"),
    ):
        try:
            StreamPolicy({"epsilon": epsilon, "delta_bits": bits, "period_seconds": DAY})
        except Invalid as error:
            assert word in str(error), error
        else:
            raise AssertionError((epsilon, bits))


def test_what_all_streams_together_may_ever_cost():
    for lifetime, total, allowed in ((0, 1 << 62, True), (5, 5, True), (5, 6, False), (1, 2, False)):
        try:
            StreamPolicy({"rho": 1, "period_seconds": DAY, "lifetime": lifetime}).check_lifetime(total)
            assert allowed
        except Refused as refusal:
            assert (refusal.reason, allowed) == ("rho", False)
