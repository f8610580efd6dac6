"""The privacy of mechanisms on small instances: by couplings of their draws, and by laws over neighbouring streams.

The couplings work as follows. Assume that for neighbours D, D' and any draws z there are integers d with M(D, z) =
M(D', z + d). Then no release is more than e^(Σ |d_i|/scale_i) times as likely under D as under D', because a shift by
1 changes each probability of the discrete Laplace law with scale s by a factor of at most e^(1/s).
"""

from fractions import Fraction
from itertools import combinations, product
from math import exp, log

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import cauchy, laplace, norm

from support.central import Script, laplace_pmf, seeded
from undertone_central.mechanisms import factorisation, pilot, point_class, threshold, threshold_class, tops
from undertone_central.mechanisms.counting import Binary, Counter, Simple1, Simple2, TwoLevel
from undertone_central.mechanisms.factorisation import SquareRoot
from undertone_central.mechanisms.k_ary import KAry
from undertone_central.mechanisms.pak import Pak
from undertone_central.mechanisms.publisher import Publisher
from undertone_central.mechanisms.sanitizer import StreamingSanitizer, amplified, subset
from undertone_central.mechanisms.smooth_sensitivity import pak_location, smooth_sensitivity, smoothing_parameters
from undertone_central.mechanisms.smoothers import SMOOTHERS, make_smoother
from undertone_central.mechanisms.threshold import Workload
from undertone_central.mechanisms.unbounded import HybridCounter, Monotone, Unbounded

EPSILON = Fraction(3, 2)
ROUNDING = 1e-9


# --- linear mechanisms: counters and plain hierarchies -------------------------------------------------------------


def least_cost(script, make, length, values, other):
    """The least Σ |d_i|/scale_i of a shift d of the draws that cancels the change of the values.

    Every release of these mechanisms is linear. Its coefficients come from unit draws, and a linear programme finds the
    shift.
    """
    base = script.run(make, [0] * length, [])
    scales = list(script.scales)
    n = len(scales)
    response = np.array([script.run(make, [0] * length, [0] * i + [1]) for i in range(n)]).T - np.array(base)[:, None]
    moved = np.array(script.run(make, values, [])) - np.array(script.run(make, other, []))
    price = np.array([float(1 / s) for s in scales])
    solved = linprog(
        np.r_[price, price], A_eq=np.block([response, -response]), b_eq=moved, bounds=[(0, None)] * (2 * n)
    )
    assert solved.success
    shift = np.rint(solved.x[:n] - solved.x[n:]).astype(int)
    # For arbitrary draws, both releases are exactly the same.
    z = np.random.default_rng(1).integers(-9, 10, n)
    assert script.run(make, values, z.tolist()) == script.run(make, other, (z + shift).tolist())
    return sum(abs(int(d)) / s for d, s in zip(shift, scales, strict=True))


T, B = 8, 3
LINEAR = {
    "simple-1": lambda: Simple1(B, EPSILON, T, seeded()),
    "simple-2": lambda: Simple2(B, EPSILON, seeded()),
    "two-level": lambda: TwoLevel(B, EPSILON, T, seeded(), block=3),
    "two-level, one block": lambda: TwoLevel(B, EPSILON, T, seeded(), block=T),
    "binary": lambda: Binary(B, EPSILON, T, seeded()),
    "k-ary, 3": lambda: KAry(B, EPSILON, T, seeded(), fanout=3),
    "k-ary, 5": lambda: KAry(B, EPSILON, T, seeded(), fanout=5),
    "unbounded": lambda: Unbounded(B, EPSILON, seeded()),
    "hybrid": lambda: HybridCounter(B, EPSILON, seeded()),
    "hierarchy 2": lambda: Pak(5, EPSILON, seeded(), theta=B, span=4, fanout=2),
    "hierarchy 3": lambda: Pak(5, EPSILON, seeded(), theta=B, span=9, fanout=3),
}
NEIGHBOURS = [([0] * T, [0] * i + [9] + [0] * (T - i - 1)) for i in range(T)]


