"""Counters have the computed variances, and handle empty items and the end of a stream.

The sanitizer, quantiles, and ranges over releases are tested here, too.
"""

import json
from fractions import Fraction

import numpy as np
import pytest

from support.central import seeded
from support.refusal import refused
from undertone_central import Monotone, Sanitizer, StreamingSanitizer, Tops
from undertone_central.make import MECHANISMS, make
from undertone_central.mechanisms.continual import clip
from undertone_central.mechanisms.k_ary import best_fanout, levels_of, mean_draws
from undertone_central.mechanisms.point_class import PointSanitizer
from undertone_central.mechanisms.threshold_class import ThresholdSanitizer, onto_simplex
from undertone_central.ranges import Piece, make_counter, range_sum, share_of
from undertone_shared.errors import Invalid

COUNTERS = ("simple-1", "simple-2", "two-level", "binary", "k-ary", "unbounded", "hybrid", "square-root")
STREAM = np.random.default_rng(2).integers(0, 4, 70)


def counter(name, epsilon=1, seed=1, **options):
    bounded = "horizon" in MECHANISMS[name].__init__.__code__.co_varnames
    return make(name, 3, epsilon, seeded(seed), horizon=80 if bounded else None, **options)


@pytest.mark.slow_but("binary", "simple-2")
@pytest.mark.parametrize("name", COUNTERS)
def test_counts_follow_the_sums_and_have_the_computed_variance(name):
    """Over 60 runs and five times t, the mean of (error / standard error)² is 1, give or take .9."""
    true = np.cumsum(STREAM)
    ratios = []
    for seed in range(60):
        numbers = counter(name, 2, seed).extend(STREAM)
        assert len(numbers) == len(STREAM)
        ratios.append(
            [(numbers[t - 1] - true[t - 1]) ** 2 / counter(name, 2).variance(0, t) for t in (1, 8, 33, 64, 70)]
        )
    assert abs(np.mean(ratios) - 1) < 0.9


@pytest.mark.slow_but("two-level")
@pytest.mark.parametrize("name", COUNTERS)
def test_ranges_between_counts_have_the_computed_variance(name):
    made = counter(name)
    parameters = made.parameters
    ratios = []
    for seed in range(60):
        numbers = counter(name, 1, seed).extend(STREAM)
        for first, end in ((5, 6), (10, 50), (32, 64)):
            answer = range_sum(parameters, [Piece(0, 3, numbers)], first, end)
            ratios.append(((answer.value - STREAM[first:end].sum()) / answer.standard_error) ** 2)
    assert abs(np.mean(ratios) - 1) < 1.0
    assert make_counter(parameters).variance(0, 64) == pytest.approx(made.variance(0, 64))


@pytest.mark.parametrize("name", COUNTERS)
def test_block_form_state_and_empty_items(name):
    whole = counter(name).extend(STREAM).tolist()
    pieces = counter(name)
    assert [x for part in np.split(STREAM, [1, 2, 30]) for x in pieces.extend(part).tolist()] == whole
    # An empty item counts as an item and has the same effect as a 0.
    gaps = [None if i % 3 == 0 else int(x) for i, x in enumerate(STREAM)]
    zeros = [clip(x, 3) for x in gaps]
    gapped, filled = counter(name), counter(name)
    assert [gapped.push(x) for x in gaps] == [filled.push(x) for x in zeros]
    # A saved counter goes on with new draws, and its sums stay those of the whole stream, up to the noise.
    saved = counter(name, 20)
    saved.extend(STREAM[:41])
    state = json.loads(json.dumps(saved.state()))
    resumed = counter(name, 20, seed=9)
    resumed.restore(state)
    error = resumed.extend(STREAM[41:])[-1] - STREAM.sum()
    assert abs(error) < 20 * resumed.variance(0, len(STREAM)) ** 0.5


@pytest.mark.parametrize("name", ["simple-1", "two-level", "binary", "k-ary", "square-root"])
def test_bounded_counters_end_at_their_horizon(name):
    made = counter(name)
    made.extend(np.zeros(80, dtype=np.int64))
    with pytest.raises(Invalid, match="horizon of 80"):
        made.push(1)


def test_two_level_counts_a_last_incomplete_block_value_by_value():
    made = make("two-level", 1, 20, seeded(), horizon=11, block=4)
    counts = made.extend(np.ones(11, dtype=np.int64))
    assert abs(counts - np.arange(1, 12)).max() <= 3
    assert made.variance(0, 11) == pytest.approx(5 * made.variance(0, 4))


