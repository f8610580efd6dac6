"""A mechanism is one class and one entry in one table: shown with one that the product does not ship."""

from fractions import Fraction

import numpy as np
import pytest

from support.designed import check_all
from support.three_outputs import ThreeOutputs, traits
from undertone_aggregator.design import best_fraction, mechanisms
from undertone_aggregator.design.certificate import certify_mechanism
from undertone_aggregator.design.population import Population
from undertone_aggregator.estimate.noise import noise_of
from undertone_aggregator.estimate.reconstruct import Decoder
from undertone_shared.errors import Invalid
from undertone_shared.scalar import ReportRule

THETA = 1000


@pytest.fixture
def mechanism(monkeypatch):
    monkeypatch.setitem(mechanisms.TABLE, ThreeOutputs, traits)
    return ThreeOutputs(*best_fraction("2"), 1, 3)


def test_it_passes_what_every_mechanism_passes(mechanism):
    check_all(mechanism, THETA, range(3))
    assert certify_mechanism("three-outputs", mechanism, "2", THETA, None).ratio == Fraction(mechanism.a, mechanism.b)


def test_its_reports_become_a_mean_with_its_own_error(mechanism):
    # One symbol each of 200,000 readings at 700; its mean is within 6 standard errors (false alarm 2e-9).
    rows = [np.array(mechanism.weights(k)) / mechanism.row_total() for k in range(3)]
    law = 0.6 * rows[1] + 0.4 * rows[2]
    counts = np.random.default_rng(5).multinomial(200_000, law)
    density = np.zeros(THETA + 1)
    density[700] = 1.0
    decoder = Decoder(ReportRule(0, THETA, mechanism), 0, Population(density, range(THETA + 2)))
    mean, variance, n = decoder.mean(counts)
    y = np.array([float(Fraction(*mechanism.decode(j, THETA))) for j in range(3)])
    exact = float(law @ y**2 - (law @ y) ** 2)
    assert abs(mean - 700) < 6 * (exact / n) ** 0.5
    assert variance == pytest.approx(exact / n, rel=1e-3)
    assert decoder.goodness.misfits(counts[None])[0] < 6


def test_a_mechanism_that_nobody_entered_is_refused_not_guessed():
    with pytest.raises(Invalid, match="the mechanism is a ThreeOutputs, expected one of WindowMechanism"):
        noise_of(ThreeOutputs(7, 1, 1, 3), THETA, None)