@pytest.mark.parametrize("name", LINEAR)
def test_counters_and_hierarchies_cost_at_most_epsilon(monkeypatch, name):
    script = Script(monkeypatch)
    costs = [least_cost(script, LINEAR[name], T, *pair) for pair in NEIGHBOURS]
    assert max(costs) <= EPSILON
    if name != "unbounded":
        assert max(costs) == EPSILON


def test_a_binary_counter_with_log2_t_levels_is_caught(monkeypatch):
    """A published blog post divides ε by log2 T, but the tree has floor(log2 T) + 1 levels."""

    class Blog(Binary):
        def __init__(self):
            super().__init__(B, EPSILON, T, seeded())
            self._noise = self._draws(1 / Fraction(np.log2(T)))

    assert max(least_cost(Script(monkeypatch), Blog, T, *pair) for pair in NEIGHBOURS) > EPSILON


def test_monotone_counts_and_empty_items_come_from_the_counter_alone(monkeypatch):
    script = Script(monkeypatch)
    z = [2, -5, 3, 0, 7, -1, 4, 4, -9, 1, 0, 2]
    counts = script.run(LINEAR["binary"], [1, 0, 1, 1, 0, 1, 0], z)
    monotone = script.run(lambda: Monotone(LINEAR["binary"]()), [1, None, 1, 1, None, 1, 0], z)
    shown, expected = 0, []
    for count in counts:
        shown = shown if count <= shown else min(count, shown + B)
        expected.append(shown)
    assert monotone == expected


