"""A stream's means and covariances equal their formulas, summed report by report over made-up releases."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from support.tables import tables_of
from undertone_aggregator.counts.epochs import Epoch, Timeline
from undertone_aggregator.counts.moments import LAGS, layout_of
from undertone_aggregator.counts.partial import EVERYBODY, Counts, Key, Partial
from undertone_aggregator.design.stream.integers import release_variance
from undertone_aggregator.estimate.clipping import ClippingBias
from undertone_aggregator.estimate.difference import Side
from undertone_aggregator.estimate.estimates import RELEASED, Series, Z
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.stream import Curve, StreamReconstruction
from undertone_shared.off_board.issue import build
from undertone_shared.report import STREAM
from undertone_shared.stream import GAUSSIAN, StreamRule, least_first_variance

SLOT = 1800
FIRST = 1_000_000
DIMENSION = 2
REPORTS = 6


def epoch(first: int, last: int, *, low: int, theta: int, levels: int, lag: int, offset: int, shift: int) -> Epoch:
    """A stream's epoch. With each report, the noise keeps 1 - 2^-shift of its previous value."""
    reuse, later = (1 << shift) - 1, 400
    rule = StreamRule(
        {
            "kind": "stream",
            "law": GAUSSIAN,
            "low": low,
            "theta": theta,
            "levels": levels,
            "slew": 4,
            "shift": shift,
            "reuse": reuse,
            "noise": [3 * least_first_variance(later, shift, reuse), later],
            "dimension": DIMENSION,
            "lag": lag,
            "reports": REPORTS,
            "chains": lag,
            "restart": 0,
            "renewal": 0,
        }
    )
    campaign = build(
        name="load",
        sensor="energy",
        unit="Wh",
        measure="sum",
        offset=offset,
        bound=5000,
        slot_seconds=SLOT,
        cycle=48,
        epoch=first * SLOT,
        last_slot=last,
        default=offset,
        stream=rule,
    )
    return Epoch(campaign, (first - 1) * SLOT)


@dataclass(frozen=True)
class Report:
    """What a device released in a slot. ``chain`` names the chain, ``index`` is the report's number in the chain."""

    epoch: Epoch
    group: str
    slot: int
    index: int
    released: tuple[int, ...]
    chain: object

    @property
    def rule(self) -> StreamRule:
        rule: StreamRule = self.epoch.campaign.rule
        return rule


def partial_of(reports: list[Report]) -> Partial:
    """What admission stores of these reports: the moments of each, and the pairs of slots on one chain."""
    partial, slots = Partial(), dict[object, list[int]]()
    for report in reports:
        layout = layout_of(report.rule)
        key = Key("load", report.epoch.campaign.fingerprint, STREAM, report.group, report.slot)
        before = slots.setdefault(report.chain, [])
        earlier = [report.slot - slot for slot in before if report.slot - slot <= LAGS]
        before.append(report.slot)
        added = layout.report(report.released, report.index)
        added += [cell for gap in earlier for cell in layout.pair(gap)]
        partial.add_moments(key, added, layout.cells)
    return partial


def mean_of(here: list[Report], coordinate: int) -> float:
    """(1/n) Σ offset + low + width/2 + X width/G over a slot's n reports."""
    total = 0.0
    for report in here:
        rule = report.rule
        x = report.released[coordinate - 1]
        total += report.epoch.campaign.offset + rule.low + rule.width / 2 + x * rule.width / rule.levels
    return total / len(here)