def test_binary_keeps_one_sum_per_level():
    made = make("binary", 1, 1, seeded(), horizon=2**20)
    made.extend(np.ones(3000, dtype=np.int64))
    assert len(made.state()["_exact"]) == 21
    endless = make("unbounded", 1, 1, seeded())
    endless.extend(np.ones(3000, dtype=np.int64))
    assert len(endless.state()["_exact"]) == 12


def test_monotone_counts_rise_by_at_most_the_bound():
    made = make("binary", 1, 1, seeded(), horizon=300, monotone=True)
    assert isinstance(made, Monotone)
    counts = made.extend(np.random.default_rng(1).integers(0, 2, 300))
    assert set(np.diff(counts)) <= {0, 1}
    assert made.parameters["monotone"]


def test_the_square_root_counter_beats_the_binary_one_by_far():
    binary, modern = make("binary", 1, 1, horizon=4096), make("square-root", 1, 1, horizon=4096)
    assert modern.variance(0, 4095) < binary.variance(0, 4095) / 5


# --- the k-ary counter with subtraction ---


def root_mean_variance(name, horizon, **options):
    """The root of the mean variance of all counts, from the variances of the draws in each count."""
    made = make(name, 1, 1, horizon=horizon, **options)
    return np.sqrt(np.mean([sum(made.terms(t).values()) for t in range(1, horizon + 1)]))


def test_the_k_ary_counter_has_the_least_error_of_pure_epsilon():
    """The counter of Andersson et al. (2024) is compared with four other counters, by root mean square error.

    At T = 1000, its error is .839 of that of the best of these four, and .415 of that of the binary counter.
    """
    ours = root_mean_variance("k-ary", 1000)
    others = [root_mean_variance(name, 1000) for name in ("simple-1", "two-level", "binary")]
    others.append(np.sqrt(np.mean([make("simple-2", 1, 1).variance(0, t) for t in range(1, 1001)])))
    assert ours / min(others) == pytest.approx(0.839, abs=0.002)
    assert ours / others[2] == pytest.approx(0.415, abs=0.002)


@pytest.mark.slow_but("13")
@pytest.mark.parametrize("horizon", [1, 2, 3, 13, 40, 41, 365, 1000])
def test_the_fanout_is_the_best_one_and_its_mean_draws_are_counted(horizon):
    def draws(fanout):
        made = make("k-ary", 1, 1, horizon=horizon, fanout=fanout)
        return Fraction(sum(len(made.terms(t)) for t in range(1, horizon + 1)), horizon)

    errors = {}
    for fanout in range(3, min(2 * horizon, 60) + 2, 2):
        assert mean_draws(horizon, fanout) == draws(fanout)
        errors[fanout] = levels_of(horizon, fanout) ** 2 * draws(fanout)
    best = best_fanout(horizon)
    own = levels_of(horizon, best) ** 2 * mean_draws(horizon, best)
    assert own == min([own, *errors.values()])


@pytest.mark.parametrize("fanout", [3, 5, 9, 27])
def test_the_signed_nodes_of_a_time_add_up_to_it(fanout):
    """Counted with their signs, the nodes of t cover each of the first t values once, and no later value."""
    horizon = 365
    made = make("k-ary", 1, 1, horizon=horizon, fanout=fanout)
    for t in range(1, horizon + 1):
        covered = np.zeros(fanout ** levels_of(horizon, fanout), dtype=np.int64)
        base, digits = 0, {}
        for level, node in made.terms(t):
            digits.setdefault(int(level.removeprefix("level ")), []).append(node)
        for level in sorted(digits, reverse=True):
            size = fanout**level
            for node in sorted(digits[level]):
                assert (node + 1) * size <= len(covered)
                sign = 1 if node * size >= base else -1
                covered[node * size : (node + 1) * size] += sign
            base += sum(size if node * size >= base else -size for node in digits[level])
        assert base == t
        assert covered[:t].tolist() == [1] * t
        assert not covered[t:].any()