# --- consistent hierarchies, smoothed ------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["least-squares", "least-absolute"])
@pytest.mark.parametrize("smoother", SMOOTHERS)
def test_the_publisher_costs_at_most_epsilon(monkeypatch, consistency, smoother):
    """The noise of a changed value's ancestors can shift so that the smoothed release stays the same."""
    theta, fanout, levels, smoothing = 4, 2, 3, 1
    rng = np.random.default_rng(7)
    trees = [rng.integers(-40, 40, size) for size in (4, 2, 1)]

    def release(values, shift):
        guess = make_smoother(smoother)
        guess.start(theta)
        publisher = Publisher(
            theta, EPSILON, seeded(), guess,
            fanout=fanout, levels=levels, group=fanout**smoothing, consistency=consistency, monotone=False,
        )  # fmt: skip
        scales.append(publisher._hierarchy._law.scale)
        monkeypatch.setattr(
            publisher._hierarchy,
            "_noise",
            lambda height, block, sizes: [trees[h] + shift[h] for h in range(len(sizes))],
        )
        return publisher.publish(np.array(values)).tolist()

    values = rng.integers(0, theta + 1, 8).tolist()
    for place in range(8):
        scales, cost = [], Fraction(0)
        other = [*values[:place], theta + 9 if values[place] < 2 else 0, *values[place + 1 :]]
        change = values[place] - min(other[place], theta)
        shift = [np.zeros(4, int), np.zeros(2, int), np.zeros(1, int)]
        for height in range(levels):
            shift[height][place // fanout ** (height + 1)] = change
        unshifted = release(values, [0, 0, 0])
        assert release(other, shift) == unshifted
        cost = levels * abs(change) / scales[0]
        assert cost <= EPSILON
    assert levels * theta / scales[0] == EPSILON


# --- thresholds: noisy maximum -------------------------------------------------------------------------------------


def winner_law(score, scale, kind):
    """P(argmax of score + noise = i), by summing over the winner's noise. Of equal scores, the smaller index wins."""
    reach = int(40 * scale) + int(np.ptp(score)) + 2
    r = np.arange(-reach if kind == "laplace" else 0, reach + 1)
    q = exp(-1 / scale)

    def below(x):
        """P(noise < x)."""
        if kind == "exponential":
            return np.where(x <= 0, 0.0, 1 - q ** np.maximum(x, 0))
        return np.where(x <= 0, q ** (1 - x) / (1 + q), 1 - q ** np.maximum(x, 0) / (1 + q))

    pmf = laplace_pmf(r, scale) if kind == "laplace" else (1 - q) * q**r
    law = []
    for i, own in enumerate(score):
        win = pmf.copy()
        for j, rival in enumerate(score):
            if j != i:
                win *= below(own + r - rival + (j > i))
        law.append(win.sum())
    assert sum(law) == pytest.approx(1, abs=1e-9)
    return np.array(law)


def histograms(values, bound):
    return np.bincount(values, minlength=bound + 1).astype(np.int64)


@pytest.mark.parametrize("objective", threshold.OBJECTIVES)
@pytest.mark.parametrize("kind", threshold.NOISES)
def test_noisy_max_over_all_neighbouring_histograms(monkeypatch, objective, kind):
    monkeypatch.setattr(threshold, "GRID", 8)
    bound, m, epsilon = 4, 3, Fraction(1)
    workload = Workload(16, 4, 2, epsilon)
    thetas = threshold.candidates(bound, objective)

    def law(values):
        score = threshold.scores(histograms(values, bound), thetas, workload, epsilon, objective, Fraction(1))
        return winner_law(threshold.on_grid(score), float((threshold.GRID + 1) / epsilon), kind)

    laws = {values: law(list(values)) for values in product(range(bound + 1), repeat=m)}
    worst = 0.0
    for values, chances in laws.items():
        for changed in range(bound + 1):
            worst = max(worst, (chances / laws[(changed, *values[1:])]).max())
    assert 1 < worst <= exp(epsilon) * (1 + ROUNDING)


@pytest.mark.parametrize("objective", threshold.OBJECTIVES)
def test_scores_move_by_at_most_one_and_in_one_direction(objective):
    rng = np.random.default_rng(3)
    caps = set()
    for bound, m in ((5, 2), (40, 10), (3000, 12), (3000, 400)):
        workload = Workload(256, 4, 3, Fraction(1, 5))
        caps.add(round(threshold.noise_and_cap(m, workload, workload.epsilon)[1], 1))
        thetas = threshold.candidates(bound, objective)
        for _ in range(40):
            values = rng.integers(0, bound + 1, m) if rng.random() < 0.5 else np.minimum(rng.pareto(1, m), bound)
            values = values.astype(int)
            other = values.copy()
            other[0] = rng.integers(0, bound + 1)
            before, after = (
                threshold.scores(histograms(v, bound), thetas, workload, workload.epsilon, objective)
                for v in (values, other)
            )
            moved = before - after
            assert np.abs(moved).max() <= 1 + ROUNDING
            assert (moved >= -ROUNDING).all() or (moved <= ROUNDING).all()
    assert len(caps) == 4
    assert max(caps) == 1
    assert threshold.candidates(10**9, objective)[-1] == 10**9
    assert threshold.candidates(1, objective).tolist() == [1]


@pytest.mark.slow
def test_the_shipped_choice_follows_the_law(monkeypatch):
    """Compares `choose_threshold` itself with the winner's law, by χ² with 4 degrees of freedom."""
    bound, workload, epsilon = 5, Workload(256, 4, 4, Fraction(1)), Fraction(1)
    histogram = np.array([1, 4, 3, 1, 1, 0])
    for kind in threshold.NOISES:
        source = seeded(3)
        chosen = [
            threshold.choose_threshold(
                histogram, workload, epsilon, source, objective="count", c=Fraction(1), noise=kind
            )
            for _ in range(2000)
        ]
        score = threshold.scores(histogram, np.arange(1, bound + 1), workload, epsilon, "count", Fraction(1))
        expected = winner_law(threshold.on_grid(score), float(threshold.GRID + 1), kind) * len(chosen)
        observed = np.bincount(chosen, minlength=bound + 1)[1:]
        assert ((observed - expected) ** 2 / np.maximum(expected, 0.5)).sum() < 40


# --- thresholds: smooth sensitivity --------------------------------------------------------------------------------


def without_last_shift(ordered, rank, bound, beta):
    """The smooth sensitivity as PAK's authors compute it in their code: with t = 0..k, where t = 0..k+1 is right."""
    n = len(ordered)
    x = lambda i: 0 if i < 1 else bound if i > n else int(ordered[i - 1])  # noqa: E731
    terms = [exp(-float(beta) * k) * max(x(rank + t) - x(rank + t - k - 1) for t in range(k + 1)) for k in range(n + 1)]
    return Fraction(max(*terms, 2.0**-20))


LAWS = {"laplace": laplace, "gaussian": norm, "cauchy": cauchy}
DATA, BOUND, RANK = (0, 9, 20), 20, 2
# Noise -> a second (ε, δ) for the tests, which also use (2, 1/1000).
TIGHT = {"laplace": (6, Fraction(1, 20)), "gaussian": (20, Fraction(1, 10)), "cauchy": (5, Fraction(1, 10))}


def quantile_law(values, noise, sensitivity, epsilon, delta, shifted, reach):
    """P(θ = k) for k within ``reach`` and before clamping: the law of `draw_floor`."""
    alpha, beta = smoothing_parameters(noise, epsilon, delta)
    s = sensitivity(np.array(sorted(values)), RANK, BOUND, beta) / alpha
    kappa, shift = pak_location(alpha, beta, 0.2) if shifted else (Fraction(1), Fraction(0))
    place = sorted(values)[RANK - 1] + shift * s
    edges = (np.arange(-reach, reach + 1) - float(place)) / float(kappa * s)
    return np.diff(LAWS[noise].cdf(edges), prepend=0, append=1)


def worst_excess(noise, sensitivity, epsilon, delta, shifted=False, reach=70):
    """The largest hockey-stick divergence over all neighbours.

    For pure ε, the largest excess over the ratio e^ε instead.
    """
    laws = {
        values: quantile_law(values, noise, sensitivity, epsilon, delta, shifted, reach)
        for values in product(DATA, repeat=3)
    }
    pure = noise == "cauchy"
    worst = 0.0
    for values, chances in laws.items():
        for changed in DATA:
            other = laws[(changed, *values[1:])]
            excess = chances - exp(epsilon) * (1 + ROUNDING) * other
            worst = max(worst, excess.max() if pure else np.maximum(excess, 0).sum())
    return worst


@pytest.mark.parametrize(
    ("noise", "shifted"), [("laplace", False), ("laplace", True), ("gaussian", False), ("cauchy", False)]
)
def test_smooth_sensitivity_over_all_neighbours(noise, shifted):
    for epsilon, delta in ((2, Fraction(1, 1000)), TIGHT[noise]):
        excess = worst_excess(noise, smooth_sensitivity, Fraction(epsilon), delta, shifted)
        assert excess <= (0 if noise == "cauchy" else delta)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_published_off_by_one_fails_the_same_test(noise):
    """With the wrong sensitivity, the excess probability is over 3 δ. Cauchy noise has no δ, and is left out."""
    epsilon, delta = TIGHT[noise]
    assert worst_excess(noise, without_last_shift, Fraction(epsilon), delta) > 3 * delta


def test_the_sensitivity_is_the_definition_and_smooth():
    rng = np.random.default_rng(5)
    beta = Fraction(1, 3)
    for _ in range(60):
        n, bound = int(rng.integers(1, 9)), int(rng.integers(1, 30))
        values = np.sort(rng.integers(0, bound + 1, n))
        rank = int(rng.integers(1, n + 1))

        def x(i, values=values, n=n, bound=bound):
            return 0 if i < 1 else bound if i > n else int(values[i - 1])

        sensitivity = smooth_sensitivity(values, rank, bound, beta)
        defined = max(
            exp(-float(beta) * k) * max(x(rank + t) - x(rank + t - k - 1) for t in range(k + 2)) for k in range(n + 1)
        )
        assert defined <= sensitivity <= defined * (1 + 1e-8)
        other = values.copy()
        other[0] = rng.integers(0, bound + 1)
        assert sensitivity <= exp(float(beta)) * smooth_sensitivity(np.sort(other), rank, bound, beta)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "cauchy"])
