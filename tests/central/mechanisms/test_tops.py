"""ToPS as a whole: block form, state, thresholds on real data, smoothers, updates; and PAK beside it."""

import json
from fractions import Fraction

import numpy as np
import pytest

from support.central import seeded
from undertone_central import Pak, Tops
from undertone_central.mechanisms import pilot
from undertone_central.mechanisms.smoothers import (
    Auto,
    Exponential,
    Mean,
    Median,
    MovingAverage,
    Recent,
    best_smoothing,
    paper_smoothing,
)
from undertone_central.mechanisms.threshold import Workload, candidates, choose_threshold, scores
from undertone_shared.errors import Invalid

VALUES = np.minimum(np.random.default_rng(1).pareto(1.2, 500) * 5, 60).astype(np.int64)
VALUES[::50] = -7
SMALL = {"hold_out": 20, "span": 64, "fanout": 4, "smoothing": 1}
VARIANTS = {
    "plain": {"smoothing": 0},
    "smoothed": {},
    "median": {"smoothing": 2, "smoother": "median"},
    "mean": {"smoother": "mean"},
    "moving average": {"smoother": "moving-average"},
    "parallel": {"update": "parallel"},
    "sequential": {"update": "sequential", "smoother": "exponential"},
    "monotone, least absolute": {"monotone": True, "consistency": "least-absolute"},
    "public threshold": {"theta": 9},
    "blocks from drift": {"hold_out": 120, "smoothing": "auto"},
    "blocks from drift, sequential": {"hold_out": 120, "smoothing": "auto", "update": "sequential"},
    "blocks from drift, parallel": {"hold_out": 120, "smoothing": "auto", "update": "parallel"},
    "the authors' rounding": {"smoothing": "paper", "smoother": "recent"},
    "the paper's objective": {"objective": "count", "c": "7.5", "noise": "laplace"},
}


def tops(**options):
    return Tops(50, "1", seeded(3), **(SMALL | options))


def pak(**options):
    return Pak(50, "1", seeded(3), **({"hold_out": 20, "span": 64, "fanout": 4} | options))


MAKERS = {f"tops, {name}": lambda o=options: tops(**o) for name, options in VARIANTS.items()} | {
    "pak": pak,
    "pak, consistent": lambda: pak(consistency="least-squares", threshold="s-p", noise="gaussian"),
    "pak, cauchy": lambda: pak(threshold="s-p", noise="cauchy"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_block_form_is_push_value_by_value(name):
    whole = MAKERS[name]().extend(VALUES).tolist()
    by_seven, one_by_one = MAKERS[name](), MAKERS[name]()
    parts = [by_seven.extend(VALUES[i : i + 7]) for i in range(0, len(VALUES), 7)]
    assert np.concatenate(parts).tolist() == whole
    assert [x for value in VALUES for x in one_by_one.push(int(value))] == whole


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "pak" and "cauchy" not in name])
def test_a_state_goes_on_where_it_was_saved(name):
    """Consistent noise is a function of saved keys, so it can be compared. Plain nodes draw anew, so they cannot."""
    straight = MAKERS[name]()
    expected = straight.extend(VALUES).tolist()
    released, mechanism = [], MAKERS[name]()
    for i in range(0, len(VALUES), 37):
        released += mechanism.extend(VALUES[i : i + 37]).tolist()
        state = json.loads(json.dumps(mechanism.state()))
        source = mechanism._source
        mechanism = MAKERS[name]()
        mechanism.restore(state)
        for owner in (mechanism, getattr(mechanism, "_publisher", mechanism)):
            owner._source = source
        inner = getattr(mechanism, "_publisher", mechanism)._hierarchy
        inner._source = source
    assert released == expected


def test_states_of_others_are_refused():
    with pytest.raises(Invalid, match="does not belong to Tops"):
        tops().restore({"theta": 3})
    with pytest.raises(Invalid, match="does not belong to Pak"):
        pak().restore(tops().state())


