"""The parts of a reconstruction equal their formulas (decoding, levels, intervals, means of cells).

The tests also show which reports are left out.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.factory import campaign_of
from support.server import FIRST, SEED, campaign
from support.tables import tables_of
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import EVERYBODY, Key
from undertone_aggregator.design import hybrid, square_wave
from undertone_aggregator.estimate import reconstruct
from undertone_aggregator.estimate.estimates import MEASURED, MODEL, Estimate, Estimates, Series, Z
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.noise import Population, decoded, noise_of
from undertone_aggregator.estimate.reconstruct import STALE, STALE_SHARE, Decoder, Reconstruction, _cell_means
from undertone_aggregator.estimate.removed import Removed, Reported
from undertone_aggregator.estimate.two_sided import TwoSided
from undertone_aggregator.threshold import Threshold
from undertone_shared import report
from undertone_shared.off_board.issue import build
from undertone_shared.scalar import Cohort, ReportRule
from undertone_shared.schedule import Schedule

CHOSEN = Threshold(500, 450, 600, 3.0, 1.0, 9.0, np.array([0.5, 0.4, 0.1]), (0, 100, 500, 1001), "robust", [])
HALF_HOUR = 1800


def epoch(theta: int = 0, *, slot_seconds: int = 1, cycle: int = 4, offset: int = 0, first: int = FIRST) -> Epoch:
    """A report epoch with this θ, or a threshold epoch if it is 0."""
    slot = first // slot_seconds
    made = build(
        name="meters", sensor="load", unit="Wh", measure="sum", offset=offset, bound=1000, slot_seconds=slot_seconds,
        cycle=cycle, epoch=slot * slot_seconds, last_slot=slot + 999, default=offset,
        cohort=Cohort(square_wave(4, (0, 10, 100, 1001))),
        report=ReportRule(0, theta, hybrid(4, 16)) if theta else None,
        schedule=Schedule(SEED, 1, 0 if theta else 1),
    )  # fmt: skip
    return Epoch(made, 0, threshold_to_json(CHOSEN) if theta else None)


def key(of: Epoch, slot: int, kind: int = report.REPORT, group: str = "all") -> Key:
    return Key("meters", of.campaign.fingerprint, kind, group, slot)


def counts(of: Epoch, n: int, kind: int = report.REPORT) -> Any:
    """``n`` reports, spread over all symbols."""
    mechanism = of.campaign.cohort.mechanism if kind == report.COHORT else of.report.mechanism  # type: ignore[union-attr]
    return np.bincount(np.arange(n) % mechanism.symbols, minlength=mechanism.symbols)


def estimate(slot: int, mean: float = 100.0, error: float = 2.0, **changes: Any) -> Estimate:
    fields: dict[str, Any] = {"series": Series(), "kind": MEASURED} | changes
    return Estimate(slot, slot, fields["series"], fields["kind"], 500, 0, mean, error, mean - 4, mean + 4, 500)


def test_a_decode_is_the_affine_map_of_its_range() -> None:
    """The value is offset + low + (theta - low)(1 + y)/2, and its variance is ((theta - low)/2)² V/n.

    Here y is the mean of the n decoded symbols for readings in [-1, 1], and V the variance of the noise of one.
    """
    mechanism = hybrid(1, 16)
    known = Population(np.array([0.5, 0.5]), (0, 200, 401))
    decoder = Decoder(ReportRule(100, 400, mechanism), 7, known)
    seen = np.arange(mechanism.symbols)
    n, y = int(seen.sum()), decoded(mechanism, 300)
    mean, variance, number = decoder.mean(seen)
    assert number == n
    assert mean == pytest.approx(7 + 100 + 150 * (1 + float(seen @ y) / n))
    noise = noise_of(mechanism, 300, known.above(100))
    assert variance == pytest.approx(150**2 * noise(seen[None])[0] / n)
    sent = y[decoder.goodness.possible]
    assert (decoder.lowest, decoder.highest) == pytest.approx(
        (107 + 150 * (1 + min(sent)), 107 + 150 * (1 + max(sent)))
    )


def test_each_block_has_a_decoder_and_slot_0_the_first() -> None:
    issued = campaign(cohort_stride=9, theta=200, later=((1, 0, 500),))
    made = Reconstruction(Timeline([of := Epoch(issued, 0)]))
    assert made.decoder(of) is made.decoder(of, 4)
    assert made.decoder(of, 1) is made.decoder(of, 7) is not made.decoder(of)
    assert made.decoder(of).highest < made.decoder(of, 1).highest


def test_memory_is_a_cycle_of_at_most_96_slots() -> None:
    assert Reconstruction(Timeline([])).memory == 0
    assert [Reconstruction(Timeline([epoch(500, cycle=cycle)])).memory for cycle in (4, 96, 97)] == [4, 96, 96]
    assert Reconstruction(Timeline([])).chains == 1


def test_what_belongs_to_no_epoch_or_counts_nobody_is_no_estimate() -> None:
    known, stranger = epoch(500), epoch(400)
    made = Reconstruction(Timeline([known]))
    assert estimates_of(made, {key(stranger, FIRST + 5): counts(stranger, 100)}) == []
    assert estimates_of(made, {key(known, FIRST + 5): counts(known, 0)}) == []
    (one,) = estimates_of(
        made, {key(known, FIRST + 5): counts(known, 90), key(stranger, FIRST + 5): counts(stranger, 9)}
    )
    assert one.reports == 90


@pytest.mark.parametrize(("of_old", "theta"), [(49, 400), (50, 400), (51, 500), (100, 500)])
def test_what_is_removed_is_computed_under_the_epoch_of_most_reports(of_old: int, theta: int) -> None:
    """Devices that come back late know only the old epoch, and in some slots they make most reports."""
    old, new = epoch(500), epoch(400, first=FIRST + 2)
    made = Reconstruction(Timeline([old, new]))
    slots = range(FIRST + 2, FIRST + 6)
    mixed = {key(old, slot): counts(old, of_old) for slot in slots}
    if of_old < 100:
        mixed |= {key(new, slot): counts(new, 100 - of_old) for slot in slots}
    estimates = estimates_of(made, mixed, [EVERYBODY])
    assert {each.theta for each in estimates} == {theta}
    table = made.truncated(tables_of(mixed), EVERYBODY)
    of_epoch = old if theta == 500 else new
    expected = reconstruct.model_of(of_epoch).removed(reconstruct.reported_of(table, of_epoch.campaign))
    assert [each.bias for each in estimates] == expected.bias.tolist()
    other = new if theta == 500 else old
    assert reconstruct.model_of(other).removed(reconstruct.reported_of(table, other.campaign)).bias.tolist() != (
        expected.bias.tolist()
    )


def test_an_epoch_that_has_ended_is_described_by_the_choice_that_ended_it() -> None:
    """The choice that ended the epoch was fitted to the epoch's own reports, too. The range stays that of the epoch."""
    old, new = epoch(500), epoch(400, first=FIRST + 8)
    heavier = replace(CHOSEN, density=np.array([0.5, 0.3, 0.2]))
    after = Epoch(new.campaign, 0, threshold_to_json(heavier))
    reports = {key(old, slot): counts(old, 100) for slot in range(FIRST, FIRST + 8)}
    alone, followed = (
        estimates_of(Reconstruction(Timeline(epochs)), reports, [EVERYBODY]) for epochs in ([old], [old, after])
    )
    same = Epoch(old.campaign, 0, threshold_to_json(heavier))
    expected = estimates_of(Reconstruction(Timeline([same])), reports, [EVERYBODY])
    assert [each.bias for each in followed] == [each.bias for each in expected]
    assert all(one.bias != other.bias for one, other in zip(followed, alone, strict=True))
    assert [each.truncated_mean for each in followed] == [each.truncated_mean for each in alone]


