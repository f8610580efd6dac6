from fractions import Fraction
from math import exp

import pytest

from undertone_aggregator.design import continuous, window
from undertone_aggregator.design.budget import Budget, exponential_below
from undertone_shared.errors import Invalid

EPSILONS = ["0.05", "0.1", "0.5", "0.61", "1", "1.5", "2", "3", "3.95", "4", "5.5", "7", "8"]
LARGEST_RATIO = 1.001


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("levels", [1, 8, 100, 256])
def test_worst_variance_is_near_the_continuous_one(epsilon, levels):
    e = float(epsilon)
    assert float(window.worst_variance(window.stochastic_rounding(epsilon))) <= (
        LARGEST_RATIO * continuous.stochastic_rounding_variance(e, 1)
    )
    piecewise = window.piecewise(epsilon, levels)
    assert float(window.worst_variance(piecewise)) <= LARGEST_RATIO * continuous.piecewise_variance(e, 1)
    optimal = float(window.worst_variance(window.piecewise_optimal(epsilon, levels)))
    best = continuous.window_variance(e, continuous.best_window_share(e), 1)
    assert 1 - 1e-3 <= optimal / best <= LARGEST_RATIO
    hybrid = window.hybrid(epsilon, levels)
    for level in range(levels + 1):
        ratio = float(Fraction(*hybrid.variance(level, 2))) / continuous.hybrid_variance(e, 2 * level / levels - 1)
        assert ratio <= LARGEST_RATIO


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_certificate_is_proven(epsilon):
    bound = exponential_below(Budget.parse(epsilon).epsilon)
    mechanisms = [
        window.stochastic_rounding(epsilon),
        window.piecewise(epsilon),
        window.piecewise_optimal(epsilon),
        window.hybrid(epsilon),
        window.square_wave(epsilon, range(129)),
    ]
    for mechanism in mechanisms:
        assert Fraction(*mechanism.certificate()) <= bound
        assert mechanism.permits((bound.numerator // (bound.denominator >> 40), 1 << 40))


def test_sizes_of_the_design_sheet():
    for epsilon, cells, width in ((1, 1645, 621), (2, 1401, 377), (4, 1163, 139)):
        mechanism = window.piecewise(epsilon)
        assert (mechanism.stride, mechanism.cells, mechanism.window) == (4, cells, width)
    assert window.piecewise(1).total == 2714765
    assert float(window.worst_variance(window.piecewise(1))) == pytest.approx(
        continuous.piecewise_variance(1, 1), rel=4e-5
    )


@pytest.mark.parametrize(
    ("epsilon", "variance"),
    [(0.2, 100.667), (0.5, 16.6708), (1, 4.2890), (1.5, 1.8922), (2, 1.0423), (4, 0.2190)],
)
def test_hybrid_variances_of_the_literature(epsilon, variance):
    assert max(continuous.hybrid_variance(epsilon, x) for x in (0, 1)) == pytest.approx(variance, abs=5e-4)
    if epsilon > continuous.HYBRID_EPSILON:
        assert continuous.hybrid_variance(epsilon, 0.3) == pytest.approx(continuous.hybrid_variance(epsilon, 1))


def test_the_papers_window_is_the_piecewise_mechanism():
    for epsilon in (0.5, 2, 6):
        share = 1 / (1 + exp(epsilon / 2))
        expected = continuous.piecewise_variance(epsilon, 1)
        assert continuous.window_variance(epsilon, share, 1) == pytest.approx(expected)
    best = continuous.window_variance(4, continuous.best_window_share(4), 1)
    assert best / continuous.hybrid_variance(4, 1) == pytest.approx(0.739, abs=1e-3)


def test_square_wave_width():
    assert continuous.square_wave_half_width(1) == pytest.approx(0.25608, abs=1e-5)
    mechanism = window.square_wave(1, range(0, 1290, 10))
    assert (mechanism.window, mechanism.cells, mechanism.levels) == (2 * 32 + 1, 128 + 64, 127)
    assert mechanism.edges == tuple(range(0, 1290, 10))


def test_few_bins_take_the_window_of_least_tail_variance():
    for epsilon, bins in ((1, 7), (4, 16), (8, 8)):
        mechanism = window.square_wave(epsilon, range(bins + 1))
        a, b = mechanism.a, mechanism.b
        chosen = window.worst_tail_variance(a, b, mechanism.window, bins)
        assert all(chosen <= window.worst_tail_variance(a, b, w, bins) for w in range(1, 2 * bins))
    assert window.square_wave(8, range(9)).window == 1


def test_levels_shrink_for_wide_ranges():
    assert window.most_levels(1000) == 256
    for width in ((1 << 22) + 1, 10**7, 2**30 - 1):
        levels = window.most_levels(width)
        assert 1 <= levels < 256
        assert width * levels < 2**30 <= width * (levels + 1)
        assert window.piecewise(1, levels).levels == levels


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: window.piecewise(1, 0), "levels is 0, expected an integer from 1"),
        (lambda: window.most_levels(0), "width is 0"),
        (lambda: window.square_wave(1, [0, 1]), "there are 2 edges, expected 3 to 257"),
        (lambda: window.square_wave(1, [0, 5, 5, 9]), "edges\\[2\\] is 5, expected more than 5"),
        (lambda: window.hybrid(float("nan")), "epsilon is nan"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(Invalid, match=sentence):
        call()