def test_parameters_cover_the_worst_shift_and_dilation(noise):
    """A release adds noise scaled by S/α.

    Its law is compared with itself moved by α and stretched by e^±β, on a fine grid.
    """
    law = LAWS[noise].cdf
    z = np.linspace(-60, 60, 24001)
    for epsilon, delta in ((0.1, 1e-3), (1, 1e-3), (2, 1e-2)):
        alpha, beta = (float(x) for x in smoothing_parameters(noise, Fraction(epsilon), Fraction(delta)))
        for stretch in (exp(beta), exp(-beta)):
            chances, other = (
                np.diff(law(z), prepend=0, append=1),
                np.diff(law((z + alpha) * stretch), prepend=0, append=1),
            )
            for p, q in ((chances, other), (other, chances)):
                excess = p - exp(epsilon) * q
                assert (excess.max() if noise == "cauchy" else np.maximum(excess, 0).sum()) <= delta * (
                    1e-9 if noise == "cauchy" else 1
                )


# --- sanitizer -----------------------------------------------------------------------------------------------------


def released_law(items, monkeypatch, epsilon, scale_reach=14):
    """The law of the threshold sanitizer's output for a domain of two values, and a bound on what it leaves out.

    The law is a sum over all noise within ``scale_reach`` times its scale.
    """
    offline = threshold_class.ThresholdSanitizer(1, epsilon)
    scale = float(offline._law.scale)
    reach = int(scale_reach * scale)
    law = {}
    for z in product(range(-reach, reach + 1), repeat=2):
        drawn = np.array([*z] + [0] * 14)
        monkeypatch.setattr(offline, "_law", Drawn(drawn, offline._law.variance))
        out = tuple(offline.sanitize(np.array(items), None).tolist())
        law[out] = law.get(out, 0) + laplace_pmf(z[0], scale) * laplace_pmf(z[1], scale)
    return law, 4 * exp(-reach / scale)