def test_the_k_ary_counter_keeps_little():
    made = make("k-ary", 1, 1, seeded(), horizon=2**20)
    made.extend(np.ones(3000, dtype=np.int64))
    levels = levels_of(2**20, made.fanout)
    assert len(made.state()["_ahead"]) <= levels * (made.fanout // 2)
    with refused("fanout", 4, "odd"):
        make("k-ary", 1, 1, horizon=9, fanout=4)
    with refused("fanout", 1, 3):
        make("k-ary", 1, 1, horizon=9, fanout=1)


def test_a_long_horizon_is_no_work():
    made = make("k-ary", 1, 1, horizon=1 << 40)
    assert made.fanout == 25
    assert len(made.state()["_digits"]) == levels_of(1 << 40, 25)


# --- sanitizer -----------------------------------------------------------------------------------------------------


def test_a_sanitized_block_keeps_its_thresholds():
    """For n = 4096, ε = 1 and three domains, the rank error at every threshold is below 6 standard deviations."""
    rng = np.random.default_rng(4)
    for bound in (9, 1657, 10**6):
        items = np.minimum((rng.pareto(1.5, 4096) * bound / 50).astype(np.int64), bound)
        offline = ThresholdSanitizer(bound, Fraction(1))
        synthetic = offline.sanitize(items, seeded(5))
        assert len(synthetic) == len(items)
        assert 0 <= synthetic.min() <= synthetic.max() <= bound
        places = np.unique(np.concatenate([items, synthetic]))
        error = np.searchsorted(np.sort(items), places, "right") - np.searchsorted(synthetic, places, "right")
        # `deviation` leaves out the error inside nodes that are not divided. The noisy count of such a node is at
        # most three standard deviations of its noise, and the limit of 6 has room for it.
        assert np.abs(error).max() < 6 * offline.deviation()


@pytest.mark.parametrize("bound", [9, 1657, 20_000])
def test_a_sanitized_block_keeps_the_counts_of_single_values(bound):
    """For n = 4096 and ε = 1, no count is off by more than three times the bound on its root mean square error."""
    items = np.minimum((np.random.default_rng(4).pareto(1.5, 4096) * bound / 50).astype(np.int64), bound)
    offline = PointSanitizer(bound, Fraction(1))
    synthetic = offline.sanitize(items, seeded(5))
    assert len(synthetic) == len(items)
    error = np.bincount(synthetic, minlength=bound + 1) - np.bincount(items, minlength=bound + 1)
    assert np.abs(error).max() < 3 * offline.deviation(1)
    assert np.sqrt(np.mean(np.square(error))) < offline.deviation(1)


def test_the_class_of_questions_is_an_option_of_the_release():
    values = np.random.default_rng(3).integers(0, 10, 8000)
    made = make("sanitizer", 9, 1, seeded(), block=2000, concepts="points")
    share, error = share_of(made.parameters, made.extend(values), 3)
    assert abs(share - np.mean(values == 3)) < 3 * error < 0.1
    with refused("concepts", "'pairs'", "thresholds", "points"):
        make("sanitizer", 9, 1, concepts="pairs")
    with refused("bound", 1 << 20, "points"):
        make("sanitizer", 1 << 20, 1, concepts="points")


def test_the_papers_choices_of_tops_are_one_option():
    made = make("tops", 99, 1, seeded(), hold_out=64, span=256, as_papers=True)
    assert (made._objective, made._noise, made._smoother) == ("count", "laplace", "recent")
    same = make("tops", 99, 1, seeded(), hold_out=64, span=256, objective="count", noise="laplace", smoothing="paper",
                smoother="recent")  # fmt: skip
    values = np.random.default_rng(1).integers(0, 50, 700)
    assert made.extend(values).tolist() == same.extend(values).tolist()
    with refused("smoother", "'auto'", "'recent'", "as_papers"):
        make("tops", 99, 1, as_papers=True, smoother="auto")
    with refused("as_papers", "binary", "tops"):
        make("binary", 99, 1, horizon=9, as_papers=True)


def test_blocks_hold_back_or_pad_the_last_one():
    values = np.random.default_rng(3).integers(0, 100, 1000)
    made = Sanitizer(99, 2, seeded(), block=300)
    out = made.extend(values)
    assert len(out) == 900
    assert made.close("hold").tolist() == []
    again = Sanitizer(99, 2, seeded(), block=300)
    assert np.concatenate([again.extend(part) for part in np.split(values, [7, 299, 301])]).tolist() == out.tolist()
    assert len(again.close("pad")) == 300
    assert len(again.close("pad")) == 0
    with pytest.raises(Invalid, match="ending is 'drop'"):
        made.close("drop")


def test_padding_is_public_and_spread_evenly():
    class Echo:
        guarantee = "none"

        def sanitize(self, items, source):
            return items

    made = StreamingSanitizer(100, Echo(), seeded(), block=5, kept_items=5)
    made.extend(np.array([7]))
    assert made.close("pad").tolist() == [7, 25, 50, 75, 100]


def test_subsampled_blocks_and_their_standard_error():
    values = np.random.default_rng(3).integers(0, 100, 40_000)
    made = Sanitizer(99, "0.1", seeded(), block=20_000, share="0.1")
    items = made.extend(values)
    assert len(items) == 4000
    share, error = share_of(made.parameters, items, 49)
    assert abs(share - np.mean(values <= 49)) < 5 * error
    assert "drawn in secret" in made.guarantee
    for share in ("2", "0", "much"):
        with refused("share", f"'{share}'", "0.0001", 1):
            Sanitizer(9, 1, share=share)


def test_quantiles_are_monitored_block_by_block():
    pytest.importorskip("datasketches")
    from undertone_central import Quantiles

    sketch = Quantiles()
    with pytest.raises(Invalid, match="no item yet"):
        sketch.quantile(0.5)
    made = Sanitizer(999, 1, seeded(), block=2000)
    values = np.random.default_rng(3).integers(0, 1000, 10_000)
    for block in np.split(values, 5):
        sketch.update(made.extend(block))
        for share in (0.1, 0.5, 0.9):
            assert abs(sketch.quantile(share) / 1000 - share) < 0.06
    assert abs(sketch.share_at_most(499) - 0.5) < 0.06


def test_the_projection_onto_a_simplex():
    rng = np.random.default_rng(1)
    for _ in range(50):
        x, total = rng.normal(0, 10, 6), rng.random() * 20
        nearest = onto_simplex(x, total)
        assert nearest.min() >= 0
        assert nearest.sum() == pytest.approx(total)
        # At the optimum, all positive coordinates were shifted by the same amount, and the others by no more.
        shift = (x - nearest)[nearest > 0]
        # The tolerance is for rounding sums of up to six numbers and the total.
        rounded = 8 * np.finfo(float).eps * (np.abs(x).sum() + total)
        assert np.ptp(shift) < rounded
        assert (x[nearest == 0] <= shift.min() + rounded).all() if len(shift) else True
    assert onto_simplex(np.array([1.0, 2.0]), 0.0).tolist() == [0, 0]


# --- ranges over streams and nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tops", {"smoothing": 0}),
        ("tops", {"smoothing": 1}),
        ("pak", {"fanout": 2, "span": 64}),
        ("pak", {"fanout": 2, "span": 64, "consistency": "least-squares"}),
    ],
)
def test_range_sums_have_their_standard_error(name, options):
    """60 runs of three ranges. Values are constant, so that smoothing has no error but noise."""
    values = np.full(100, 4)
    ratios = []
    for seed in range(60):
        made = make(name, 9, 2, seeded(seed), theta=5, **({"span": 64, "fanout": 4} | options))
        numbers = made.extend(values)
        for first, end in ((0, 64), (3, 61), (70, 90)):
            answer = range_sum(made.parameters, [Piece(0, 5, numbers)], first, end)
            ratios.append(((answer.value - values[first:end].sum()) / answer.standard_error) ** 2)
    # A range may cut a block. The error inside the block is estimated from the change between blocks, which is larger.
    assert (0.2 if options.get("smoothing") else 0.4) < np.mean(ratios) < 1.7