def covariance_of(here: list[Report], there: list[Report], gap: int) -> float:
    """The covariance of the noise of a slot and of the slot ``gap`` before it.

    For one slot (gap 0), it is Σ width² v(age) / n². For two slots, it is Σ width² v r^(gap/lag) / (n m) over the
    chains that report in both.
    """
    total = 0.0
    for report in here:
        rule = report.rule
        if gap == 0:
            age = min(report.index, layout_of(rule).ages)
            total += rule.width**2 * release_variance(rule, age)
        elif 0 < gap <= LAGS and any(before.chain == report.chain for before in there):
            share = rule.reuse / (1 << rule.shift)
            total += rule.width**2 * release_variance(rule) * share ** (gap // rule.lag)
    return total / (len(here) * len(there))


def fleet(of: Epoch, group: str, devices: int, seed: int) -> list[Report]:
    """Reports of the devices of one group, in some of 80 slots, on as many chains as the rule interleaves."""
    chance, campaign, reports = random.Random(seed), of.campaign, list[Report]()
    lag = campaign.rule.lag
    for device in range(devices):
        index = [0] * lag
        for slot in range(campaign.first_slot, campaign.first_slot + 80):
            if chance.random() < 0.3:
                index[slot % lag] += 1
                released = tuple(chance.randrange(-300, 300) for _ in range(DIMENSION))
                chain = (campaign.fingerprint, group, device, slot % lag)
                reports.append(Report(of, group, slot, index[slot % lag], released, chain))
    return reports


OLD = epoch(FIRST, FIRST + 200, low=100, theta=1100, levels=64, lag=1, offset=-50, shift=6)
NEW = epoch(FIRST + 40, FIRST + 300, low=7, theta=1507, levels=32, lag=2, offset=20, shift=2)
NORTH = fleet(OLD, "north", 4, 1)
EVERY = NORTH + fleet(OLD, EVERYBODY, 2, 2) + fleet(NEW, "south", 3, 3) + fleet(NEW, "north", 2, 4)
PARTIAL = partial_of(EVERY)
STREAMS = StreamReconstruction(Timeline([OLD, NEW]))
# What clipping removes. It depends on the level of the readings over seven cycles before and after, less the offset of
# the newest epoch.
REMOVED = ClippingBias(NEW.campaign.rule, NEW.campaign.bound, NEW.campaign.slot_seconds)
CYCLE = NEW.campaign.cycle


@pytest.mark.parametrize("group", [EVERYBODY, "north", "south"])
@pytest.mark.parametrize("coordinate", [1, 2])
def test_a_curve_is_the_mean_of_each_slot_with_the_covariance_of_its_noise(group: str, coordinate: int) -> None:
    """The test has two epochs with their own ranges, offsets and chains, and gaps of up to 64 slots and more."""
    curve = STREAMS.curve(tables_of(PARTIAL, group), coordinate)
    of_slot: dict[int, list[Report]] = {}
    for report in EVERY:
        if group in (report.group, EVERYBODY):
            of_slot.setdefault(report.slot, []).append(report)
    slots = sorted(of_slot)
    assert curve.slots.tolist() == slots
    assert curve.reports.tolist() == [len(of_slot[slot]) for slot in slots]
    assert curve.mean == pytest.approx([mean_of(of_slot[slot], coordinate) for slot in slots], rel=1e-12)
    assert curve.band.shape == (len(slots), LAGS + 1)
    covariance = curve.covariance()
    assert np.array_equal(covariance, covariance.T)
    for i, slot in enumerate(slots):
        for j, other in enumerate(slots[: i + 1]):
            expected = covariance_of(of_slot[slot], of_slot[other], slot - other)
            assert abs(covariance[i, j] - expected) <= 1e-12 * expected, (slot, other)
    assert curve.standard_error == pytest.approx([math.sqrt(row[i]) for i, row in enumerate(covariance)], rel=1e-12)


def test_a_curve_is_of_the_first_coordinate_unless_it_is_told() -> None:
    whole, first = STREAMS.curve(tables_of(PARTIAL)), STREAMS.curve(tables_of(PARTIAL), 1)
    assert whole.mean.tolist() == first.mean.tolist()


def test_histograms_of_no_stream_are_left_out() -> None:
    foreign = Key("load", b"another1", STREAM, "north", FIRST)
    mixed = Partial({**dict(PARTIAL), foreign: np.array([5])})
    assert (
        STREAMS.curve(tables_of(mixed, "north")).mean.tolist()
        == STREAMS.curve(tables_of(PARTIAL, "north")).mean.tolist()
    )
    assert estimates_of(STREAMS, mixed) == estimates_of(STREAMS, PARTIAL)
    only: Mapping[Key, Counts] = {foreign: np.array([5])}
    assert (
        estimates_of(STREAMS, only)
        == STREAMS.ranges(tables_of(only), EVERYBODY, 8)
        == STREAMS.means(tables_of(only), EVERYBODY, [FIRST])
        == []
    )


def test_a_slot_that_counts_no_report_has_neither_mean_nor_error() -> None:
    empty = {
        Key("load", OLD.campaign.fingerprint, STREAM, EVERYBODY, FIRST): np.zeros_like(next(iter(PARTIAL.values())))
    }
    curve = STREAMS.curve(tables_of(empty))
    assert (curve.reports.tolist(), curve.mean.tolist(), curve.standard_error.tolist()) == ([0], [0.0], [0.0])


def test_a_covariance_is_of_slots_up_to_64_apart() -> None:
    slots = np.array([10, 11, 40, 73, 74, 75, 200])
    chance = np.random.default_rng(5)
    band = chance.uniform(1, 9, (len(slots), LAGS + 1))
    curve = Curve(slots, np.ones(len(slots), dtype=np.int64), np.zeros(len(slots)), band)
    covariance = curve.covariance()
    for i, j in np.ndindex(covariance.shape):
        gap = abs(int(slots[i] - slots[j]))
        assert covariance[i, j] == (band[max(i, j), gap] if gap <= LAGS else 0.0), (i, j)


def test_noise_is_carried_over_64_slots_at_most() -> None:
    slots = np.array([0, 1, 64, 66, 130])
    band = np.zeros((5, LAGS + 1))
    band[:, 0] = [2.0, 4.0, 5.0, 8.0, 9.0]
    band[2, 64], band[3, 2], band[4, 64] = 1.0, 3.0, 2.0
    curve = Curve(slots, np.ones(5, dtype=np.int64), np.zeros(5), band)
    assert curve.carried(2).tolist() == [0, 0, 1 / 2, 3 / 5, 2 / 8]
    # With a lag of 5, only slots 1 and 66 and slots 0 and 130 are on one chain, and both pairs are more than 64 apart.
    assert curve.carried(5).tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("groups", [None, ["south"], ["north", EVERYBODY], []])
def test_every_group_and_coordinate_that_is_wanted_has_a_row_a_slot(groups: list[str] | None) -> None:
    wanted = [EVERYBODY, "north", "south"] if groups is None else groups
    estimates = estimates_of(STREAMS, PARTIAL, groups)
    rows = {(estimate.slot, estimate.series): estimate for estimate in estimates}
    assert list(rows) == sorted(rows)
    assert len(rows) == len(estimates)
    assert {series for _, series in rows} == {Series(group, k) for group in wanted for k in (1, 2)}
    for group in wanted:
        for k in (1, 2):
            curve = STREAMS.curve(tables_of(PARTIAL, group), k)
            carried = curve.carried(NEW.campaign.rule.lag)
            assert [slot for slot, series in rows if series == Series(group, k)] == curve.slots.tolist()
            for i, slot in enumerate(curve.slots.tolist()):
                row, error = rows[slot, Series(group, k)], curve.standard_error[i]
                assert (row.start, row.kind, row.reports, row.cohort) == (slot * SLOT, RELEASED, curve.reports[i], 0)
                assert (row.truncated_mean, row.truncated_se) == pytest.approx((curve.mean[i], error), rel=1e-9)
                assert row.carried == carried[i]
                near = abs(curve.slots - slot) <= 7 * CYCLE
                level = curve.mean[near].mean() - NEW.campaign.offset
                whole = REMOVED.at(np.array([level]))
                added = np.clip(2 - 2 * curve.standard_error[near].mean() / abs(level), 0, 1)
                assert row.bias == pytest.approx(added * whole.bias[0], rel=1e-9)
                errors = whole.fit[0], whole.shape[0], (1 - added) * whole.bias[0]
                assert row.bias_se == pytest.approx(np.sqrt(np.sum(np.square(errors))), rel=1e-9)
                half = Z * row.standard_error
                assert (row.low, row.high) == (row.estimate - half, row.estimate + half)
                assert row.theta == NEW.campaign.rule.theta + NEW.campaign.offset


def test_what_clipping_removes_is_that_of_the_level_over_seven_cycles_before_and_after() -> None:
    """The level is the mean of the slots that have reports.

    Readings grow from cycle to cycle, and some slots are missing.
    """
    slots = np.array([slot for slot in range(FIRST, FIRST + 20 * CYCLE) if slot % 7])
    mean = NEW.campaign.offset + 200.0 + 40.0 * ((slots - FIRST) // CYCLE) + slots % 5
    curve = Curve(slots, np.ones(len(slots), dtype=np.int64), mean, np.zeros((len(slots), LAGS + 1)))
    levels = [mean[abs(slots - slot) <= 7 * CYCLE].mean() - NEW.campaign.offset for slot in slots]
    bias = REMOVED.at(np.array(levels)).bias
    assert len(set(bias.round(6))) > CYCLE, "the bias follows the level"
    assert STREAMS._removed_from_slots(curve).bias == pytest.approx(bias, rel=1e-9)


@pytest.mark.parametrize(("noise", "added"), [(0.0, 1.0), (100.0, 1.0), (150.0, 0.5), (200.0, 0.0), (900.0, 0.0)])
def test_noise_above_half_of_the_mean_takes_from_the_bias_and_adds_to_its_error(noise: float, added: float) -> None:
    slots = np.arange(FIRST, FIRST + 3 * CYCLE)
    band = np.zeros((len(slots), LAGS + 1))
    band[:, 0] = noise**2
    curve = Curve(slots, np.ones_like(slots), np.full(len(slots), NEW.campaign.offset + 200.0), band)
    whole, removed = REMOVED.at(np.full(len(slots), 200.0)), STREAMS._removed_from_slots(curve)
    assert removed.bias == pytest.approx(added * whole.bias)
    assert removed.fit == pytest.approx(np.hypot(whole.fit, (1 - added) * whole.bias))
    assert removed.shape == pytest.approx(whole.shape)


def test_a_mean_over_slots_adds_what_its_own_noise_allows() -> None:
    for every in (1, 3 * CYCLE):
        curve = STREAMS.curve(tables_of(PARTIAL))
        for row in STREAMS.ranges(tables_of(PARTIAL), EVERYBODY, every):
            if row.series != Series(EVERYBODY, 1):
                continue
            inside = np.flatnonzero((curve.slots >= row.first) & (curve.slots <= row.last))
            near = [abs(curve.slots - slot) <= 7 * CYCLE for slot in curve.slots[inside]]
            levels = np.array([curve.mean[of].mean() for of in near]) - NEW.campaign.offset
            added = np.clip(2 - 2 * row.truncated_se / np.abs(levels), 0, 1)
            assert row.bias == pytest.approx(float(np.mean(added * REMOVED.at(levels).bias)), rel=1e-9)


@pytest.mark.parametrize("every", [7, 65, 100])
def test_a_mean_over_slots_has_the_sum_of_their_covariances(every: int) -> None:
    for group in (EVERYBODY, "north"):
        curve = STREAMS.curve(tables_of(PARTIAL, group))
        covariance = curve.covariance()
        ranges = STREAMS.ranges(tables_of(PARTIAL, group), group, every)
        assert ranges == sorted(ranges, key=lambda row: (row.first, row.series))
        mine = [row for row in ranges if row.series == Series(group, 1)]
        assert [row.first // every for row in mine] == sorted({slot // every for slot in curve.slots.tolist()})
        for row in mine:
            inside = (curve.slots >= row.first) & (curve.slots < row.first + every)
            n = int(inside.sum())
            assert (row.first % every, row.last, row.start) == (0, row.first + every - 1, row.first * SLOT)
            assert (row.slots, row.reports) == (n, curve.reports[inside].sum())
            assert row.truncated_mean == pytest.approx(curve.mean[inside].mean(), rel=1e-9)
            error = math.sqrt(covariance[np.ix_(inside, inside)].sum()) / n
            assert row.truncated_se == pytest.approx(error, rel=1e-9)
            half = Z * row.standard_error
            assert (row.low, row.high) == pytest.approx((row.estimate - half, row.estimate + half))


def test_a_mean_over_chosen_slots_is_named_by_the_first_and_the_last_of_them() -> None:
    slots = STREAMS.curve(tables_of(PARTIAL, "south")).slots.tolist()
    chosen = [slots[5], slots[2], slots[9], slots[-1] + 50]
    rows = STREAMS.means(tables_of(PARTIAL, "south"), "south", chosen)
    assert [(row.first, row.last, row.slots, row.series.coordinate) for row in rows] == [
        (slots[2], slots[-1] + 50, 3, 1),
        (slots[2], slots[-1] + 50, 3, 2),
    ]
    assert STREAMS.means(tables_of(PARTIAL, "south"), "south", [slots[-1] + 50]) == []


def side(group: str, slots: list[int]) -> Side:
    """What a query reads of these slots of a group."""
    reports = {}
    for origin, (at, counts) in tables_of(PARTIAL, group).items():
        asked = np.isin(at, slots)
        if asked.any():
            reports[origin] = at[asked], counts[asked]
    return Side(reports, group, slots)


@pytest.mark.parametrize(("first", "second"), [((2, 12), (40, 65)), ((2, 30), (20, 45))])
def test_the_difference_of_two_times_has_the_covariance_of_all_their_slots(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    """The noise of the difference u'x has the variance u'Cu.

    u is 1/n in the slots of the one time, and -1/m in the slots of the other.
    """
    curves = [STREAMS.curve(tables_of(PARTIAL, "north"), k) for k in (1, 2)]
    slots = curves[0].slots
    times = [slots[slice(*time)].tolist() for time in (first, second)]
    weights = sum(sign * np.isin(slots, time) / len(time) for sign, time in zip((1, -1), times, strict=True))
    rows = STREAMS.differences(*(side("north", time) for time in times))
    assert [row.series for row in rows] == [Series("north", 1), Series("north", 2)]
    for row, curve in zip(rows, curves, strict=True):
        assert (row.slots, row.against_slots) == tuple(map(len, times))
        assert row.truncated_mean == pytest.approx(weights @ curve.mean, rel=1e-9)
        assert row.truncated_se == pytest.approx(math.sqrt(weights @ curve.covariance() @ weights), rel=1e-9)


def test_the_noise_of_two_groups_adds_up() -> None:
    curves = [STREAMS.curve(tables_of(PARTIAL, group)) for group in ("north", "south")]
    slots = sorted(set(curves[0].slots.tolist()) & set(curves[1].slots.tolist()))
    row, _ = STREAMS.differences(*(side(group, slots) for group in ("north", "south")))
    assert (row.series.group, row.against_group) == ("north", "south")
    inside = [np.isin(curve.slots, slots) for curve in curves]
    variances = [c.covariance()[np.ix_(of, of)].sum() / len(slots) ** 2 for c, of in zip(curves, inside, strict=True)]
    assert row.truncated_se == pytest.approx(math.sqrt(sum(variances)), rel=1e-9)
    means = [curve.mean[of].mean() for curve, of in zip(curves, inside, strict=True)]
    assert row.truncated_mean == pytest.approx(means[0] - means[1], rel=1e-9)


def test_slots_without_reports_differ_from_nothing() -> None:
    slots = STREAMS.curve(tables_of(PARTIAL, "south")).slots.tolist()
    later = [slot + 1000 for slot in slots]
    # First, one side asks for slots without numbers; then, one side has no reports at all.
    pair = [side("south", slots)._replace(slots=times) for times in (slots, later)]
    assert STREAMS.differences(*pair) == []
    assert STREAMS.differences(side("south", slots), side("north", later)) == []


def test_the_newest_epoch_says_how_many_chains_there_are() -> None:
    assert (STREAMS.chains, STREAMS.memory) == (NEW.campaign.rule.lag, LAGS)
    assert STREAMS.warnings(estimates_of(STREAMS, PARTIAL)) == []