class Drawn:
    def __init__(self, values, variance):
        self._values, self.variance = values, variance

    def sample(self, source, n):
        return self._values[:n]


def test_the_threshold_sanitizer_over_all_neighbours(monkeypatch):
    epsilon = Fraction(3)
    laws, worst = {}, 0.0
    for items in product((0, 1), repeat=3):
        laws[items], missed = released_law(items, monkeypatch, epsilon)
    for items, chances in laws.items():
        other = laws[(1 - items[0], *items[1:])]
        worst = max(worst, max((p - missed) / (other.get(out, 0) + missed) for out, p in chances.items()))
    assert 1 < worst <= exp(epsilon) * (1 + 1e-4)


def test_the_point_sanitizer_costs_epsilon(monkeypatch):
    """A changed item moves two counts by one. Draws that move back give the same items, at the cost of ε."""
    rng = np.random.default_rng(5)
    offline = point_class.PointSanitizer(5, EPSILON)
    scale, variance = offline._law.scale, offline._law.variance
    for _ in range(200):
        items = rng.integers(0, 6, 7)
        other = items.copy()
        other[0] = rng.integers(0, 6)
        z = rng.integers(-9, 10, 6)
        shift = np.bincount(items, minlength=6) - np.bincount(other, minlength=6)
        released = []
        for data, drawn in ((items, z), (other, z + shift)):
            monkeypatch.setattr(offline, "_law", Drawn(drawn, variance))
            released.append(offline.sanitize(data, None).tolist())
        assert released[0] == released[1]
        assert np.abs(shift).sum() / scale <= EPSILON
    assert 2 / scale == EPSILON


