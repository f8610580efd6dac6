"""The probability of a heavier tail than the fitted one: its prior, lowered by the reports' evidence against it."""

import numpy as np
import pytest

from undertone_aggregator.threshold.heavy import _HEAVY, chance_of_heavier, heavier

BOUND = 1250
EDGES = np.arange(BOUND + 2, dtype=np.float64)
VALUES = np.arange(BOUND + 1)


def normed(density):
    return density / density.sum()


PARETO = normed((1.0 + VALUES / 20.0) ** -2.5)
EXPONENTIAL = normed(np.exp(-VALUES / 100))


def test_a_tail_that_reports_do_not_show_continues_the_slopes_below():
    """The fit knows readings up to 400, where they follow a Pareto law. Beyond, the fit assumes an exponential tail."""
    seen = 400
    fitted = np.where(seen > VALUES, PARETO, PARETO[seen] * np.exp(-(VALUES - seen) / 40.0))
    fitted[seen:] *= PARETO[seen:].sum() / fitted[seen:].sum()
    above = np.maximum(VALUES - seen, 0)
    heavy = heavier(fitted, EDGES, seen)
    assert heavy.sum() == pytest.approx(fitted.sum())
    assert above @ fitted < 0.8 * (above @ heavy)
    assert above @ heavy == pytest.approx(above @ PARETO, rel=0.2)


def test_the_reports_refute_a_tail_that_would_double_the_share_that_they_know_to_a_fifth():
    assert chance_of_heavier(EXPONENTIAL, EDGES, 600) < 0.001
    # A Pareto tail is equal to its own continuation, so reports give no evidence against it.
    assert chance_of_heavier(PARETO, EDGES, 400) == pytest.approx(_HEAVY, rel=0.05)


def test_there_is_no_further_tail_where_all_readings_are_seen_or_none_is_known():
    assert heavier(PARETO, EDGES, BOUND) is PARETO
    assert chance_of_heavier(PARETO, EDGES, BOUND) == 0.0
    assert chance_of_heavier(PARETO, EDGES, None) == 0.0