def test_withheld_values_are_never_published_and_updates_keep_their_schedule():
    for update, expected in (("none", 480), ("parallel", 500 - 20 * 6), ("sequential", 480)):
        mechanism = tops(update=update)
        assert mechanism.withholding
        assert len(mechanism.extend(VALUES)) == expected
    mechanism, thetas = tops(update="sequential"), []
    for value in VALUES:
        mechanism.push(int(value))
        thetas.append(mechanism.theta)
    changes = [i + 1 for i in range(1, 500) if thetas[i] != thetas[i - 1]]
    assert all((i - 20) % 64 == 0 for i in changes)
    assert mechanism.phase == 1 + (500 - 20) // 64


def test_block_sums_are_what_was_released_and_monotone_never_falls():
    for smoother in ("recent", "mean", "median", "moving-average", "exponential"):
        mechanism = tops(theta=12, smoother=smoother)
        plain = tops(theta=12, smoothing=1)
        sums = mechanism.extend(VALUES).reshape(-1, 4).sum(axis=1)
        assert sums.tolist() == plain.extend(VALUES).reshape(-1, 4).sum(axis=1).tolist()
    falling = tops(theta=12, smoothing=0).extend(VALUES)
    rising = tops(theta=12, smoothing=0, monotone=True).extend(VALUES)
    assert falling.min() < 0
    assert 0 <= rising.min() <= rising.max() <= 12


def test_smoothers_predict_as_the_paper_defines_them():
    sums = [10, 20, 0, 40, 30, 7, 9]
    means = [np.mean(sums[max(0, i - 5) : i]) for i in range(1, 8)]
    exponential = [10.0]
    for x in sums[1:]:
        exponential.append(0.4 * exponential[-1] + 0.6 * x)
    for smoother, expected in (
        (Recent(), sums),
        (Mean(), [np.mean(sums[:i]) for i in range(1, 8)]),
        (Median(), [np.median(sums[:i]) for i in range(1, 8)]),
        (MovingAverage(), means),
        (Exponential(), exponential),
    ):
        smoother.start(3.5)
        assert smoother.prediction == 3.5
        for x, u in zip(sums, expected, strict=True):
            smoother.update(x)
            assert smoother.prediction == pytest.approx(u)


def test_the_median_forgets_what_is_4096_blocks_old():
    smoother = Median()
    for x in [*range(5000), *[1] * 4096]:
        smoother.update(x)
    assert smoother.prediction == 1
    assert len(smoother._sorted) == len(smoother._recent) == 4096


def test_smoothing_of_equation_7():
    assert [best_smoothing(16, 5, Fraction(e, 100)) for e in (1, 2, 3, 4, 5, 10, 20)] == [3, 3, 3, 2, 2, 2, 2]


@pytest.fixture(scope="module")
def pos(request):
    folder = request.getfixturevalue("undertone_data")
    return np.load(folder / "pos_length.npz")["v"].astype(np.int64)


def test_noise_free_thresholds_of_the_paper_on_pos(pos):
    """Eq. 6 with c = 60 and m = 65,536, without noise."""
    histogram = np.bincount(pos[:65536], minlength=1658)
    thetas = candidates(1657, "count")
    chosen = []
    for epsilon in (".01", ".02", ".05", ".1", ".2"):
        workload = Workload(2**20, 16, 5, Fraction(epsilon))
        chosen.append(int(thetas[np.argmax(scores(histogram, thetas, workload, workload.epsilon, "count"))]))
    assert chosen == [46, 51, 59, 66, 79]


def test_the_default_threshold_needs_no_constant(pos):
    """If the data are scaled, so is the threshold, to within the 10 % between candidates."""
    workload = Workload(2**20, 16, 3, Fraction(1, 20))
    chosen = []
    for factor in (1, 100):
        histogram = np.bincount(pos[:65536] * factor, minlength=1657 * factor + 1)
        thetas = candidates(1657 * factor, "excess")
        chosen.append(thetas[np.argmax(scores(histogram, thetas, workload, workload.epsilon))] / factor)
    assert chosen[1] == pytest.approx(chosen[0], rel=0.11)


