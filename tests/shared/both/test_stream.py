"""The exact mechanisms of streams: clipping, recursion, the one-bit law, the closed form, refusals.

See docs/cgm-proof.md.
"""

import hashlib
import json

from stream_fields import GAUSSIAN, ONE_BIT, gaussian, one_bit

from undertone_shared.entropy import Entropy
from undertone_shared.errors import Invalid, Refused
from undertone_shared.stream import (
    StreamRule,
    clip,
    first_step_suffices,
    least_first_variance,
    shrink,
    squared_bound,
    step_variance,
)
from undertone_shared.stream_policy import StreamPolicy, rho_below


class Outcome:
    """Stands for `Entropy`: ``below`` returns the chosen word."""

    def __init__(self):
        self.word = 0
        self.bounds = []

    def below(self, n):
        self.bounds.append(n)
        assert 0 <= self.word < n
        return self.word


class Digits:
    """A small deterministic sequence of integers."""

    def __init__(self):
        self.state = 1

    def __call__(self, low, high):
        self.state = self.state * 1103515245 % (1 << 31) + 12345
        return low + (self.state >> 8) % (high - low + 1)


def test_points_are_unbiased_and_take_one_word():
    rule = gaussian(levels=8, slew=2, theta=300)
    outcome = Outcome()
    for reading in (-5, 0, 1, 36, 37, 149, 150, 299, 300, 301):
        total = 0
        for outcome.word in range(300):
            total += rule.point((reading,), 0, outcome)[0]
        assert total == 8 * min(max(reading, 0), 300) - 4 * 300
    assert set(outcome.bounds) == {300}


def test_clipping_is_against_the_previous_clipped_point():
    previous = (0,)
    path = []
    for raw in (10, 10, -10, -10, 3):
        previous = clip((raw,), previous, 4, 10)
        path.append(previous[0])
    assert path == [4, 8, 4, 0, 3]


def test_vectors_keep_norm_and_slew_in_integers_after_every_rounding():
    draw = Digits()
    for slew, radius in ((1, 7), (5, 20), (49, 500)):
        previous = None
        for _ in range(300):
            point = shrink(tuple([draw(-radius, radius) for _ in range(3)]), radius)
            if previous is not None:
                point = clip(point, previous, slew, radius)
                assert sum([(point[i] - previous[i]) ** 2 for i in range(3)]) <= slew * slew
            assert sum([n * n for n in point]) <= radius * radius
            previous = point


def test_the_release_is_the_rounded_recursion():
    rule = gaussian()
    a, r = 256, 217
    # X_2 = (A n_2 - R n_1 + e + R X_1) / A, where a half is rounded up. The noise e = -18 gives 94.5.
    assert rule.first((100,), (-30,), None) == (70,)
    for noise in (-12345, -18, 0, 777):
        exact = a * 120 - r * 100 + noise + r * 70
        (released,) = rule.later((120,), (100,), (70,), (noise,), None)
        assert -a <= 2 * (exact - a * released) < a
    assert rule.publish(10**15, 0) == 0x7FFFFFFF
    assert rule.publish(-(10**15), 0) == -0x7FFFFFFF


def test_rounding_moves_a_chain_by_less_than_stated():
    # Multiplied by A^k, the exact recursion has integers only.
    rule = gaussian()
    draw = Digits()
    a, r = 256, 217
    point, released = draw(-500, 500), 0
    exact, scale = 0, 1
    for _ in range(40):
        following = rule.clip((draw(-500, 500),), (point,))[0]
        noise = draw(-100000, 100000)
        (released,) = rule.later((following,), (point,), (released,), (noise,), None)
        exact = (a * following - r * point + noise) * scale + r * exact
        scale *= a
        point = following
        # |X - exact| <= 1/(2(1 - r)) = A/(2(A - R))
        assert 2 * (a - r) * abs(released * scale - exact) <= a * scale