def test_a_slot_begins_at_its_second_and_has_the_newest_theta() -> None:
    old, new = epoch(500, slot_seconds=HALF_HOUR), epoch(400, slot_seconds=HALF_HOUR, first=FIRST + 2 * HALF_HOUR)
    slot = FIRST // HALF_HOUR + 3
    (one,) = estimates_of(
        Reconstruction(Timeline([old, new])), {key(old, slot): counts(old, 50), key(new, slot): counts(new, 50)}
    )
    assert (one.slot, one.start, one.reports, one.theta) == (slot, slot * HALF_HOUR, 100, 400)


def test_a_model_is_of_the_epoch_with_most_reports_and_has_no_bias() -> None:
    first, second = epoch(offset=-50), epoch(offset=-50, first=FIRST + 100)
    made = Reconstruction(Timeline([first, second]))
    many, few = np.zeros(first.campaign.cohort.mechanism.symbols, dtype=int), counts(second, 5, report.COHORT)
    many[-1] = 5000
    both = {key(first, FIRST + 101, report.COHORT): many, key(second, FIRST + 101, report.COHORT): few}
    (one,) = estimates_of(made, both)
    (alone,) = estimates_of(made, {key(first, FIRST + 101, report.COHORT): many})
    assert (one.kind, one.reports, one.cohort) == (MODEL, 0, 5005)
    assert one.model == alone.model
    assert np.isnan([one.estimate, one.truncated_mean]).all(), "a model is not given as a mean of the readings"
    # Nearly all readings lie in the highest cell, from 100 to 1000, whose middle is 550; the offset shifts it.
    assert 400 < one.model < 500
    # A report epoch whose slots have only reports for the threshold gives a model, too.
    reporting = Epoch(campaign(cohort_stride=9, theta=500), 0, threshold_to_json(CHOSEN))
    cohort = counts(reporting, 500, report.COHORT)
    (model,) = estimates_of(Reconstruction(Timeline([reporting])), {key(reporting, FIRST + 5, report.COHORT): cohort})
    assert (model.kind, model.bias, model.truncated_se) == (MODEL, None, None)


