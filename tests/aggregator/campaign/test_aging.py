"""When readings have changed, the server scales or shifts the edges of older histograms by the same change."""

from dataclasses import replace

import numpy as np
import pytest

from support.server import FIRST, campaign, plan, two_epochs
from undertone_aggregator.campaign import evidence as module
from undertone_aggregator.campaign.aging import Ageing, Move
from undertone_aggregator.campaign.evidence import Evidence
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import Key, Partial
from undertone_aggregator.design import square_wave
from undertone_aggregator.estimate.estimates import MEASURED, Estimate, Estimates, Series
from undertone_aggregator.threshold import Threshold
from undertone_shared import report

BOUND = 1000
VALUES = np.arange(BOUND + 1)
DENSITY = np.exp(-VALUES / 100.0)
CHOSEN = Threshold(
    500, 450, 600, 3.0, 0.3, 9.0, DENSITY / DENSITY.sum(), tuple(range(BOUND + 2)), "robust", []
)  # fmt: skip
CYCLE = 4


def truncated(mean):
    density = np.exp(-VALUES / mean)
    return float(np.minimum(VALUES, 500) @ density / density.sum())


def ageing(means, error=1.0):
    """Return an `Ageing`, its threshold epoch, its report epoch, and the first slot of the report epoch.

    ``means``: the mean of the readings in each cycle of the report epoch.
    """
    rounds, reports = two_epochs()
    reports = replace(reports, chosen=threshold_to_json(CHOSEN))
    first = reports.campaign.first_slot
    assert first % CYCLE == 0
    estimates = []
    for number, mean in enumerate(means):
        for slot in range(first + CYCLE * number, first + CYCLE * (number + 1)):
            level = truncated(mean)
            estimates.append(Estimate(slot, slot, Series(), MEASURED, 500, 0, level, error, level, level, 500))
    return Ageing([rounds, reports], Estimates.of(estimates)), rounds, reports, first


