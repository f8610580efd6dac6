"""How much published numbers reveal.

The dominating pair bounds a brute force in rationals, and composition agrees with that of another library.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from support.designed import small_table
from undertone_aggregator.design import hybrid
from undertone_aggregator.design import published as module
from undertone_aggregator.design.loss import Losses
from undertone_aggregator.design.published import Blanket, published, slot_losses
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism

SMALL = {
    "stochastic rounding 2/1": (WindowMechanism(2, 1, 1, 1, 1), 4),
    "stochastic rounding 5/2": (WindowMechanism(5, 2, 1, 1, 1), 4),
    "ternary randomised response": (WindowMechanism(3, 1, 1, 1, 2), 3),
    "windows that do not meet": (WindowMechanism(5, 2, 2, 2, 2), 3),
    "windows that overlap": (WindowMechanism(3, 1, 3, 1, 2), 3),
    "hybrid": (Hybrid(40_000, WindowMechanism(3, 1, 1, 1, 1), WindowMechanism(3, 1, 2, 2, 1, None, 2)), 3),
    "table": (small_table(0), 3),
}
ODDS = [Fraction(1), Fraction(9, 8), Fraction(3, 2), Fraction(2), Fraction(5, 2)]


def exact_delta(blanket: Blanket, reports: int, odds: Fraction) -> Fraction:
    """δ at e^ε = ``odds`` for ``reports`` reports, in rationals, by summing over all (T, A, B) of `Blanket`.

    With many reports, this takes long.
    """
    gamma, extra, t = blanket.gamma, blanket.ratio - 1, blanket.extreme
    # A and B are summed in integers, which is faster. A blanket's chances are in units of 1/whole, the
    # excess is in units of 1/unit.
    whole, one = t.denominator, t.numerator
    unit = extra.denominator * odds.denominator
    gain, loss = int(extra * unit), int(odds * extra * unit)
    total = Fraction(0)
    for blankets in range(1, reports + 1):
        others = comb(reports - 1, blankets - 1) * gamma ** (blankets - 1) * (1 - gamma) ** (reports - blankets)
        start = int(blankets * (1 - odds) * unit)
        chances = [one**k * (whole - 2 * one) ** (blankets - k) for k in range(blankets + 1)]
        excess = sum(
            comb(blankets, a) * comb(blankets - a, b) * chances[a + b] * max(start + gain * a - loss * b, 0)
            for a in range(blankets + 1)
            for b in range(blankets - a + 1)
        )
        total += others * gamma * Fraction(excess, whole**blankets * unit * blankets)
    return total


def histograms(rows):
    """The exact distribution of the histogram of symbols if one symbol is drawn from each row."""
    law = {(0,) * len(rows[0]): Fraction(1)}
    for row in rows:
        following = Counter()
        for counts, chance in law.items():
            for symbol, weight in enumerate(row):
                if weight:
                    more = (*counts[:symbol], counts[symbol] + 1, *counts[symbol + 1 :])
                    following[more] += chance * Fraction(weight, sum(row))
        law = following
    return law


@pytest.mark.parametrize("name", SMALL)
def test_no_data_set_tells_more_than_the_pair(name):
    mechanism, most = SMALL[name]
    rows = [mechanism.weights(level) for level in range(mechanism.levels + 1)]
    blanket = Blanket.of(mechanism)
    for reports in range(2, most + 1):
        worst = dict.fromkeys(ODDS, Fraction(0))
        for others in itertools.combinations_with_replacement(rows, reports - 1):
            laws = [histograms([row, *others]) for row in rows]
            for law, other in itertools.permutations(laws, 2):
                for odds in ODDS:
                    delta = sum((max(p - odds * other.get(h, 0), Fraction(0)) for h, p in law.items()), Fraction(0))
                    worst[odds] = max(worst[odds], delta)
        for odds, delta in worst.items():
            assert delta <= exact_delta(blanket, reports, odds), (reports, odds)


def test_the_case_in_which_the_shorter_formula_is_unsound():
    blanket = Blanket.of(WindowMechanism(5, 2, 2, 2, 2))
    assert exact_delta(blanket, 2, Fraction(2)) == Fraction(5, 81)


def test_for_stochastic_rounding_the_pair_is_attained():
    mechanism = WindowMechanism(2, 1, 1, 1, 1)
    rows = mechanism.weights(0), mechanism.weights(1)
    for odds in (Fraction(9, 8), Fraction(3, 2)):
        exact = Fraction(0)
        for other in rows:
            for law, two in itertools.permutations([histograms([row, other]) for row in rows]):
                exact = max(exact, sum((max(p - odds * two[h], Fraction(0)) for h, p in law.items()), Fraction(0)))
        assert exact == exact_delta(Blanket.of(mechanism), 2, odds)


@pytest.mark.parametrize("epsilon", ["1", "2", "4"])
@pytest.mark.parametrize("reports", [1, 2, 3, 7, 20, 40])
def test_the_numbers_are_never_below_the_rationals(epsilon, reports):
    blanket = Blanket.of(hybrid(epsilon))
    losses = slot_losses(blanket, reports)
    for odds in (Fraction(1), Fraction(21, 20), Fraction(6, 5), Fraction(3, 2), Fraction(5, 2)):
        exact = float(exact_delta(blanket, reports, odds))
        stated = losses.delta(math.log(odds))
        assert exact * (1 - 1e-9) <= stated <= 1.01 * exact + 1e-4


def test_composition_agrees_with_an_oracle():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="needs dp-accounting")
    # Up to one hundred releases by randomised response at ε = 0.1, whose loss distribution is made from δ on a grid.
    epsilon = 0.1
    step = 1e-4
    grid = np.arange(-1100, 1101) * step
    p = 1 / (1 + math.exp(-epsilon))
    deltas = np.maximum(p - np.exp(grid) * (1 - p), 0) + np.maximum((1 - p) - np.exp(grid) * p, 0)
    ours = Losses.joined(step, -1100, deltas)
    theirs = pld.from_randomized_response(2 * (1 - p), 2, value_discretization_interval=step)
    for releases in (1, 10, 100):
        expected = theirs.self_compose(releases).get_epsilon_for_delta(1e-6)
        assert ours.composed(releases).epsilon(1e-6) == pytest.approx(expected, rel=2e-3)


# Table 5.2 of the study on which the module is built. Each row: the reports' ε, the number of reports in a slot, and
# the ε of published numbers at δ = 1e-6 (of a slot, a day, a week, a year of half-hours).
STUDY = [
    ("1", 1_000, (0.144, 1.15, 3.3, 37)),
    ("1", 10_000, (0.042, 0.333, 0.95, 8.6)),
    pytest.param("1", 1_000_000, (0.0034, 0.028, 0.081, 0.67), marks=pytest.mark.slow),
    ("2", 10_000, (0.108, 0.86, 2.5, 26)),
    ("4", 100_000, (0.113, 0.90, 2.6, 27)),
]


@pytest.mark.slow_but("1-1000-values0")
@pytest.mark.parametrize(("epsilon", "reports", "values"), STUDY)
def test_the_studys_table_within_two_per_cent(epsilon, reports, values):
    for releases, expected in zip((1, 48, 336, 17_520), values, strict=True):
        # The table prints two or three digits, so half a unit of the second digit is allowed.
        rounding = 10.0 ** (math.floor(math.log10(expected)) - 1) / 2
        assert published(hybrid(epsilon), reports, releases).epsilon == pytest.approx(
            expected, abs=0.02 * expected + rounding
        )


def test_fakes_hide_nobody_and_few_reports_hide_little():
    mechanism = hybrid("1")
    assert published(mechanism, 1000, 1, fakes=0.5) == published(mechanism, 500, 1)
    alone = published(mechanism, 1, 1).epsilon
    assert 0.99 < alone <= 1.001
    assert "keeps the reports to itself" in published(mechanism, 1000, 48).sentence("a day")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reports": 0}, "reports is 0, expected an integer from 1 to 100000000"),
        ({"slots": 0}, "slots is 0"),
        ({"delta": 2.0}, "delta is 2.0, expected a number above 0 and below 1"),
        ({"fakes": 1.0}, "fakes is 1.0, expected a share from 0 to below 1"),
    ],
)
def test_bad_numbers_are_one_sentence(options, sentence):
    facts = {"reports": 10, "slots": 1, **options}
    with pytest.raises(Invalid, match=sentence):
        published(hybrid("1"), facts.pop("reports"), facts.pop("slots"), **facts)


@pytest.mark.parametrize("reports", [1, 2, 5, 30])
def test_where_two_blankets_are_all_there_is(reports):
    """In randomised response, each blanket is one of two symbols, and there is no third symbol."""
    blanket = Blanket.of(WindowMechanism(2, 1, 1, 1, 1))
    assert blanket.extreme == Fraction(1, 2)
    losses = slot_losses(blanket, reports)
    for odds in ODDS[:3]:
        exact = float(exact_delta(blanket, reports, odds))
        assert exact * (1 - 1e-9) <= losses.delta(math.log(odds)) <= 1.01 * exact + 1e-4


def test_both_ends_that_are_left_out_count_as_lost(monkeypatch):
    """With narrow spans, the tails outside all cells are larger than rounding errors, and must count as lost."""
    monkeypatch.setattr(module, "_WIDE", 0.5)
    ends = Counter()
    for blankets in range(1, 120):
        low, high = module._span(blankets, 0.3)
        _, lost = module._deltas(blankets, 1.5, 0.3, np.array([0.0]), 32)
        pmf = np.array([math.comb(blankets, k) * 0.3**k * 0.7 ** (blankets - k) for k in range(blankets + 1)])
        # The probabilities of the ends, of A and of B, bound their tails: a tail is at most 1e4 times its end's
        # probability if each step lowers the probability by a share of at least 1e-4.
        ends_of_both = 2 * ((pmf[low] if low > 0 else 0.0) + (pmf[high] if high < blankets else 0.0))
        inside = pmf[low : high + 1].sum()
        assert lost >= 2.5 * ends_of_both * inside / module._FALL * (1 - 1e-9), blankets
        ends[low > 0, low > 1, high < blankets] += 1
    assert len(ends) >= 4, ends


def test_cells_are_as_fine_as_is_said():
    """`COARSE` is a number of cells in a standard deviation. With so few cells, δ is at most 5 % too large here."""
    blanket = Blanket.of(hybrid("1"))
    extra, t = float(blanket.ratio - 1), float(blanket.extreme)
    grid = np.arange(4) * 0.02
    exact, _ = module._deltas(5000, extra, t, grid, 400)
    coarse, _ = module._deltas(5000, extra, t, grid, module.COARSE)
    assert np.all(coarse >= exact * (1 - 1e-12))
    assert np.all(coarse / exact - 1 < [0.003, 0.012, 0.03, 0.05])


@pytest.mark.parametrize(("blankets", "extra", "t"), [(200, 1.7, 0.3), (50, 6.4, 0.1), (1000, 0.3, 0.45)])
def test_wide_cells_that_many_steps_of_epsilon_divide_hide_nothing(blankets, extra, t):
    grid = np.linspace(0, 2, 400)
    exact, _ = module._deltas(blankets, extra, t, grid, 10_000)
    wide, _ = module._deltas(blankets, extra, t, grid, 1)
    assert np.all(wide >= exact * (1 - 1e-12))
    assert np.any(wide > exact * 1.1)
