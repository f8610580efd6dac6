"""Large readings that come only at certain times of day are found in the reports of those times."""

import numpy as np
import pytest

from undertone_aggregator.threshold.fit import Observation
from undertone_aggregator.threshold.mode import with_mode

EDGES = tuple(range(0, 101))
PIECES, DRAWS = 8, 40
BODY = np.exp(-np.arange(100) / 8.0)
BODY /= BODY.sum()
# A report tells the tenth of the range in which a reading lies: the right one with probability .55, else any of the
# ten.
POINTS = tuple(range(10, 100, 10))
MATRIX = 0.55 * np.eye(10) + 0.045


def counts(share, evening, reports):
    """Return the counts of all pieces. In the piece ``evening``, ``share`` of the readings lie from 70 to 79."""
    body = BODY.reshape(10, 10).sum(axis=1)
    rows = []
    for piece in range(PIECES):
        law = body * (1.0 - share * (piece == evening))
        law[7] += share * (piece == evening)
        rows.append(np.rint(reports * (MATRIX @ law)))
    return np.array(rows)


def found(share, reports=3000, pieces=PIECES):
    densities = np.broadcast_to(BODY, (PIECES, DRAWS, 100)).copy()
    observations = [Observation(POINTS, MATRIX, counts(share, 5, reports))]
    return with_mode(densities, EDGES, observations, BODY, np.full(PIECES, 1 / PIECES))


def test_the_group_is_found_at_its_time_and_place():
    mixed = found(0.06)
    assert mixed.sum(axis=2) == pytest.approx(np.ones((PIECES, DRAWS)))
    far = mixed[:, :, 60:].sum(axis=2).mean(axis=1)
    assert far[5] == pytest.approx(0.06, abs=0.02)
    assert max(np.delete(far, 5)) < 0.01
    assert 65 < np.average(np.arange(60, 100), weights=mixed[5].mean(axis=0)[60:]) < 85


def test_without_a_group_most_draws_have_none():
    mixed = found(0.0)
    assert np.median(mixed[:, :, 40:].sum(axis=2)) < 0.01


def test_few_reports_leave_it_open():
    """With 50 reports, some draws have more than 2 % of large readings, and half of them have less than 6 %."""
    far = found(0.06, reports=50)[5][:, 40:].sum(axis=1)
    assert np.quantile(far, 0.95) > 0.02
    assert np.median(far) < 0.06


def test_a_bound_near_the_readings_leaves_no_room():
    flat = np.full(100, 0.01)
    densities = np.broadcast_to(flat, (PIECES, DRAWS, 100)).copy()
    assert with_mode(densities, EDGES, [], flat, np.full(PIECES, 1 / PIECES)) is densities
