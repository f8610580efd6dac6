"""Formulas and protocols of the documents that only studies use, compared with what the documents print."""

from fractions import Fraction
from math import log

import numpy as np
import pytest

from undertone_studies import cgm
from undertone_studies.experiments import counting_blog
from undertone_studies.experiments.tops_fig1 import equation_4
from undertone_studies.tops_methods import base_mse
from undertone_studies.tops_streams import QUERIES, R, range_sums


def test_equation_4_is_as_printed() -> None:
    values = np.array([3, 20, 28, 28, 5])
    thetas, epsilon, b, r = np.array([4, 25]), Fraction(1, 20), 16, 2**20
    excess = np.array([np.mean(np.maximum(values - theta, 0)) for theta in thetas])
    for theta, mean, found in zip(thetas, excess, equation_4(thetas, excess, epsilon), strict=True):
        printed = (b - 1) * log(r, b) ** 3 * 2 * theta**2 / float(epsilon) ** 2 + (r / 3 * mean) ** 2
        assert found == pytest.approx(printed)


def test_the_queries_are_200_random_ranges_of_up_to_r_values() -> None:
    assert QUERIES.shape == (200, 2)
    lengths = QUERIES[:, 1] - QUERIES[:, 0]
    assert lengths.min() >= 0
    assert lengths.max() < R
    # The length of a random range has the mean r/3 and the standard deviation r/√18. The mean of 200 such lengths has
    # the standard deviation r/60.
    assert abs(lengths.mean() - R / 3) < 4 * R / 60


def test_base_has_the_mean_square_of_the_true_answers() -> None:
    truth = range_sums(np.ones(R))
    assert base_mse(truth) == pytest.approx(np.mean((0 - truth) ** 2))
    assert np.array_equal(truth, QUERIES[:, 1] - QUERIES[:, 0])


def test_the_budgets_of_cgms_figures_are_the_papers() -> None:
    assert cgm.EPSILONS == (0.25, 0.5, 1.0, 2.0)
    assert cgm.DELTA == 1e-5


def test_the_blogs_protocol_is_the_studys() -> None:
    assert (counting_blog.TRIALS, counting_blog.EPSILON, counting_blog.LENGTHS) == (25, 1, (1_000, 10_000))
    assert counting_blog.BLOCKS == (10, 25, 50, 100)