def test_one_bit_is_exactly_unbiased_and_its_range_never_exceeds_the_swing():
    rule = one_bit(levels=8, slew=1, shift=2, reuse=3, noise=[40, 60])
    outcome = Outcome()
    step = 60
    for previous in range(-4, 5):
        for point in range(max(-4, previous - 1), min(4, previous + 1) + 1):
            xi = 4 * point - 3 * previous
            assert 2 * abs(xi) <= rule.swing
            total = 0
            for outcome.word in range(2 * step):
                (released,) = rule.later((point,), (previous,), (0,), (), outcome)
                assert outcome.bounds[-1] == 2 * step
                total += 1 if released > 0 else -1
            # E y = b (P(+) - P(-)) = ξ
            assert total * step == 2 * step * xi
    for point in range(-4, 5):
        plus = 0
        for outcome.word in range(80):
            plus += rule.first((point,), (), outcome)[0] > 0
            assert outcome.bounds[-1] == 80
        assert plus == 40 + point


def paths(length, levels, slew):
    """All paths of integer differences with |d| <= levels and steps of at most 2 slew."""
    grown = [[d] for d in range(-levels, levels + 1)]
    for _ in range(length - 1):
        grown = [p + [d] for p in grown for d in range(-levels, levels + 1) if abs(d - p[-1]) <= 2 * slew]
    return grown


def test_the_closed_form_is_no_less_than_any_path_costs():
    for levels, slew, shift, reuse, length in ((4, 1, 2, 3, 4), (6, 1, 3, 5, 3), (4, 1, 3, 0, 3), (6, 2, 4, 15, 3)):
        a = 1 << shift
        worst = 0
        for path in paths(length, levels, slew):
            cost = (a * a - reuse * reuse) * path[0] ** 2
            for i in range(1, length):
                cost += (a * path[i] - reuse * path[i - 1]) ** 2
            worst = max(worst, cost)
        assert worst <= squared_bound(length, 1, levels, slew, shift, reuse)
        # However a path is split into two chains, its cost is within the bound for two chains.
        for cut in range(1, length):
            parts = [squared_bound(n, 1, levels, slew, shift, reuse) for n in (cut, length - cut)]
            assert sum(parts) <= squared_bound(length, 2, levels, slew, shift, reuse)


def test_first_reports_cost_no_more_than_the_closed_form_gives_them():
    for later in (16, 1000, 10**12):
        first = least_first_variance(later, 8, 217)
        # 1/(s_1 - 4) <= (A² - R²)/(s - 4), and also without the 4
        assert (later - 4) <= (first - 4) * (65536 - 217 * 217)
        assert later <= first * (65536 - 217 * 217)
    assert first_step_suffices(8200, 1100000, 1000, 50, 8, 217)
    assert not first_step_suffices(5000, 1100000, 1000, 50, 8, 217)


def test_rho_is_rounded_up_and_counts_every_window_of_a_period():
    rule = gaussian()
    num, den = rule.rho()
    assert num == squared_bound(48, 2, 1000, 50, 8, 217)
    assert den == 2 * (10**12 - 4)
    assert (rule.charge() - 1) * den < num << 20 <= rule.charge() * den
    day = 86400
    assert rule.windows(day, 1800, 0) == 1
    assert rule.windows(7 * day, 1800, 0) == 7
    assert rule.windows(day, 1800, 1800) == 2
    assert rule.windows(3600, 1800, 0) == 2
    assert gaussian(renewal=0).windows(day, 1800, 7) == 1


def test_a_rule_is_read_back_from_its_fields():
    for fields in (GAUSSIAN, ONE_BIT):
        assert json.loads(json.dumps(StreamRule(fields).describe())) == fields