def test_the_sanitizers_noise_pays_for_both_paths_of_a_changed_item():
    for bound in (1, 15, 16, 255, 4095, 10**6):
        offline = threshold_class.ThresholdSanitizer(bound, EPSILON)
        levels = next(n for n in range(1, 9) if 16**n > bound)
        assert 2 * levels / offline._law.scale == EPSILON


def test_amplification_by_sampling_over_all_neighbours():
    """2 of 4 bits are sampled, then sanitized by a law of ratio e^ε'.

    The mixture over all subsets must keep the target.
    """
    for target in (Fraction(1, 5), Fraction(1), Fraction(2)):
        share = Fraction(2, 4)
        used = float(amplified(target, share))
        assert used > float(target)

        def offline(count, used=used):
            """Two-sided geometric noise on the count of ones."""
            k = np.arange(-200, 200)
            return laplace_pmf(k - count, 1 / used)

        def law(bits, offline=offline):
            return sum(offline(sum(s)) for s in combinations(bits, 2)) / 6

        laws = {bits: law(bits) for bits in product((0, 1), repeat=4)}
        worst = max((chances / laws[(1 - bits[0], *bits[1:])]).max() for bits, chances in laws.items())
        assert worst <= exp(target) * (1 + ROUNDING)
        # The budget is nearly exhausted: a little more than what the formula allows would exceed the target.
        assert log(1 + float(share) * (exp(used + 1e-3) - 1)) > target


def test_subsets_are_uniform_and_items_outside_are_not_looked_at():
    source = seeded(2)
    seen = {}
    for _ in range(3000):
        chosen = tuple(subset(4, 2, source).tolist())
        seen[chosen] = seen.get(chosen, 0) + 1
    assert sorted(seen) == list(combinations(range(4), 2))
    # Each count is Binomial(3000, 1/6). The limit is 6 standard deviations.
    assert all(abs(n - 500) < 6 * 20.5 for n in seen.values())

    class Echo:
        guarantee = ""

        def sanitize(self, items, source):
            return items

    stream = StreamingSanitizer(9, Echo(), seeded(), block=5, kept_items=2)
    out = stream.extend(np.arange(10))
    assert len(out) == 4
    assert set(out[:2].tolist()) <= set(range(5))
    assert set(out[2:].tolist()) <= set(range(5, 10))


# --- the square-root factorisation ---------------------------------------------------------------------------------


def test_the_square_root_counters_noise_covers_its_sensitivity(monkeypatch):
    """σ² - 4 >= (multiplier B)² Σ c_k², where the multiplier is that of the analytic Gaussian mechanism."""
    for epsilon, delta, horizon in ((1, 1e-6, 50), (0.1, 1e-9, 7)):
        counter = SquareRoot(3, epsilon, horizon, seeded(), delta=delta)
        sigma = factorisation.analytic_multiplier(epsilon, delta)
        spent = norm.cdf(0.5 / sigma - epsilon * sigma) - exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
        assert spent <= delta * (1 + 1e-6)
        assert spent > delta * 0.99
        squares = sum(int(c) ** 2 for c in counter._c)
        assert counter._noise.law.variance - 4 >= Fraction(sigma) ** 2 * 9 * squares


def test_the_square_root_counters_law_over_neighbours(monkeypatch):
    """Two values with coefficients in quarters: over all pairs of draws, the hockey-stick divergence is at most δ."""
    monkeypatch.setattr(factorisation, "_BITS", 2)
    epsilon, delta = 2, 1e-2
    counter = SquareRoot(1, epsilon, 2, seeded(), delta=delta)
    assert counter._c.tolist() == [4, 2]
    sigma2 = float(counter._noise.law.variance)
    k = np.arange(-80, 81)
    pmf = np.exp(-(k.astype(float) ** 2) / (2 * sigma2))
    pmf /= pmf.sum()
    chances = np.outer(pmf, pmf)
    for first, second in ((4, 2), (0, 4)):
        other = np.outer(np.roll(pmf, first), np.roll(pmf, second))
        assert np.maximum(chances - exp(epsilon) * other, 0).sum() <= delta
        assert np.maximum(other - exp(epsilon) * chances, 0).sum() <= delta


