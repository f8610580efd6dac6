"""The recursion equals the dense Gaussian process posterior, for independent and for correlated noise."""

import numpy as np
import pytest
from scipy.special import ive

from undertone_aggregator.estimate.seasonal import Calendar, Seasonal
from undertone_aggregator.estimate.state_space import Components, Filter, Noise, Observed, smooth

TOLERANCE = 1e-6


def dense(signal, noise, values):
    """(mean, variance, log likelihood) of the signal by the textbook's formulas, from covariance matrices [n, n]."""
    both = signal + noise
    mean = signal @ np.linalg.solve(both, values)
    variance = np.diag(signal - signal @ np.linalg.solve(both, signal))
    fit = values @ np.linalg.solve(both, values) + np.linalg.slogdet(both)[1] + len(values) * np.log(2 * np.pi)
    return mean, variance, -fit / 2


def chains(variance, carried, lag):
    """The covariance of noise with these variances, where e_i = carried_i e_(i - lag) + an independent part."""
    n = len(variance)
    back = np.eye(n)
    new = variance.copy()
    for i in range(lag, n):
        back[i, i - lag] = -carried[i]
        new[i] -= carried[i] ** 2 * variance[i - lag]
    inverse = np.linalg.inv(back)
    return inverse @ np.diag(new) @ inverse.T


def agrees(components, observed, signals, noise):
    lag = 0 if observed.noise.carried is None else observed.noise.lag
    run = Filter(components, lag)
    trace = run.run(observed, keep=True)
    means, variances = smooth(trace)
    for m, signal in enumerate(signals):
        mean, variance, log = dense(signal, noise, observed.values)
        assert np.abs(means[:, m] - mean).max() < TOLERANCE
        assert np.abs(variances[:, m] - variance).max() < TOLERANCE
        assert abs(trace.terms[:, m].sum() - log) < TOLERANCE
        # The causal result uses only the slots so far, so it is the posterior of the first slots alone.
        for stop in (1, 7, len(mean)):
            first, spread, _ = dense(signal[:stop, :stop], noise[:stop, :stop], observed.values[:stop])
            assert abs(trace.mean[stop - 1, m] - first[-1]) < TOLERANCE
            assert abs(trace.variance[stop - 1, m] - spread[-1]) < TOLERANCE


def random_problem(rng, n, models=3, d=5):
    components = Components(rng.uniform(0.1, 2, (models, d)), rng.uniform(0, 0.5, (models, d)))
    return components, rng.standard_normal((n, d)), rng.standard_normal(n), rng.uniform(0.3, 2, n)


def covariances(components, loading, slots):
    distance = np.abs(np.subtract.outer(slots, slots))
    return [
        sum(
            v * np.exp(-r * distance) * np.outer(h, h)
            for v, r, h in zip(components.variance[m], components.rate[m], loading.T, strict=True)
        )
        for m in range(len(components.variance))
    ]


def test_independent_noise_and_missing_slots():
    rng = np.random.default_rng(1)
    components, loading, values, variance = random_problem(rng, 60)
    slots = 1000 + np.sort(rng.choice(90, 60, replace=False))
    observed = Observed(slots, values, loading, Noise(variance))
    agrees(components, observed, covariances(components, loading, slots), np.diag(variance))


@pytest.mark.parametrize("lag", [1, 3])
def test_correlated_noise_of_chains_that_begin_anew(lag):
    rng = np.random.default_rng(2)
    components, loading, values, variance = random_problem(rng, 60)
    carried = rng.uniform(0.2, 0.95, 60) * np.sqrt(variance / np.roll(variance, lag))
    carried[:lag], carried[30:33] = 0.0, 0.0
    slots = np.arange(500, 560)
    observed = Observed(slots, values, loading, Noise(variance, carried, lag))
    agrees(components, observed, covariances(components, loading, slots), chains(variance, carried, lag))


