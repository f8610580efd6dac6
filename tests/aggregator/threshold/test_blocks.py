"""θ by time of day: the rounds show blocks where readings differ by time of day, and about one θ where they do not."""

import functools
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from undertone_aggregator.counts.epochs import threshold_from_json, threshold_to_json
from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import CohortCounts, Query, ReportCounts, constant_variance, first_edges
from undertone_aggregator.threshold.blocks import _segmentations, in_blocks
from undertone_aggregator.threshold.choose import next_range, theta_from_reports
from undertone_aggregator.threshold.day import Phases, _tailed, day_of, piece_at, solved
from undertone_aggregator.threshold.limits import limit_blocks, limit_change, limit_first
from undertone_shared.mechanism import Hybrid

BOUND, CYCLE, DEVICES = 10_000, 48, 4_000
QUERY, VARIANCE = Query.fleet(DEVICES), constant_variance(1.0)


@functools.lru_cache(maxsize=4)
def laws(mechanism):
    """The distribution of a report at each level, as an array [levels + 1, symbols]."""
    rows = np.array([mechanism.weights(k) for k in range(mechanism.levels + 1)])
    return rows / rows.sum(axis=1, keepdims=True)


def drawn(mechanism, levels, rng):
    """The histogram of reports at these levels."""
    rows = laws(mechanism)
    return sum(rng.multinomial(number, rows[k]) for k, number in enumerate(np.bincount(levels)) if number)


def rounds(scale, slots=(48, 48, 48), seed=3):
    """The rounds' histograms by slot. ``scale``: slot of the cycle -> the mean of its exponential readings."""
    rng = np.random.default_rng(seed)
    edges, histograms = first_edges(BOUND), []
    for length in slots:
        mechanism = square_wave("1", edges)
        parts = np.zeros((CYCLE, mechanism.symbols), dtype=np.int64)
        for slot in range(length):
            readings = np.minimum(rng.exponential(scale(slot), DEVICES).astype(int), BOUND)
            parts[piece_at(slot, CYCLE)] += drawn(mechanism, np.searchsorted(edges[1:-1], readings, side="right"), rng)
        histograms.append(Phases(CohortCounts(mechanism, parts.sum(axis=0)), parts))
        edges = next_range([phases.whole for phases in histograms], bound=BOUND)
    return histograms


def chosen_from(histograms):
    cohort = [phases.whole for phases in histograms if isinstance(phases.whole, CohortCounts)]
    return theta_from_reports(cohort, bound=BOUND, variance=VARIANCE, query=QUERY)


def best(scale):
    """The θ with the least V θ²/(4n) + (scale e^(-θ/scale))² in one slot."""
    thetas = np.arange(1, BOUND)
    return int(thetas[np.argmin(VARIANCE(1) * thetas**2 / 4 / DEVICES + (scale * np.exp(-thetas / scale)) ** 2)])


@pytest.fixture(scope="module")
def night_and_day():
    return rounds(lambda slot: 60 if slot < 14 else 240)


@pytest.fixture(scope="module")
def chosen(night_and_day):
    return chosen_from(night_and_day)


@pytest.fixture(scope="module")
def day(night_and_day):
    return day_of(night_and_day, BOUND, CYCLE)


@pytest.fixture(scope="module")
def blocks(chosen, day):
    return in_blocks(chosen, day, 8, QUERY, VARIANCE)


@pytest.mark.slow
def test_night_and_day_are_told_apart(blocks):
    # A block of one or two slots at the beginning or the end costs little, so chance may make one.
    assert 2 <= len(blocks.ranges) <= 5
    in_force = np.repeat(
        [theta for _, _, theta in blocks.ranges],
        np.diff([*(first for first, _, _ in blocks.ranges), CYCLE]),
    )
    assert np.abs(np.log(in_force[1:13] / best(60))).max() < np.log(1.35)
    assert np.abs(np.log(in_force[15:47] / best(240))).max() < np.log(1.35)
    assert blocks.width == max(theta for _, _, theta in blocks.ranges)
    for block in blocks.blocks:
        assert block.choice.low <= block.choice.theta <= block.choice.high
        assert block.choice.density.sum() == pytest.approx(1.0)
    assert sum(block.share for block in blocks.blocks) == pytest.approx(1.0)


