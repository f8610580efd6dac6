"""What truncation removes at each time of day. Each part of the day has its own fit, which later readings adjust."""

import numpy as np
import pytest

from undertone_aggregator.estimate.excess import ExcessModel, pieces_of
from undertone_aggregator.estimate.removed import Reported
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.pieces import Pieces
from undertone_aggregator.threshold.result import Block

DAY, THETA = 24, 300
BOUND = 3000
EDGES = tuple(range(BOUND + 2))
VALUES = np.arange(BOUND + 1)
MANY = 1e12


def exponential(mean):
    density = np.exp(-VALUES / mean)
    return density / density.sum()


def active(share, mean=100.0):
    """A share of the devices has exponential readings, the others read 0."""
    density = share * exponential(mean)
    density[0] += 1.0 - share
    return density


def excess(density, theta=THETA):
    return float(np.maximum(VALUES - theta, 0) @ density)


def truncated(density, theta=THETA):
    return float(np.minimum(VALUES, theta) @ density)


def pieces(densities, errors=0.05):
    """Pieces of the day, equally long. Two draws of each piece are its density times 1 ± ``errors`` above θ."""
    of_piece = []
    for density in densities:
        draws = [density.copy(), density.copy()]
        for draw, factor in zip(draws, (1.0 - errors, 1.0 + errors), strict=True):
            draw[THETA + 1 :] *= factor
            draw[0] += 1.0 - draw.sum()
        of_piece.append(draws)
    n = len(densities)
    return Pieces.of(np.array(of_piece), EDGES, [DAY * i // n for i in range(n)], [1.0 / n] * n)


def reported(densities, days=4, error=0.01):
    """Reports of whole days whose pieces have these densities."""
    slot = np.arange(days * DAY)
    means = np.array([truncated(density) for density in densities])[slot % DAY * len(densities) // DAY]
    return Reported(slot, means, np.full(len(slot), error), np.full(len(slot), MANY))


def model(densities, errors=0.05, ranges=((0, 0, THETA),)):
    return ExcessModel(pieces(densities, errors), ranges, DAY)


def test_each_piece_has_the_excess_of_its_own_fit():
    """In the second piece, half the devices use twice as much. The mean stays nearly the same, but the excess grows."""
    day = [active(1.0, 60.0), active(0.5, 120.0)]
    assert truncated(day[0]) == pytest.approx(truncated(day[1]), rel=0.08)
    removed = model(day).removed(reported(day))
    assert removed.bias[[0, DAY - 1]] == pytest.approx([excess(density) for density in day], rel=0.1)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([active(share) for share in (0.3, 0.6, 0.2, 0.8)], [active(share) for share in (0.36, 0.72, 0.24, 0.96)]),
        ([exponential(m) for m in (60, 110, 50, 140)], [exponential(1.3 * m) for m in (60, 110, 50, 140)]),
    ],
    ids=["more devices are active", "readings are larger"],
)
def test_the_pieces_tell_which_explanation_a_larger_mean_has(before, now):
    """A mean grows if more devices are active or if readings are larger.

    The differences between the pieces of the day show which of the two is likelier, and the interval holds the truth.
    """
    made = model(before)
    removed = made.removed(reported(now))
    truth = np.array([excess(density) for density in now])[np.arange(4 * DAY) % DAY * 4 // DAY]
    assert (made.larger > 0.5) == (before[0][0] < 0.3)
    assert np.abs(removed.bias - truth).max() < 0.3 * truth.max()
    assert (np.abs(removed.bias - truth) < 1.96 * removed.standard_error).all()


def test_a_slot_of_one_day_that_is_larger_loses_more():
    day = [exponential(100)] * 2
    news = reported(day, days=8)
    news.mean[4 * DAY + 12 :][:6] *= 1.4
    removed = model(day).removed(news)
    usual, larger = removed.bias[12:18].mean(), removed.bias[4 * DAY + 12 :][:6].mean()
    assert larger > 1.3 * usual
    assert removed.bias[5 * DAY + 12 :][:6].mean() == pytest.approx(usual, rel=0.1)


def test_noise_alone_moves_nothing():
    rng = np.random.default_rng(3)
    day = [exponential(100)] * 2
    news = reported(day, days=8, error=20.0)
    news.mean[:] += rng.normal(0.0, 20.0, len(news.mean))
    removed = model(day).removed(news)
    assert removed.bias.mean() == pytest.approx(excess(day[0]), rel=0.15)
    assert removed.bias.std() < 0.15 * removed.bias.mean()


def test_less_than_half_of_a_cycle_moves_nothing():
    day = [exponential(100)] * 2
    news = reported(day)
    few = Reported(*(column[: DAY // 2 - 1] for column in news))
    few.mean[:] *= 2.0
    made = model(day)
    assert made.moved(few) is None
    assert made.removed(few).bias == pytest.approx(np.full(DAY // 2 - 1, excess(day[0])), rel=0.05)


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.0])
def test_the_factor_of_readings_that_moved(factor):
    made = model([exponential(100)] * 2)
    middle, low, high = made.moved(reported([exponential(100 * factor)] * 2))[DAY]
    assert low <= middle <= high
    assert middle == pytest.approx(factor, rel=0.06)


def test_a_truncated_mean_that_no_factor_explains_leaves_the_factor_as_it_was():
    """Readings are 0 or 1000.

    Their truncated mean tells how many are 1000, and nothing about a factor of all readings.
    """
    density = np.zeros(BOUND + 1)
    density[0], density[1000] = 0.7, 0.3
    news = reported([density])
    news.mean[:] *= 1.1
    removed = model([density], 0.1).removed(news)
    assert ((removed.bias > 150) & (removed.bias < 330)).all()
    assert (removed.standard_error < 1.5 * removed.bias).all()


def test_few_devices_and_an_unknown_error_of_the_fit_widen():
    known, unknown = (
        Threshold(THETA, 280, 320, 20.0, error, 1.0, exponential(100), EDGES, "ems") for error in (1.0, float("nan"))
    )
    news = reported([exponential(100)])
    few = news._replace(devices=np.full(len(news.slot), 10.0))
    errors = [
        ExcessModel(pieces_of(of), ((0, 0, THETA),), DAY).removed(asked).standard_error[0]
        for of, asked in ((known, news), (known, few), (unknown, news))
    ]
    assert errors[0] < min(errors[1:])
    assert errors[2] > 0.9 * excess(exponential(100))


def test_a_slot_has_the_theta_of_its_block():
    made = model([exponential(100)], ranges=((0, 0, 300), (12, 0, 600)))
    assert made.at_phases("excess")[[0, 23]] == pytest.approx(
        [excess(exponential(100), 300), excess(exponential(100), 600)], rel=0.05
    )


def test_without_pieces_each_block_has_the_distribution_that_it_chose():
    choices = [Threshold(THETA, 280, 320, 20.0, 1.0, 1.0, exponential(mean), EDGES, "robust") for mean in (50.0, 100.0)]
    chosen = Threshold(THETA, 280, 320, 20.0, 1.0, 1.0, exponential(75), EDGES, "robust")
    chosen = Threshold(**{**vars(chosen), "blocks": [Block(0, 0.5, choices[0]), Block(12, 0.5, choices[1])]})
    known = pieces_of(chosen)
    assert list(known.starts) == [0, 12]
    of_theta = [np.interp(THETA, known.limits, row) for row in known.excess]
    assert of_theta == pytest.approx([excess(exponential(mean)) for mean in (50, 100)], rel=0.12)


def test_nothing_is_removed_where_nothing_exceeds_theta():
    made = model([exponential(10)], ranges=((0, 0, BOUND),))
    removed = made.removed(reported([exponential(10)]))
    assert removed.bias == pytest.approx(np.zeros(len(removed.bias)))


def uniform():
    return np.full(BOUND + 1, 1.0 / (BOUND + 1))


def test_nothing_is_removed_at_the_bound_however_the_means_vary():
    """No reading is above the bound, so a θ at the bound removes nothing even if readings grow."""
    news = reported([uniform()])
    news.mean[:] = truncated(uniform(), BOUND) * np.linspace(0.8, 1.2, len(news.mean))
    removed = model([uniform()], ranges=((0, 0, BOUND),)).removed(news)
    assert removed.bias == pytest.approx(np.zeros(len(removed.bias)))
    assert removed.standard_error == pytest.approx(np.zeros(len(removed.bias)))


def test_the_excess_between_the_last_two_limits():
    """Many readings are at the bound, as when a reading is the time for which a switch was on.

    Between the last two limits, the excess then falls linearly to 0 at the bound.
    """
    density = 0.7 * uniform()
    density[BOUND] += 0.3
    made = ExcessModel(pieces([density]), ((0, 0, BOUND - 200),), DAY)
    assert made.excess == pytest.approx(excess(density, BOUND - 200), rel=0.1)