def test_a_missing_slot_of_a_chain():
    """After a gap, the noise depends on the last slot of its chain before the gap."""
    rng = np.random.default_rng(3)
    components, loading, values, variance = random_problem(rng, 12)
    carried = np.full(12, 0.5) * np.sqrt(variance / np.roll(variance, 1))
    carried[0] = 0.0
    slots = np.array([0, 1, 2, 5, 6, 7, 11, 12, 13, 14, 20, 21])
    observed = Observed(slots, values, loading, Noise(variance, carried))
    agrees(components, observed, covariances(components, loading, slots), chains(variance, carried, 1))


@pytest.mark.parametrize(("cycle", "long", "cycles"), [(1, False, 70), (7, True, 10), (8, False, 70)])
def test_the_season_is_the_quasi_periodic_kernel(cycle, long, cycles):
    """The components of `Seasonal` have the covariance that its docstring states, also for days off."""
    rng = np.random.default_rng(4)
    slots = np.sort(rng.choice(80, 50, replace=False))
    off = (slots // cycle) % 7 >= 5
    calendar = Calendar(cycle, (slots % cycle) / cycle, off)
    model = Seasonal(cycle, True, long=long)
    parameters = np.array([[0.8, 0.9, 9.0, 0.4, 2.5, 0.3, 0.1, 0.3], [1.1, 1.4, 30.0, 0.2, 6.0, 0.5, 0.05, 0.6]])
    values, variance = rng.standard_normal(50), rng.uniform(0.1, 0.3, 50)
    observed = Observed(slots, values, model.loading(calendar), Noise(variance))
    distance = np.abs(np.subtract.outer(slots, slots))
    phase = np.subtract.outer(slots, slots) / cycle
    signals = []
    for season, smoothness, drift, memory, reach, slow, chance, rest in parameters:
        wave = np.exp(-2 * np.sin(np.pi * phase) ** 2 / smoothness**2)
        signals.append(
            100.0**2
            + slow**2 * np.exp(-distance / (cycles * cycle))
            + season**2 * wave * np.exp(-distance / (drift * cycle))
            + rest**2 * wave * np.exp(-distance / (4 * drift * cycle)) * np.outer(off, off)
            + memory**2 * np.exp(-distance / reach)
            + chance**2 * (distance == 0)
        )
    agrees(model.components(np.log(parameters)), observed, signals, np.diag(variance))


def test_going_on_from_a_state_is_the_same_as_one_run():
    rng = np.random.default_rng(5)
    components, loading, values, variance = random_problem(rng, 40)
    carried = np.where(np.arange(40) % 10 == 0, 0.0, 0.3)
    observed = Observed(np.arange(40), values, loading, Noise(variance, carried, 2))
    whole = Filter(components, 2).run(observed)
    run = Filter(components, 2)
    for i in range(40):
        part = slice(i, i + 1)
        piece = Observed(observed.slots[part], values[part], loading[part], observed.noise.part(i, i + 1))
        assert np.allclose(run.run(piece).mean[0], whole.mean[i], atol=1e-12)


@pytest.mark.parametrize("cycle", [2, 7, 24, 48])
def test_the_seasons_variances_are_bessel_functions_folded_onto_what_slots_resolve(cycle):
    logs = np.log([[0.5, smoothness, 300.0, 0.1, 4.0, 0.6, 0.05] for smoothness in (0.2, 0.65, 3.0)])
    variance = Seasonal(cycle, off=False).components(logs).variance[:, 4:]
    shares = ive(np.arange(100), np.exp(-2 * logs[:, 1:2])) * np.where(np.arange(100) == 0, 1.0, 2.0)
    harmonics = [0] + [order for order in range(1, min(12, cycle // 2) + 1) for _ in range(1 + (2 * order != cycle))]
    folded = [[row[[o for o in range(100) if (o - j) % cycle == 0 or (o + j) % cycle == 0]].sum() for j in harmonics]
              for row in shares]  # fmt: skip
    # Each variance is a sum of up to 100 shares of the season's variance, added in another order.
    assert np.allclose(variance, 0.25 * np.array(folded), rtol=0.0, atol=0.25 * 100 * np.finfo(float).eps)