@pytest.mark.parametrize("of_old", [4, 5, 6])
def test_a_model_of_several_epochs_is_of_most_reports_and_of_the_newest_of_as_many(of_old: int) -> None:
    """Of several epochs, the one with most reports counts, and of equal ones the newest.

    The store's order does not matter.
    """
    old, new = epoch(), epoch(first=FIRST + 100)
    made, slot = Reconstruction(Timeline([old, new])), FIRST + 101
    tables = {key(old, slot, report.COHORT): np.array([of_old] + [0] * (counts(old, 1, report.COHORT).size - 1))}
    tables[key(new, slot, report.COHORT)] = counts(new, 5, report.COHORT)
    one, turned = (estimates_of(made, dict(order)) for order in (tables.items(), reversed(tables.items())))
    of = key(old if of_old > 5 else new, slot, report.COHORT)
    (expected,) = estimates_of(made, {of: tables[of]})
    assert [each.model for each in one] == [each.model for each in turned] == [expected.model]


def test_where_devices_take_turns_the_mean_is_of_all_of_them() -> None:
    """One of ``stride`` devices reports in a slot, so there are ``stride`` times as many devices as reports."""
    measured = Estimates.of([estimate(FIRST + slot) for slot in range(4)])
    for stride in (1, 3):
        issued = campaign_of(cohort=Cohort(square_wave(4, (0, 10, 100, 1001))), schedule=Schedule(SEED, stride, 1))
        assert reconstruct.reported_of(measured, issued).devices.tolist() == [500.0 * stride] * 4


def test_a_model_is_fitted_again_when_a_threshold_tells_more_of_its_cells() -> None:
    rounds, models = epoch(), dict[str, float]()
    seen = {key(rounds, FIRST + 5, report.COHORT): counts(rounds, 500, report.COHORT)}
    (before,) = estimates_of(Reconstruction(Timeline([rounds]), models), seen)
    (after,) = estimates_of(Reconstruction(Timeline([rounds, epoch(500, first=FIRST + 100)]), models), seen)
    assert len(models) == 2
    assert before.model != after.model
    (again,) = estimates_of(Reconstruction(Timeline([rounds]), models), seen)
    assert (again.model, len(models)) == (before.model, 2)