def test_the_blocks_survive_the_store(blocks):
    again = threshold_from_json(threshold_to_json(blocks))
    assert again.ranges == blocks.ranges
    assert np.array_equal(again.blocks[1].choice.density, blocks.blocks[1].choice.density)
    assert again.blocks[-1].share == blocks.blocks[-1].share


def test_as_many_blocks_as_allowed(chosen, day):
    assert in_blocks(chosen, day, 1, QUERY, VARIANCE) is chosen
    assert len(in_blocks(chosen, day, 2, QUERY, VARIANCE).ranges) == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_readings_that_are_alike_all_day_have_one_theta(seed):
    histograms = rounds(lambda _: 150, seed=seed)
    chosen = chosen_from(histograms)
    made = in_blocks(chosen, day_of(histograms, BOUND, CYCLE), 8, QUERY, VARIANCE)
    # If chance makes blocks, their θ are nearly alike.
    assert max(theta for _, _, theta in made.ranges) < 1.35 * min(theta for _, _, theta in made.ranges)


def test_a_round_of_half_a_day_tells_nothing_of_the_other():
    histograms = rounds(lambda slot: 60 if slot < 14 else 240, slots=(30, 30))
    day = day_of(histograms, BOUND, CYCLE)
    assert day is not None
    assert day.starts == (0,)
    assert day_of([], BOUND, CYCLE) is None


