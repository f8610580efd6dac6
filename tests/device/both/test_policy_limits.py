"""The largest and least values that a policy takes, and the first ones that it refuses."""

from rig import DAY, make_policy

from undertone_shared.errors import Invalid

LIMITS = (
    ("slot_seconds", 1, 7 * DAY),
    ("boots_per_day", 1, 1000),
    ("reports_per_period", 1, 1 << 24),
)


def refused(**changes):
    try:
        make_policy(**changes)
    except Invalid:
        return True
    return False


def test_numbers_up_to_their_limits_and_no_further():
    for name, least, most in LIMITS:
        for value in (least, most):
            assert getattr(make_policy(**{name: value}), name) == value
        assert refused(**{name: least - 1})
        assert refused(**{name: most + 1})


def test_theta_is_a_range_of_small_integers():
    largest = (1 << 30) - 1
    assert make_policy(theta=[largest, largest]).theta == (largest, largest)
    assert refused(theta=[1 << 30, 1 << 30])
    assert refused(theta=[1 << 30, (1 << 31) - 1])
    assert refused(theta=[0, 5])
    assert refused(theta=[5, 4])