def test_readings_above_the_last_cell_count_in_it() -> None:
    chosen = Threshold(9, 9, 9, 0.0, 0.0, 0.0, np.array([0.5, 0.25, 0.25]), (0, 4, 8, 16), "none")
    assert _cell_means((0, 4, 8), chosen).tolist() == [1.5, (5.5 + 11.5) / 2]


class Known:
    """A model whose ``moved`` returns a known factor by which readings have moved."""

    factors = (1.0, 1.0, 1.0)

    def moved(self, reported: Reported) -> Any:
        return np.array([self.factors] * len(reported.slot))

    def removed(self, reported: Reported) -> Removed:
        return Removed(*np.full((7, len(reported.slot)), 5.0))


def corrected(one: Estimate, removed: Removed) -> Estimates:
    table = Estimates.of([one])
    return table.with_load(table.truncated_mean, table.truncated_se, removed.bias, removed.standard_error)


def test_the_mean_of_the_readings_adds_what_truncation_removed_with_its_error() -> None:
    removed = Removed(*np.array([[3.0], [1.0], [-1.0], [math.sqrt(2.0)], [2.0], [2.0], [2.0]]))
    (one,) = corrected(estimate(103, 100.0, 3.0), removed)
    assert (one.bias, one.bias_se) == (3.0, 4.0)
    assert (one.estimate, one.standard_error) == pytest.approx((103.0, 5.0))
    assert (one.truncated_mean, one.truncated_se) == pytest.approx((100.0, 3.0))
    assert (one.low, one.high) == pytest.approx((103 - Z * 5, 103 + Z * 5))


@pytest.mark.parametrize(
    ("low", "high", "stale"),
    [(STALE, 2.0, False), (STALE + 1e-9, 2.0, True), (0.5, 1 / STALE, False), (0.5, 1 / STALE - 1e-9, True)],
)
def test_theta_is_stale_beyond_the_factor(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float, stale: bool
) -> None:
    known = Known()
    known.factors = (1.0, low, high)
    monkeypatch.setattr(reconstruct, "model_of", lambda _: known)
    made = Reconstruction(Timeline([epoch(500)]))
    assert bool(made.warnings(Estimates.of([estimate(FIRST + slot) for slot in range(8)]))) == stale


class KnownRange(Known, TwoSided):
    """A model of truncation at two ends whose ``moved`` returns a known share of the range's width."""

    def __init__(self, *factors: float) -> None:
        self.factors = factors  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("low", "high", "stale"),
    [
        (STALE_SHARE, 2.0, False),
        (STALE_SHARE + 1e-9, 2.0, True),
        (-2.0, -STALE_SHARE, False),
        (-2.0, -STALE_SHARE - 1e-9, True),
    ],
)
def test_a_range_of_two_ends_is_stale_beyond_a_share_of_its_width(
    monkeypatch: pytest.MonkeyPatch, low: float, high: float, stale: bool
) -> None:
    monkeypatch.setattr(reconstruct, "model_of", lambda _: KnownRange(0.0, low, high))
    made = Reconstruction(Timeline([epoch(500)]))
    assert bool(made.warnings(Estimates.of([estimate(FIRST + slot) for slot in range(8)]))) == stale


def test_only_what_was_measured_of_everybody_under_this_theta_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[int]] = []

    class Looking(Known):
        def moved(self, reported: Reported) -> Any:
            looked.append(reported.slot.tolist())
            return super().moved(reported)

    monkeypatch.setattr(reconstruct, "model_of", lambda _: Looking())
    made = Reconstruction(Timeline([epoch(), of := epoch(500, first=FIRST + 100)]))
    mine = [estimate(of.campaign.first_slot + slot) for slot in range(4)]
    others = [
        estimate(FIRST + 99),
        estimate(FIRST + 102, kind=MODEL),
        estimate(FIRST + 102, series=Series("north")),
    ]
    of_others, of_mine = Estimates.of(others), Estimates.of(mine)
    assert made.warnings(Estimates.of([*others, *mine])) == []
    assert looked == [[one.slot for one in mine]]
    assert made.warnings(of_others) == Reconstruction(Timeline([])).warnings(of_mine) == []
    assert Reconstruction(Timeline([epoch()])).warnings(of_mine) == []
    assert looked == [[one.slot for one in mine]]
