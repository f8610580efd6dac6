"""The calibration of noise agrees with the paper's numbers and with an independent accountant."""

import math
import warnings

import pytest

from undertone_aggregator.design.stream import calibration as c
from undertone_shared.errors import Invalid

DELTA = 1e-5


def test_the_papers_chi_and_sigma():
    assert c.chi(1, DELTA) == pytest.approx(2.54318, abs=5e-6)
    # The sensitivity of Eq. 9 is √2.
    assert math.sqrt(2) / c.mu(1, DELTA) == pytest.approx(5.2759, abs=5e-5)


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.25, 13.2855), (0.5, 7.0318), (1, 3.7306), (2, 1.9938)])
def test_sigma_for_unit_sensitivity(epsilon, sigma):
    assert 1 / c.mu(epsilon, DELTA) == pytest.approx(sigma, abs=5e-5)


@pytest.mark.parametrize("delta", [0.4, 0.1, 1e-3, 1e-9, 1e-40])
@pytest.mark.parametrize("epsilon", [0.05, 1, 10])
def test_mu_epsilon_and_delta_are_inverse(epsilon, delta):
    mu = c.mu(epsilon, delta)
    assert c.delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-6)
    assert c.epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)
    assert c.zcdp_epsilon(c.zcdp_rho(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-9)
    # The conversion from zCDP gives an upper bound of the exact ε.
    assert c.zcdp_epsilon(mu * mu / 2, delta) >= epsilon


def test_zcdp_alone_costs_eight_percent_in_sigma():
    ratio = c.mu(1, DELTA) / math.sqrt(2 * c.zcdp_rho(1, DELTA))
    assert 1.07 < ratio < 1.10


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (-1, 0.1), (1, 0), (1, 1), (1, 2), (51, 0.1), (True, 0.1)])
def test_bad_budgets_are_refused(epsilon, delta):
    with pytest.raises(Invalid, match=r"expected a number (above 0|from 1e-300 to below 1)"):
        c.mu(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_the_oracle_agrees(epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")
        mu = c.mu(epsilon, DELTA)
        oracle = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3, use_connect_dots=True)
        assert oracle.get_epsilon_for_delta(DELTA) / epsilon == pytest.approx(1.0, abs=5e-4)
        # An exact discrete Gaussian with the variance s is calibrated as a continuous one with the variance s - 4.
        variance = 20
        discrete = pld.from_discrete_gaussian_mechanism(math.sqrt(variance), value_discretization_interval=1e-3)
        assert c.delta_of(epsilon, 1 / math.sqrt(variance - 4)) >= discrete.get_delta_for_epsilon(epsilon)