def test_a_threshold_that_is_far_too_large_is_rare_where_few_values_choose_it():
    """The ratio of the MSE to that of the best θ is small in the mean, not only in the median."""
    bound, m, scale, epsilon = 60_000, 16_384, 100, Fraction(1, 100)
    workload = Workload(2**20, 16, 2, epsilon)
    values = np.random.default_rng(5).exponential(scale, m).astype(np.int64)
    histogram = np.bincount(values, minlength=bound + 1)
    thetas = candidates(bound, "excess")
    errors = (workload.root_k * thetas / float(epsilon)) ** 2 + (2**20 * scale * np.exp(-thetas / scale)) ** 2 / 6
    source = seeded(7)
    chosen = [choose_threshold(histogram, workload, epsilon, source) for _ in range(400)]
    ratios = errors[np.searchsorted(thetas, chosen)] / errors.min()
    assert np.mean(ratios) < 2.5
    assert np.median(ratios) < 1.5


def mse_at(values, queries, workload):
    """The mean square error of the 200 queries for each θ, from noise after consistency and from truncation."""
    k = workload.root_k**2
    thetas = np.unique(np.geomspace(1, values.max(), 120).astype(np.int64))
    errors = []
    for theta in thetas:
        excess = np.concatenate([[0], np.cumsum(np.maximum(values - theta, 0))])
        bias = np.mean((excess[queries[:, 1]] - excess[queries[:, 0]]).astype(float) ** 2)
        errors.append(k * float(theta) ** 2 / float(workload.epsilon) ** 2 + bias)
    return thetas, np.array(errors)


def test_on_meter_readings_the_default_threshold_is_within_twice_the_best(undertone_data):
    """θ is chosen 15 times on EDRP in time order at ε = .05; errors are those of ToPS without smoothing.

    The median error is within 1.5 times the least one, and at most five of the errors are over twice the least one.
    """
    readings = np.load(undertone_data / "edrp_scotland_622x4416_halfhour_wh.npz")["wh"].T.reshape(-1).astype(np.int64)
    workload = Workload(2**20, 16, 5, Fraction(1, 20))
    queries = np.sort(np.random.default_rng(20211115).integers(0, 2**20, (200, 2)), axis=1)
    thetas, errors = mse_at(readings[65536 : 65536 + 2**20], queries, workload)
    histogram = np.bincount(readings[:65536], minlength=20_001)
    source = seeded(6)
    ratios = []
    for _ in range(15):
        theta = choose_threshold(histogram, workload, workload.epsilon, source)
        ratios.append(np.interp(theta, thetas, errors) / errors.min())
    assert np.median(ratios) < 1.5
    assert sum(ratio > 2 for ratio in ratios) <= 5


def test_pak_is_as_bad_as_the_paper_says(pos):
    """At ε = .05, the shift alone is far beyond the bound, so θ = B. ToPS chooses a θ from 31 to 109."""
    mechanism = Pak(1657, ".05", seeded(2))
    mechanism.extend(pos[:65536])
    assert mechanism.theta == 1657
    assert "δ = 2.33e-10" in mechanism.guarantee
    ours = Tops(1657, ".05", seeded(2))
    ours.extend(pos[:65536])
    assert 30 < ours.theta < 110
    generous = Pak(1657, "5", seeded(2), threshold="s-p")
    generous.extend(pos[:65536])
    assert abs(generous.theta - 39) < 12


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"span": 100}, "power of the fan-out"),
        ({"smoothing": 3}, "smoothing is 3"),
        ({"smoother": "best"}, "smoother is 'best'"),
        ({"update": "never"}, "update is 'never'"),
        ({"theta": 51}, "theta is 51"),
        ({"theta": 5, "update": "parallel"}, "a given theta never changes"),
        ({"objective": "mean"}, "objective is 'mean'"),
        ({"c": "much"}, "c is 'much'"),
        ({"hold_out": 0}, "hold_out is 0"),
        ({"update": "sequential", "share": "1"}, "share is '1'"),
    ],
)
def test_bad_options_of_tops(options, sentence):
    with pytest.raises(Invalid, match=sentence):
        tops(**options)