def test_bad_rules_are_refused_naming_the_field():
    wrong = (
        ("law", "laplace"),
        ("theta", 0),
        ("levels", 999),
        ("levels", 1 << 21),
        ("slew", 500),  # C = 1/2
        ("slew", 0),
        ("shift", 13),
        ("reuse", 256),
        ("noise", [65000000, 15]),
        ("noise", [50000000, 10**12]),
        ("noise", [65000000]),
        ("noise", [65000000, 1 << 61]),
        ("noise", [True, 10**12]),
        ("dimension", 9),
        ("lag", 3),  # there are more chains than the budget allows
        ("reports", 0),
        ("reports", 65536),
        ("chains", 0),
        ("restart", -1),
        ("renewal", 1.5),
    )
    for name, value in wrong:
        for make in (gaussian, one_bit):
            try:
                make(**{name: value})
            except Invalid as error:
                assert "rule." in str(error), error
            else:
                assert make is one_bit and name == "noise" and value[1:] == [10**12], (name, value)
    for noise in ([8200, 30000], [499, 1100000], [5000, 1100000], [8200, 1 << 30]):
        try:
            one_bit(noise=noise)
        except Invalid as error:
            assert "noise" in str(error)
        else:
            raise AssertionError(noise)


def test_independent_noise_needs_no_slew():
    rule = gaussian(shift=0, reuse=0, slew=1000, noise=[10**8, 10**8])
    assert rule.clip((500,), (-500,)) == (500,)
    assert rule.rho()[0] == 48 * 1000 * 1000


def test_a_cap_as_epsilon_and_delta_is_safe_in_integers():
    # ρ + 2√(ρ k ln 2) = ε has the solution ρ = .0203243 for ε = 1 and k = 17.
    assert rho_below([1, 1], 17) == 21311
    for p, q, bits in ((1, 1, 1), (1, 3, 40), (7, 2, 100), (64, 1, 17), (1, 100, 9), (1, 500, 1)):
        largest = rho_below([p, q], bits)
        for rho in (largest, largest + 1):
            rest = p * (1 << 20) - q * rho
            allowed = rest >= 0 and 36 * rest * rest >= 100 * bits * rho * q * q * (1 << 20)
            assert allowed == (rho == largest), (p, q, bits)
    assert rho_below([1, 1], 1000) > 0
    # At ρ = 1 both sides are equal, (6 - 1)² 36 = 100 · 9, and the cap is kept.
    assert rho_below([6, 1], 9) == 1 << 20
    assert rho_below([64, 1], 1000) == rho_below([128, 2], 1000) > 0
    for epsilon, bits in (([65, 1], 17), ([129, 2], 17), ([1, 1000000], 1000), ([1, 1 << 30], 1)):
        try:
            rho_below(epsilon, bits)
        except Invalid:
            continue
        raise AssertionError(epsilon)
    for fields in (
        {"epsilon": [0, 1]},
        {"epsilon": [1, 1], "delta_bits": 0},
        {"epsilon": [1, 1], "delta_bits": 1001},
        {"epsilon": 1.0},
        {"rho": 0},
        {},
    ):
        complete = {"period_seconds": 86400, "delta_bits": 17} if "epsilon" in fields else {"period_seconds": 86400}
        for name in fields:
            complete[name] = fields[name]
        try:
            StreamPolicy(complete)
        except Invalid:
            continue
        raise AssertionError(fields)


class Issued:
    """The times of a campaign: slots of half an hour, which begin at an epoch."""

    def __init__(self, epoch, slots=48):
        self.slot_seconds = 1800
        self.epoch = epoch
        self.first_slot = epoch // 1800
        self.last_slot = self.first_slot + slots - 1


def test_a_policy_charges_all_windows_of_its_period_together():
    rule = gaussian()
    day = 86400
    for days, epoch, windows in ((1, 0, 1), (7, 0, 7), (1, 1800, 2)):
        most = StreamPolicy({"rho": windows * rule.charge(), "period_seconds": days * day})
        assert most.charge(Issued(epoch), rule) == windows * rule.charge()
        most.check(Issued(epoch), rule)
        try:
            StreamPolicy({"rho": windows * rule.charge() - 1, "period_seconds": days * day}).check(Issued(epoch), rule)
        except Refused as refused:
            assert refused.reason == "rho"
        else:
            raise AssertionError("%d windows cost more than is allowed" % windows)


