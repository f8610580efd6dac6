from fractions import Fraction
from math import exp

import numpy as np
import pytest

from support.refusal import refused
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


SMALL = 1 << 30


def test_a_mechanism_begins_at_symbol_0_unless_it_is_told() -> None:
    assert window.piecewise("2", 8).first == window.piecewise_optimal("2", 8).first == 0
    assert window.piecewise("2", 8, 5).first == window.piecewise_optimal("2", 8, 5).first == 5
    made = window.hybrid("2", 8)
    assert [part.first for part in made.parts] == [0, 2]


@pytest.mark.parametrize("levels", [1, 2, 3, 8, 256, 1000, 1023, 1024, 1025, 5000])
def test_levels_are_as_far_apart_as_the_span_allows(levels: int) -> None:
    """Levels are ceil(1024/K) cells apart. K such steps cover at least 1,024 cells and fewer than 1,024 + K."""
    for made in (window.piecewise("2", levels), window.piecewise_optimal("2", levels)):
        assert 1024 <= made.stride * levels < 1024 + levels
        assert made.levels == levels


@pytest.mark.parametrize("epsilon", ["0.05", "0.3", "0.609", "0.61", "1", "2.5", "4", "6.1", "8"])
def test_the_window_is_the_nearest_to_the_papers_or_one_cell_more(epsilon: str) -> None:
    """The paper's window is the share 1/(1 + e^{ε/2}) of all cells.

    It is rounded up where rounding it to the nearest cell gives a worst variance more than 0.05 % above the paper's.
    """
    for levels in (1, 7, 256):
        made = window.piecewise(epsilon, levels)
        exact = made.stride * levels / (made.a / made.b) ** 0.5
        assert made.window in (round(exact), int(exact) + 1)
        nearest = window.WindowMechanism(made.a, made.b, round(exact), made.stride, levels)
        allowed = 1.0005 * continuous.piecewise_variance(float(epsilon), 1)
        assert (made.window == round(exact)) == (window.worst_variance(nearest) <= allowed or exact % 1 >= 0.5)


@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "2", "8"])
@pytest.mark.parametrize("levels", [1, 9, 256])
def test_no_other_window_has_a_smaller_worst_variance(epsilon: str, levels: int) -> None:
    """The test tries windows that are up to 6 cells wider or narrower. Over all windows there is one local minimum."""
    best = window.piecewise_optimal(epsilon, levels)
    at = {
        w: window.worst_variance(window.WindowMechanism(best.a, best.b, w, best.stride, levels))
        for w in range(max(best.window - 6, 1), best.window + 7)
    }
    assert min(at, key=at.__getitem__) == best.window


def test_the_worst_variance_is_the_largest_of_all_levels() -> None:
    for made in (
        window.piecewise("1", 5),
        window.piecewise_optimal("4", 6),
        window.stochastic_rounding("1"),
        # These two have their largest variance at a middle level.
        window.hybrid("0.3", 7),
        window.hybrid("0.3", 8),
    ):
        assert window.worst_variance(made) == max(
            Fraction(*made.variance(level, 2)) for level in range(made.levels + 1)
        )


@pytest.mark.parametrize("epsilon", ["0.5", "0.61", "0.9", "1.7", "2.9", "5", "8"])
def test_a_hybrids_coin_is_a_65536th_rounded_down(epsilon: str) -> None:
    assert window.hybrid(epsilon, 4).coin == int(continuous.hybrid_share(float(epsilon)) * 65536)
    assert window.hybrid(epsilon).levels == window.LEVELS == 256


@pytest.mark.parametrize("epsilon", ["0.5", "1", "4", "8"])
@pytest.mark.parametrize("bins", [2, 3, 4, 63, 64, 65, 256])
def test_a_square_wave_of_few_bins_has_the_best_window_and_of_many_the_papers(epsilon: str, bins: int) -> None:
    made = window.square_wave(epsilon, range(bins + 1))
    papers = 2 * int(continuous.square_wave_half_width(float(epsilon)) * bins) + 1
    if bins >= 64:
        assert made.window == papers
    elif bins > 4:
        near = {
            w: window.worst_tail_variance(made.a, made.b, w, bins) for w in (made.window - 1, made.window + 1, papers)
        }
        assert window.worst_tail_variance(made.a, made.b, made.window, bins) <= min(near.values())
    else:
        every = {w: window.worst_tail_variance(made.a, made.b, w, bins) for w in range(1, 2 * bins)}
        assert made.window == min(every, key=every.__getitem__)
    assert (made.stride, made.levels, len(made.edges)) == (1, bins - 1, bins + 1)


def test_the_sizes_of_a_square_wave_have_ends() -> None:
    assert window.square_wave(1, range(3)).levels == 1
    assert window.square_wave(1, range(257)).levels == 255
    for edges in (2, 258):
        with refused(edges, 3, 257):
            window.square_wave(1, range(edges))


@pytest.mark.parametrize("bins", [2, 3, 5, 9])
@pytest.mark.parametrize("wide", [1, 2, 4, 9])
def test_a_tail_excess_is_as_uncertain_as_the_channels_own_weights_say(bins: int, wide: int) -> None:
    """The variance is Lᵀ(Aᵀ diag(1/(Af)) A)⁻¹L - (Lᵀf)² at the uniform f, with A from the weights.

    L_i = (i - t)+ for a limit t. The largest of the variances for all t is compared.
    """
    made = window.WindowMechanism(7, 2, wide, 1, bins - 1)
    channel = np.array([made.weights(level) for level in range(bins)], dtype=float).T / made.total
    f = np.full(bins, 1 / bins)
    inverse = np.linalg.inv(channel.T @ np.diag(1 / (channel @ f)) @ channel)
    variances = []
    for t in range(bins - 1):
        excess = np.array([max(i - t, 0) for i in range(bins)], dtype=float)
        variances.append(excess @ inverse @ excess - (excess @ f) ** 2)
    assert window.worst_tail_variance(7, 2, wide, bins) == pytest.approx(max(variances), rel=1e-9)


def test_most_levels_are_the_most_whose_product_with_the_width_stays_small() -> None:
    for width in (1, 2, 3, SMALL // 4, SMALL // 3, SMALL // 2, SMALL - 1):
        assert window.most_levels(width, SMALL - 1) == max((SMALL - 1) // width, 1)
        assert window.most_levels(width, 1) == 1
    for width, largest, name in ((0, 1, "width"), (SMALL, 1, "width"), (1, 0, "largest"), (1, SMALL, "largest")):
        with pytest.raises(Invalid, match=rf"{name} is {width if name == 'width' else largest}, expected"):
            window.most_levels(width, largest)


@pytest.mark.parametrize("make", [window.piecewise, window.piecewise_optimal])
def test_levels_out_of_range_are_named(make) -> None:
    for levels in (0, SMALL, SMALL + 1):
        with refused("levels", levels, 1, SMALL - 1):
            make(1, levels)