def test_bad_values_and_parameters():
    for value in ("7", 1.5, True, np.float64(2)):
        with pytest.raises(Invalid, match="expected an integer"):
            tops().push(value)
    with pytest.raises(Invalid, match="list of integers"):
        tops().extend(np.array([1.5]))
    assert tops(theta=9).extend(np.zeros(0)).tolist() == []
    with pytest.raises(Invalid, match="bound is 0"):
        Tops(0, 1)
    for epsilon in (0, "x", "1e999999", -1, "nan"):
        with pytest.raises(Invalid, match="epsilon is"):
            Tops(5, epsilon)
    with pytest.raises(Invalid, match="noise is 'gaussian'"):
        pak(noise="gaussian")
    with pytest.raises(Invalid, match="delta is"):
        pak(delta="1")


def test_the_authors_rounding_of_equation_7():
    """The authors' code applies this rule to a real number s: s = 3 up to ε = .05, then 2."""
    epsilons = ("0.01", "0.02", "0.05", "0.06", "0.1", "0.2", "0.5", "1")
    assert [paper_smoothing(16, 5, Fraction(e)) for e in epsilons] == [3, 3, 3, 2, 2, 2, 2, 2]
    assert paper_smoothing(2, 3, Fraction(1, 10_000)) == 2


def test_the_auto_smoother_follows_what_predicts_best():
    rng = np.random.default_rng(4)
    quiet = rng.normal(1000, 300, 400).astype(int)
    walking = (1000 + np.cumsum(rng.normal(0, 300, 400))).astype(int)
    for sums, rival in ((quiet, Mean()), (walking, Recent())):
        auto = Auto()
        for smoother in (auto, rival):
            smoother.start(500.0)
        ours, theirs = (np.array(s.follow(sums)[:-1]) - sums for s in (auto, rival))
        assert (ours[50:] ** 2).mean() <= 1.1 * (theirs[50:] ** 2).mean()


def test_drift_decides_the_blocks_and_the_mean_the_first_prediction():
    """A block has few values where the level jumps, and many where it does not."""
    rng = np.random.default_rng(8)
    n = 65536 + 256
    still = rng.integers(0, 40, n)
    moving = still + rng.integers(0, 400, n // 256).repeat(256)
    groups, firsts = [], []
    for values in (still, moving):
        made = Tops(500, "0.5", seeded(3))
        released = made.extend(values)
        groups.append(made.parameters["group"])
        firsts.append(released[0])
    assert groups == [2048, 256]
    # The scale of the mean's noise is below 1: at most 500/(0.01 × 65,536). The rest of the limit is for rounding.
    assert abs(firsts[0] - still.mean()) < 3


def test_what_one_size_of_blocks_shows_corrects_another():
    """Values move together, and a lucky draw hides the drift of blocks of 1024 values.

    Blocks of other sizes show it.
    """
    rng = np.random.default_rng(9)
    level = 200 + np.cumsum(rng.normal(0, 6, 65536 // 256)).repeat(256)
    values = np.clip(level + rng.integers(0, 40, 65536), 0, 500).astype(np.int64)
    chosen = [
        pilot.best_layout(values, 500, 1 << 20, 16, Fraction(1), Fraction(1, 20), seeded(seed)).group
        for seed in range(40)
    ]
    assert chosen.count(256) >= 36


@pytest.mark.parametrize("layout", [None, [1, 2], [3, 4, 2], [4, 4, 60]])
def test_a_damaged_layout_is_refused(layout):
    made = Tops(50, "1", seeded(3), hold_out=20, span=64, fanout=4)
    with pytest.raises(Invalid, match="layout is"):
        made.restore(made.state() | {"_layout": layout})


@pytest.mark.parametrize("smoothing", ["deep", "9", "-1", 3])
def test_a_wrong_smoothing_is_named(smoothing):
    with pytest.raises(Invalid, match="smoothing is"):
        Tops(50, "1", seeded(3), hold_out=20, span=64, fanout=4, smoothing=smoothing)