def test_a_cap_per_report_takes_no_more_reports_than_slots():
    """With a cap per report, a campaign may have at most as many reports as slots in a window.

    If the campaign is shorter than a window, this holds for the whole campaign. Each report is within the cap.
    """
    rule = gaussian()
    fields = {"rho": rule.report_charge(), "period_seconds": 86400, "per_report": True}
    assert rule.report_charge() * 48 >= rule.charge()
    StreamPolicy(fields).check(Issued(0), rule)
    unending = gaussian(renewal=0)
    StreamPolicy(fields).check(Issued(0), unending)
    for issued, refused_rule in ((Issued(0, 47), rule), (Issued(0), gaussian(renewal=24)), (Issued(0, 47), unending)):
        try:
            StreamPolicy(fields).check(issued, refused_rule)
        except Refused as refused:
            assert "rule.reports is 48" in str(refused)
        else:
            raise AssertionError("more reports than slots")
    try:
        StreamPolicy(dict(fields, rho=rule.report_charge() - 1)).check(Issued(0), rule)
    except Refused as refused:
        assert refused.reason == "rho"
    else:
        raise AssertionError("a report costs more than is allowed")


def test_a_cap_per_report_grows_with_the_reports():
    rule = gaussian()
    for per_report, rho, fits in ((False, rule.charge(), True), (False, rule.charge() - 1, False), (True, 1, False)):
        policy = StreamPolicy({"rho": rho, "period_seconds": 86400, "per_report": per_report})
        try:
            policy.check_total(rule.charge(), rule)
            assert fits
        except Refused as refused:
            assert refused.reason == "rho"
            assert not fits
    policy = StreamPolicy({"rho": rule.charge() // 48 + 1, "period_seconds": 86400, "per_report": True})
    policy.check_total(rule.charge(), rule)


def test_the_same_bytes_release_the_same_values_everywhere():
    class Hashed:
        count = 0

        def __call__(self, n):
            data = b""
            while len(data) < n:
                Hashed.count += 1
                data += hashlib.sha256(b"stream %d" % Hashed.count).digest()
            return data[:n]

    for rule, frozen in ((gaussian(), GAUSSIAN_RELEASES), (one_bit(), ONE_BIT_RELEASES)):
        Hashed.count = 0
        entropy = Entropy(Hashed())
        point = released = None
        chain = []
        for reading in (100, 120, 300, 0):
            noise = rule.draw_noise(point is None, entropy) if rule.law == "gaussian" else ()
            entropy.refill()
            following = rule.point((reading,), 0, entropy)
            if point is None:
                released = rule.first(following, noise, entropy)
            else:
                following = rule.clip(following, point)
                released = rule.later(following, point, released, noise, entropy)
            point = following
            chain.append((point[0], released[0]))
        assert chain == frozen, chain


GAUSSIAN_RELEASES = [(-166, -10288), (-116, -4026), (-66, -1509), (-116, -3505)]
ONE_BIT_RELEASES = [(-166, -8200), (-116, -11248), (-66, -5238), (-116, -143)]


def accepted(make, **changes):
    try:
        make(**changes)
    except Invalid:
        return False
    return True


def test_numbers_of_a_rule_up_to_their_limits_and_no_further():
    for name, value, beyond in (
        ("slew", 1, 0),
        ("slew", 499, 500),
        ("dimension", 8, 9),
        ("reports", 0xFFFF, 0x10000),
        ("lag", 2, 3),
        ("chains", 1, 0),
        ("chains", 0xFFFF, 0x10000),
        ("restart", 0xFFFF, 0x10000),
        ("renewal", 1 << 24, (1 << 24) + 1),
    ):
        assert accepted(gaussian, **{name: value}), name
        assert not accepted(gaussian, **{name: beyond}), name
    for slew, allowed in ((1000, True), (1001, False)):
        assert accepted(gaussian, shift=0, reuse=0, slew=slew, noise=[10**8, 10**8]) == allowed
    for slew, allowed in ((1, True), (2, False)):
        assert accepted(gaussian, levels=2, slew=slew) == allowed
    end = (1 << 30) - 1
    for theta, allowed in ((end, True), (end + 1, False), (end + 2, False)):
        assert accepted(gaussian, low=end - 1, theta=theta) == allowed
    largest = (1 << 32) - 1
    for rho, allowed in ((1, True), (largest, True), (0, False), (largest + 1, False)):
        assert accepted(lambda rho: StreamPolicy({"rho": rho, "period_seconds": 1}), rho=rho) == allowed


def test_a_one_bit_step_covers_its_swing_and_costs_what_the_closed_form_says():
    assert step_variance(3, 2) == (32 * 32, 144)
    swing = one_bit().swing
    assert accepted(one_bit, noise=[8200, swing // 2 + 1])
    assert not accepted(one_bit, noise=[8200, swing // 2])
    levels = one_bit().levels
    for first, least in ((levels // 2, True), (levels // 2 + 1, False)):
        try:
            one_bit(noise=[first, swing // 2 + 1])
        except Invalid as error:
            assert ("expected an integer from %d" % (levels // 2 + 1) in str(error)) == least
    # Without reuse, the first step of a chain is like all others, so equal variances just suffice.
    assert first_step_suffices(600, 600, 1000, 50, 0, 0)
    assert not first_step_suffices(599, 600, 1000, 50, 0, 0)


def test_points_of_two_coordinates_stay_in_the_ball():
    rule = gaussian(dimension=2)
    half, entropy = rule.levels // 2, Entropy(lambda n: bytes(range(1, 1 + n)))
    entropy.refill()
    for reading in ((rule.theta, rule.theta), (rule.low, rule.theta), (rule.low, rule.low)):
        x, y = rule.point(reading, 0, entropy)
        assert (half - 2) ** 2 <= x * x + y * y <= half * half


def test_levels_and_lag_up_to_their_limits_and_no_further():
    assert accepted(gaussian, lag=1024, chains=1024)
    assert not accepted(gaussian, lag=1025, chains=1025)
    width = ((1 << 30) - 1) // 1000
    assert accepted(gaussian, levels=1000, low=0, theta=width)
    assert not accepted(gaussian, levels=1000, low=0, theta=width + 1)
    assert accepted(gaussian, levels=1 << 20, low=0, theta=1023)
    assert not accepted(gaussian, levels=1 << 20, low=0, theta=1024)
    assert not accepted(gaussian, levels=(1 << 20) + 2, low=0, theta=100)
    assert not accepted(gaussian, levels=999, low=0, theta=100)


def variance_for(step, width):
    """b²(1 - τ²)² with τ = W/(2b), as a rational number."""
    return (4 * step * step - width * width) ** 2, 16 * step * step


def test_rho_is_the_closed_form_of_the_module():
    """The closed form subtracts 4 from a variance of Gaussian noise.

    The reason is that a discrete Gaussian hides less than a continuous one. This matters most
    for 16, the least variance.
    """
    alone = {"shift": 0, "reuse": 0, "slew": 1000}
    for rule in (
        gaussian(),
        one_bit(),
        gaussian(slew=1),
        gaussian(noise=[10**8, 10**8], **alone),
        gaussian(noise=[16, 16], **alone),
    ):
        a, r, g, c = 1 << rule.shift, rule.reuse, rule.levels, rule.slew
        swing = g * (a - r) + 2 * c * r
        start, each = 2 * r * (a - r) * g * g - 4 * c * c * r * a, (a - r) ** 2 * g * g + 4 * c * c * r * a
        assert rule.swing == swing
        assert start >= 0
        top = rule.chains * start + rule.reports * each
        first, later = rule.noise
        if rule.law == "gaussian":
            variances = ((first - 4, 1), (later - 4, 1))
        else:
            variances = (variance_for(first, g), variance_for(later, swing))
        numerator, denominator = rule.rho()
        assert numerator * 2 * variances[1][0] == denominator * top * variances[1][1]
        charges = []
        for i in range(2):
            width, (num, den) = (g, swing)[i], variances[i]
            charges.append(-(-width * width * den * (1 << 20) // (2 * num)))
        assert rule.report_charge() == max(charges)
        assert rule.charge() == -(-(numerator << 20) // denominator)


def refusal(make, **changes):
    try:
        make(**changes)
    except Invalid as error:
        return str(error)
    raise AssertionError("accepted")


def test_each_number_of_a_rule_that_does_not_fit_is_named():
    small, half = 1 << 30, one_bit().levels // 2
    swing = one_bit().swing
    for make, field, value, others in (
        (gaussian, "low", small, {}),
        (gaussian, "low", -1, {}),
        (gaussian, "theta", 300, {"low": small - 1}),
        (gaussian, "theta", 0, {}),
        (gaussian, "shift", 13, {}),
        (gaussian, "shift", -1, {}),
        (gaussian, "reuse", 256, {}),
        (gaussian, "reuse", -1, {}),
        (gaussian, "lag", 0, {}),
        (one_bit, "dimension", 2, {}),
        (one_bit, "noise[1]", swing // 2, {"noise": [8200, swing // 2]}),
        (one_bit, "noise[1]", small // 2 + 1, {"noise": [8200, small // 2 + 1]}),
        (one_bit, "noise[0]", half, {"noise": [half, swing // 2 + 1]}),
        (one_bit, "noise[0]", small // 2 + 1, {"noise": [small // 2 + 1, swing // 2 + 1]}),
    ):
        changes = others or {field: value}
        assert "rule.%s is %d" % (field, value) in refusal(make, **changes), (field, value)
    assert "1024" in refusal(gaussian, lag=1025, chains=1025)
    largest = small // 2
    assert one_bit(noise=[largest, swing // 2 + 1]).noise[0] == one_bit(noise=[largest, largest]).noise[1] == largest
    assert gaussian().ranges == ((0, gaussian().low, gaussian().theta),)


def test_windows_within_a_period_and_within_a_campaign():
    day, renewed, once = 86400, gaussian(renewal=48), gaussian(renewal=0)
    for period, epoch, windows in (
        (day, 0, 1),
        (day, 1800, 2),
        (7 * day, 5 * day, 7),
        (7 * day, 5 * day + 1800, 8),
        (day + 1, 0, 3),
        (day // 2, 0, 2),
        (1, 0, 2),
    ):
        assert renewed.windows(period, 1800, epoch) == windows, (period, epoch)
        assert once.windows(period, 1800, epoch) == 1
    assert [renewed.windows_of(slots) for slots in (1, 48, 49, 96, 97)] == [1, 1, 2, 2, 3]
    assert once.windows_of(1000) == 1


def test_the_least_of_a_rule():
    assert gaussian(reports=1).reports == 1
    assert gaussian(shift=0, reuse=0, slew=1000, noise=[16, 16]).noise == (16, 16)
    for noise in ([16, 15], [15, 16]):
        assert not accepted(gaussian, shift=0, reuse=0, slew=1000, noise=noise)


def test_a_policy_allows_a_law_and_a_dimension_each_for_itself():
    limits = {"rho": (1 << 32) - 1, "period_seconds": 86400}

    class Days:
        first_slot, last_slot, slot_seconds, epoch = 0, 47, 1800, 0

    StreamPolicy(dict(limits, laws=["gaussian"], dimension=1)).check(Days, gaussian())
    for changes in ({"laws": ["one-bit"]}, {"dimension": 2}):
        try:
            StreamPolicy(dict(limits, **changes)).check(Days, gaussian())
        except Refused as refused:
            assert refused.reason == "stream"
        else:
            raise AssertionError(changes)