def test_ranges_across_pieces_and_outside_them():
    made = Tops(9, 2, seeded(), hold_out=10, span=16, fanout=4, update="parallel", smoothing=0)
    numbers = made.extend(np.full(62, 4))
    pieces = [Piece(10, 5, numbers[:16]), Piece(36, 6, numbers[16:32])]
    parameters = made.parameters
    answer = range_sum(parameters, pieces, 12, 20)
    assert answer.value == numbers[2:10].sum()
    for first, end in ((0, 20), (20, 40), (40, 60), (90, 95)):
        with pytest.raises(Invalid, match="10:26, 36:52"):
            range_sum(parameters, pieces, first, end)
    with pytest.raises(Invalid, match="FIRST < END"):
        range_sum(parameters, pieces, 5, 5)
    with pytest.raises(Invalid, match="released so far: nothing"):
        range_sum(parameters, [], 0, 5)
    joined = [Piece(10, 5, numbers[:16]), Piece(26, 6, numbers[16:32])]
    both = range_sum(parameters, joined, 20, 30)
    parts = [range_sum(parameters, joined, 20, 26), range_sum(parameters, joined, 26, 30)]
    assert both.value == parts[0].value + parts[1].value
    assert both.standard_error**2 == pytest.approx(sum(part.standard_error**2 for part in parts))
    with pytest.raises(Invalid, match="synthetic items"):
        range_sum({"released": "items"}, joined, 0, 1)


def test_names_and_options_of_mechanisms():
    with pytest.raises(Invalid, match="expected one of tops, pak"):
        make("top", 1, 1)
    with pytest.raises(Invalid, match="smoother is not an option of pak, but of tops"):
        make("pak", 1, 1, smoother="mean")
    with pytest.raises(Invalid, match="binary needs a horizon"):
        make("binary", 1, 1)
    with pytest.raises(Invalid, match="mechanism is 'tops'"):
        make_counter({"mechanism": "tops", "bound": 1, "epsilon": "1"})