def test_reports_of_before_a_change_are_moved_by_it_and_newer_ones_are_not():
    aged, rounds, reports, first = ageing([100] * 4 + [200] * 6)
    before, start = aged.since(reports, first // CYCLE + 1), aged.since(rounds, FIRST // CYCLE)
    assert before == start
    assert before.factor == pytest.approx(2.0, rel=0.1)
    assert before.amount == 0
    assert aged.since(reports, first // CYCLE + 7) == Move()


@pytest.mark.parametrize("means", [[100, 100, 100, 100, 115, 115, 100], [100] * 6 + [300], [100] * 7])
def test_a_weekend_and_a_single_odd_day_move_nothing(means):
    aged, rounds, reports, first = ageing(means)
    assert aged.since(rounds, FIRST // CYCLE) == Move()
    assert aged.since(reports, first // CYCLE) == Move()


def test_no_choice_of_theta_moves_nothing():
    rounds = two_epochs()[0]
    assert Ageing([rounds], Estimates.of([])).since(rounds, FIRST // CYCLE) == Move()


@pytest.mark.parametrize("move", [Move(2.0), Move(0.4), Move(1.0, 150.0), Move(1.0, -150.0)])
def test_a_moved_reading_is_in_the_cell_of_the_moved_edges_in_which_the_old_one_was(move):
    edges = (0, *range(200, 460, 20), 700, BOUND + 1)
    old = square_wave("1", edges)
    moved = move.window(old, BOUND)
    assert (moved.a, moved.b, moved.window, moved.cells) == (old.a, old.b, old.window, old.cells)
    readings = np.arange(210, 450, 20)
    now = np.rint(readings * move.factor + move.amount)
    cells = np.searchsorted(moved.edges[1:-1], now, side="right")
    assert (cells == np.searchsorted(edges[1:-1], readings, side="right")).all()


@pytest.mark.parametrize("factor", [0.001, 1000.0])
def test_moved_edges_stay_distinct_and_within_the_bound(factor):
    edges = square_wave("1", (0, *range(1, 60), 500, BOUND + 1)).edges
    moved = Move(factor).window(square_wave("1", edges), BOUND).edges
    assert (moved[0], moved[-1], len(moved)) == (0, BOUND + 1, len(edges))
    assert (np.diff(moved) > 0).all()


def test_old_reports_count_for_a_quarter_under_a_theta_that_moved_with_them():
    assert Move().weighed(np.array([8, 0])).tolist() == [8, 0]
    assert Move(2.0).weighed(np.array([8, 0])).tolist() == [2, 0]
    assert Move(2.0).theta(300, BOUND) == 600
    assert Move(2.0).theta(600, BOUND) is None
    assert Move(1.0, 50.0).theta(300, BOUND) is None


def test_old_reports_keep_each_symbols_share_however_few_a_piece_of_the_day_has():
    """A quarter of one or two reports is rounded to 0 if each slot is rounded alone.

    The rare symbols, which tell of large readings, would then be lost.
    """
    counts = np.random.default_rng(1).poisson([40.0, 3.0, 1.0, 0.2], (48, 4))
    weighed = Move(2.0).weighed(counts)
    assert weighed.shape == counts.shape
    assert (weighed >= 0).all()
    assert (weighed <= counts).all()
    assert np.abs(weighed.sum(axis=0) - counts.sum(axis=0) / 4).max() <= 1.0


MONDAY = 1_798_416_000


@pytest.mark.parametrize(
    ("days", "weekend", "seen"),
    [
        ((0, 1, 2), "auto", False),
        ((5, 6), "auto", False),
        ((4, 5, 6), "auto", True),
        ((0, 1, 2), "none", True),
    ],
)
def test_blocks_of_the_day_wait_until_workdays_and_days_off_have_reported(days, weekend, seen):
    asked = plan(slot_seconds=1800, cycle=48, rounds=[48 * 3], weekend=f'"{weekend}"')
    first = MONDAY // 1800
    epoch = Epoch(campaign(MONDAY, MONDAY + 10_000), 0)
    counts = np.ones(epoch.campaign.cohort.mechanism.symbols, dtype=np.int64)
    slots = [first + 48 * day + place for day in days for place in range(48)]
    of = epoch.campaign
    partial = Partial({Key(of.name, of.fingerprint, report.COHORT, "all", slot): counts for slot in slots})

    def read(first, last, kind):
        return partial if kind == report.COHORT else Partial()

    assert Evidence(asked, Timeline([epoch]), read, MONDAY + 14 * 86400).saw_all_days is seen


def test_a_decision_reads_each_epoch_once_however_many_groups_there_are(monkeypatch):
    """Each epoch is read once for each kind of report, and only the sums over the groups are used."""
    asked, epochs, reads, days = plan(rounds=[4]), two_epochs(), [], []
    slots = {epoch: range(epoch.campaign.first_slot, epoch.campaign.first_slot + 4) for epoch in epochs}

    def read(first, last, kind):
        reads.append((first, last, kind))
        rows = {}
        for epoch in epochs:
            rule = epoch.campaign.cohort if kind == report.COHORT else epoch.campaign.report
            for group in ("north", "south") if rule else ():
                for slot in slots[epoch]:
                    counts = np.ones(rule.mechanism.symbols, dtype=np.int64)
                    rows[Key("c", epoch.campaign.fingerprint, kind, group, slot)] = counts
        return Partial({key: counts for key, counts in rows.items() if first <= key.slot <= last})

    monkeypatch.setattr(module, "day_of", lambda histograms, *_: days.append(histograms))
    now = (slots[epochs[1]][-1] + asked.settle_slots + 1) * asked.slot_seconds
    evidence = Evidence(asked, Timeline(epochs), read, now)
    whole = [counts.total for of_epoch in evidence.cohort().values() for counts in of_epoch]
    symbols = [epoch.campaign.cohort.mechanism.symbols for epoch in epochs]
    assert whole == [2 * 4 * size for size in symbols]
    assert evidence.devices() == 2 * (symbols[1] + epochs[1].campaign.report.mechanism.symbols)
    evidence.most_devices(), evidence.reports(), evidence.day()
    assert days
    assert len(reads) == len(set(reads)) == 4
