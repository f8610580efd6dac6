import numpy as np
import pytest

from undertone_simulator.readings.populations import BOUND, HALF_HOURS, POPULATIONS, households
from undertone_simulator.readings.populations.households import SHAPE, _appliances
from undertone_studies.theta_populations import in_time_order

# Quantiles of the readings of EDRP. The docstring of `readings/populations/households.py` has the same numbers.
QUANTILES = {0.25: 66, 0.5: 129, 0.75: 252, 0.9: 488, 0.95: 755, 0.99: 1408, 0.999: 2531}


@pytest.fixture(scope="module")
def readings():
    return households(622, 14, seed=1)


def test_the_same_seed_gives_the_same_households():
    assert np.array_equal(households(5, 2, 7).values, households(5, 2, 7).values)
    assert not np.array_equal(households(5, 2, 7).values, households(5, 2, 8).values)


def test_readings_are_integers_of_one_day_and_more(readings):
    assert readings.values.shape == (622, 14 * HALF_HOURS)
    assert readings.values.dtype == np.int64
    assert readings.values.min() == 0
    assert readings.values.max() <= BOUND
    assert readings.present.all()
    assert (readings.unit, readings.per_day) == ("Wh", 48)


@pytest.mark.slow_but("star", "holiday", "households")
@pytest.mark.parametrize("name", sorted(POPULATIONS))
def test_any_part_is_the_same_by_itself(name):
    source = POPULATIONS[name](1)
    day = source.per_day
    whole, _ = source.part(0, 1500, range(3 * day))
    # The source caches the day that was asked for last. The parts lie in one day, in two days at once, and in an
    # earlier day again.
    for columns in (range(3), range(3, day), range(day - 1, day + 2), range(2), range(2 * day, 3 * day)):
        part, _ = source.part(1000, 1500, columns)
        assert np.array_equal(part, whole[list(columns), 1000:])


@pytest.mark.parametrize(("share", "published"), QUANTILES.items())
def test_quantiles_are_within_a_tenth_of_the_published(readings, share, published):
    assert np.quantile(readings.values, share) == pytest.approx(published, rel=0.1)


def test_mean_spread_and_daily_shape(readings):
    values = readings.values.astype(float)
    means = values.mean(axis=1)
    assert means.mean() == pytest.approx(219, rel=0.1)
    assert np.log(means).std() == pytest.approx(0.56, rel=0.1)
    day = values.mean(axis=0).reshape(-1, HALF_HOURS).mean(axis=0) / means.mean()
    assert day[8] < 0.55
    assert day[36] > 1.25


@pytest.mark.slow
def test_appliances_run_on_over_midnight():
    """If appliances start evenly over the day, each half-hour has the same mean, also the first.

    For 200,000 days, the standard error of a mean is .7 % of the mean. The limit of 4.5 % is more than six standard
    errors, which one of 48 means exceeds with a probability below 1e-7. If a day began with no appliance running, its
    first half-hour would have 40 % too little.
    """
    rng = np.random.default_rng(5)
    load = _appliances(rng, np.full((HALF_HOURS, 200_000), 0.1)).mean(axis=1)
    assert np.abs(load / load.mean() - 1).max() < 0.045


@pytest.mark.data
def test_the_shape_is_that_of_the_meters(undertone_data):
    day = in_time_order(undertone_data).mean(axis=1).reshape(-1, HALF_HOURS).mean(axis=0)
    assert np.round(day / day.mean(), 2).tolist() == list(SHAPE)


def test_half_hours_are_correlated(readings):
    values = readings.values[:200].astype(float)
    lag = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in values]
    assert np.mean(lag) == pytest.approx(0.47, abs=0.06)


@pytest.mark.parametrize(("count", "days"), [(0, 1), (1, 0)])
def test_nobody_or_no_day_is_refused(count, days):
    with pytest.raises(ValueError, match="at least one"):
        households(count, days, 0)