def test_every_counter_that_ships_is_tested_here():
    covered = {Simple1, Simple2, TwoLevel, Binary, KAry, Unbounded, HybridCounter, Monotone, SquareRoot}

    def all_of(kind):
        return {kind}.union(*(all_of(sub) for sub in kind.__subclasses__()))

    shipped = {k for k in all_of(Counter) if k.__module__.startswith("undertone_") and not k.__abstractmethods__}
    assert shipped == covered


# --- what else is chosen by held-out values: the first prediction and the blocks -----------------------------------


@pytest.mark.slow_but("3-3", "2-2")
@pytest.mark.parametrize(("group", "parts"), [(2, 2), (4, 2), (3, 3), (4, 4)])
def test_the_drift_moves_by_at_most_its_sensitivity_over_all_neighbours(group, parts):
    """Streams of three blocks are tried, each with every change of one value.

    Short streams are all streams of the values 0 and θ. Of longer streams, 4,000 random ones are tried.
    """
    theta, n = 2, 3 * group
    rng = np.random.default_rng(2)
    samples = list(product((0, theta), repeat=n)) if n <= 9 else rng.choice([0, 1, theta], (4000, n)).tolist()
    worst = 0
    for values in samples:
        before = pilot.drift(np.array(values), group, parts)
        for place, new in product(range(n), (0, 1, theta)):
            changed = np.array(values)
            changed[place] = new
            worst = max(worst, abs(pilot.drift(changed, group, parts) - before))
    assert 0 < worst <= pilot.drift_sensitivity(parts, theta)


def test_noise_of_mean_and_drift_is_what_their_sensitivity_asks(monkeypatch):
    """Each released number costs its sensitivity divided by the scale of its noise.

    These costs add up to exactly the ε that the guarantee counts.
    """
    scales = []

    class Law:
        def __init__(self, scale):
            scales.append(Fraction(scale))

        def sample(self, source, n):
            return np.zeros(n, dtype=np.int64)

    monkeypatch.setattr(pilot, "discrete_laplace", Law)
    values, theta, epsilon = np.arange(4096) % 5, 4, Fraction(1, 3)
    pilot.noisy_mean(values, theta, epsilon, seeded())
    assert theta / scales.pop() == epsilon
    pilot.best_layout(values, theta, 4096, 4, Fraction(1), epsilon, seeded())
    assert len(scales) == len(pilot.layouts(4096, 4, 4096)) == 4
    assert sum(pilot.drift_sensitivity(4, theta) / scale for scale in scales) == epsilon


@pytest.mark.parametrize("update", ["none", "parallel", "sequential"])
@pytest.mark.parametrize("smoothing", ["auto", "paper", 1])
def test_threshold_mean_and_drift_share_the_epsilon_of_held_out_values(monkeypatch, update, smoothing):
    spent = []
    monkeypatch.setattr(tops, "choose_threshold", lambda h, w, epsilon, *_, **__: spent.append(epsilon) or 3)
    monkeypatch.setattr(tops.pilot, "noisy_mean", lambda v, t, epsilon, s: spent.append(epsilon) or 1.0)
    monkeypatch.setattr(tops.pilot, "best_layout", lambda *a: spent.append(a[5]) or None)
    made = tops.Tops(9, EPSILON, seeded(), hold_out=20, span=64, fanout=4, update=update, smoothing=smoothing)
    made.extend(np.arange(20) % 9)
    assert sum(spent) == EPSILON
    assert len(spent) == {"auto": 3, "paper": 1, 1: 2}[smoothing]
    spent.clear()
    made.extend(np.arange(84) % 9)
    share = EPSILON / 10 if update == "sequential" else EPSILON
    assert sum(spent) == (0 if update == "none" else share)