def test_few_reports_make_few_pieces(night_and_day):
    few = [
        Phases(CohortCounts(phases.whole.mechanism, (phases.parts // 100).sum(axis=0)), phases.parts // 100)
        for phases in night_and_day
    ]
    day = day_of(few, BOUND, CYCLE)
    assert day is None or len(day.starts) < 10


def test_a_piece_has_half_of_the_days_tail_and_all_of_its_own_large_readings():
    # The first two cells have more than nine tenths of the day's readings, so the tail begins with the third cell. The
    # piece's tail has twice as much as the day's, and all of it is in the fourth cell.
    day = np.array([[0.6, 0.32, 0.04, 0.02, 0.02]])
    piece = np.array([[[0.5, 0.34, 0.0, 0.16, 0.0]]])
    assert _tailed(piece, day)[0, 0] == pytest.approx([0.5, 0.34, 0.04, 0.08 + 0.02, 0.02])


def test_no_blocks_with_a_bottom(chosen, day):
    made = in_blocks(replace(chosen, bottom=10), day, 8, QUERY, VARIANCE)
    assert made.ranges == ((0, 10, chosen.theta),)
    assert "one range for the whole cycle" in made.notices[-1]


@pytest.mark.slow
def test_reports_of_a_block_tell_of_its_own_time(night_and_day, day):
    """Readings have doubled since the rounds, as the report phase's own histograms show."""
    rng = np.random.default_rng(5)
    mechanism = Hybrid(0, *_parts())
    histograms = list(night_and_day)
    for first, end, theta in ((0, 14, 400), (14, 48, 1600)):
        parts = np.zeros((CYCLE, mechanism.symbols), dtype=np.int64)
        for slot in range(first, end):
            readings = np.minimum(rng.exponential(120 if slot < 14 else 480, 20 * DEVICES), theta)
            up = rng.random(len(readings)) < readings / theta
            parts[slot] = drawn(mechanism.rounding, up.astype(int), rng).tolist() + [0] * (mechanism.symbols - 2)
        histograms.append(Phases(ReportCounts.of(mechanism.rounding, theta, parts.sum(axis=0)[:2]), parts[:, :2]))
    before, after = (given.excess(np.array([400]))[5].mean() for given in (day, day_of(histograms, BOUND, CYCLE)))
    assert after > 1.5 * before


@pytest.mark.slow
def test_reports_of_all_times_of_day_tell_the_days_mean():
    """Rounds of few devices do not know the mean of min(x, θ) well, but the report phase's own histograms do."""
    rng = np.random.default_rng(6)
    mechanism, theta = Hybrid(0, *_parts()), 600
    few = []
    for phases in rounds(lambda _: 150):
        kept = rng.binomial(phases.parts, 0.02)
        few.append(Phases(CohortCounts(phases.whole.mechanism, kept.sum(axis=0)), kept))
    parts = np.zeros((CYCLE, 2), dtype=np.int64)
    for slot in range(CYCLE):
        readings = np.minimum(rng.exponential(150, 20 * DEVICES), theta)
        up = rng.random(len(readings)) < readings / theta
        parts[slot] = drawn(mechanism.rounding, up.astype(int), rng)
    reports = Phases(ReportCounts.of(mechanism.rounding, theta, parts.sum(axis=0)), parts)
    truth = 150 * (1 - np.exp(-theta / 150))
    away = []
    for histograms in (few, [*few, reports]):
        made = day_of(histograms, BOUND, CYCLE)
        below = made.excess(np.array([0])) - made.excess(np.array([theta]))
        away.append(abs(np.tensordot(made.shares, below, 1).mean() / truth - 1))
    assert away[1] < 0.02 < away[0]


def _parts():
    from undertone_shared.mechanism import WindowMechanism

    return WindowMechanism(8, 3, 1, 1, 1), WindowMechanism(8, 3, 6, 2, 4, None, 2)


def test_segmentations_are_the_best_of_all():
    expected = np.random.default_rng(2).random((7, 5))

    def cost(starts):
        return sum(expected[a:b].sum(axis=0).min() for a, b in zip(starts, [*starts[1:], 7], strict=True))

    for count, starts in enumerate(_segmentations(expected, 4), 1):
        assert len(starts) == count
        every = [[0, *cuts] for cuts in combinations(range(1, 7), count - 1)]
        assert cost(starts) == pytest.approx(min(map(cost, every)))


def test_each_block_keeps_its_limits(blocks):
    held = limit_blocks(blocks, lambda choice, first, end, harmless: limit_change(choice, 10 if first == 0 else 10_000))
    assert held.ranges[0] == (0, 0, 20)
    assert held.ranges[-1][2] == 5_000
    assert all("in the part of the cycle that begins with slot" in sentence for sentence in held.notices)
    assert limit_blocks(
        replace(blocks, blocks=()), lambda choice, first, end, harmless: limit_change(choice, 10)
    ).ranges == ((0, 0, 20),)


def test_what_one_theta_would_be_is_no_harm(blocks):
    night = blocks.blocks[0].choice
    assert limit_first(replace(night, theta=9_000), QUERY, VARIANCE).theta < 9_000
    assert limit_first(replace(night, theta=9_000), QUERY, VARIANCE, 9_000).theta == 9_000


def test_the_fit_solves_its_linear_systems_to_ten_digits():
    rng = np.random.default_rng(1)
    pieces, size = 12, 5
    root = rng.standard_normal((pieces, size, size))
    blocks = 100.0 * root @ root.transpose(0, 2, 1)
    blocks[3] = 0.0  # a piece that has no report
    within = np.diag(rng.uniform(0.1, 10.0, size)) + 0.05
    apart = np.abs(np.subtract.outer(np.arange(pieces), np.arange(pieces))) / pieces
    between = np.linalg.inv(np.exp(-np.minimum(apart, 1 - apart) * 8))
    right = rng.standard_normal((pieces, size))
    whole = np.kron(between, within)
    for piece in range(pieces):
        part = slice(piece * size, (piece + 1) * size)
        whole[part, part] += blocks[piece]
    exact = np.linalg.solve(whole, right.ravel()).reshape(right.shape)
    assert np.abs(solved(between, within, blocks, right) - exact).max() < 1e-10 * np.abs(exact).max()
    assert not solved(between, within, blocks, 0 * right).any()
