"""Estimates are compared with closed forms and simulated fleets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.server import FIRST, campaign
from undertone_aggregator.counts.epochs import Epoch, Timeline, threshold_to_json
from undertone_aggregator.counts.partial import Key
from undertone_aggregator.design import hybrid, piecewise
from undertone_aggregator.estimate.estimates import MEASURED, MODEL
from undertone_aggregator.estimate.estimator import estimates_of
from undertone_aggregator.estimate.misfit import manipulation
from undertone_aggregator.estimate.noise import QuadraticNoise, decoded
from undertone_aggregator.estimate.reconstruct import Decoder, Reconstruction, _cell_means, model_of
from undertone_aggregator.threshold import Threshold
from undertone_aggregator.threshold.result import Block
from undertone_shared import report
from undertone_shared.off_board.issue import build
from undertone_shared.scalar import ReportRule
from undertone_shared.schedule import Schedule
from undertone_simulator.fast.draws import GivenWords
from undertone_simulator.fast.vectorised import Mechanism, symbols

Readings = NDArray[Any]

OLD = Epoch(campaign(cohort_stride=9, theta=400), 0)
NEW = Epoch(campaign(FIRST + 100, cohort_stride=9, theta=500), 0)
THRESHOLD = Epoch(campaign(FIRST - 50, FIRST - 1), 0)


def histograms(mechanism: Mechanism, theta: int, readings: Readings, runs: int, seed: int) -> list[Readings]:
    """The histograms of ``runs`` independent runs of a fleet, with the draws that devices would make."""
    chance = np.random.default_rng(seed)
    words = GivenWords(chance.integers(0, 2**32, (runs * len(readings), 24), dtype=np.uint32))
    drawn = symbols(mechanism, np.tile(np.minimum(readings, theta), runs), theta, words).reshape(runs, -1)
    return [np.bincount(row, minlength=mechanism.symbols) for row in drawn]


def key(epoch: Epoch, slot: int, kind: int = report.REPORT, group: str = "all") -> Key:
    return Key("meters", epoch.campaign.fingerprint, kind, group, slot)


@pytest.mark.slow_but("hybrid-1", "piecewise-1")
@pytest.mark.parametrize("epsilon", [0.4, 1, 4])
@pytest.mark.parametrize("make", [hybrid, piecewise])
def test_mean_and_error_hold_for_a_fixed_fleet(make, epsilon: float) -> None:  # type: ignore[no-untyped-def]
    readings = np.minimum(np.random.default_rng(3).exponential(120, 500), 500).astype(int)
    mechanism = make(epsilon, 256)
    decoder = Decoder(ReportRule(0, 500, mechanism), 7)
    runs = [decoder.mean(counts) for counts in histograms(mechanism, 500, readings, 1500, 3)]
    errors = np.array([mean for mean, _, _ in runs]) - readings.mean() - 7
    spread, predicted = errors.std(), np.sqrt(np.mean([variance for _, variance, _ in runs]))
    assert abs(errors.mean()) < 5 * spread / np.sqrt(len(errors))
    # The standard deviation of 1500 errors has a relative error of 1.8 %.
    assert abs(predicted / spread - 1) < 5 * 0.0183 + 0.02 * (epsilon < 0.5)
    covered = np.mean(np.abs(errors) < 1.959964 * np.sqrt([variance for _, variance, _ in runs]))
    assert abs(covered - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 1500)


def test_the_variance_of_the_hybrid_does_not_depend_on_readings() -> None:
    noise = QuadraticNoise(hybrid(1, 256), 500)
    assert noise.at(-0.9, 9.0, 100) == pytest.approx(noise.at(0.5, 4.0, 100), rel=2e-3)
    assert noise.at(0.0, 4.3, 100) == pytest.approx(4.289, rel=2e-3)


def test_an_estimate_names_everything() -> None:
    assert NEW.report is not None
    counts = histograms(NEW.report.mechanism, 500, np.full(300, 200), 1, 4)[0]
    cohort = np.ones(NEW.campaign.cohort.mechanism.cells, dtype=np.int64)
    (estimate,) = estimates_of(
        Reconstruction(Timeline([OLD, NEW])),
        {key(NEW, FIRST + 150): counts, key(NEW, FIRST + 150, report.COHORT): cohort},
    )
    assert (
        estimate.slot,
        estimate.start,
        estimate.group,
        estimate.kind,
        estimate.reports,
        estimate.cohort,
        estimate.theta,
    ) == (
        FIRST + 150,
        FIRST + 150,
        "all",
        MEASURED,
        300,
        len(cohort),
        500,
    )
    assert estimate.standard_error is not None
    assert abs(estimate.estimate - 200) < 5 * estimate.standard_error
    assert estimate.low == pytest.approx(estimate.estimate - 1.96 * estimate.standard_error, rel=1e-4)


def test_reports_of_the_old_epoch_are_decoded_by_their_own_rule() -> None:
    """Devices report the same readings under θ = 400 and under θ = 500. Each histogram is decoded by its own θ."""
    assert OLD.report is not None
    assert NEW.report is not None
    old = histograms(OLD.report.mechanism, 400, np.full(100_000, 300), 1, 4)[0]
    new = histograms(NEW.report.mechanism, 500, np.full(300_000, 300), 1, 4)[0]
    made = Reconstruction(Timeline([OLD, NEW]))
    (estimate,) = estimates_of(made, {key(OLD, FIRST + 101): old, key(NEW, FIRST + 101): new})
    assert estimate.reports == 400_000
    assert estimate.standard_error is not None
    assert abs(estimate.estimate - 300) < 5 * estimate.standard_error
    parts = [made.decoder(OLD).mean(old), made.decoder(NEW).mean(new)]
    assert estimate.standard_error**2 == pytest.approx((parts[0][1] + 9 * parts[1][1]) / 16)
    # A fake may report under either rule, so the bound on manipulation uses the wider rule's ends.
    wide = made.decoder(NEW)
    assert wide.highest > made.decoder(OLD).highest
    assert wide.lowest < made.decoder(OLD).lowest
    assert estimate.manipulation == pytest.approx(manipulation(estimate.estimate, wide.lowest, wide.highest))
    low = {
        key(epoch, FIRST + 101): histograms(mechanism, theta, np.full(10_000, 50), 1, 5)[0]
        for epoch, mechanism, theta in ((OLD, OLD.report.mechanism, 400), (NEW, NEW.report.mechanism, 500))
    }
    (estimate,) = estimates_of(made, low)
    assert estimate.manipulation == pytest.approx(manipulation(estimate.estimate, wide.lowest, wide.highest))


def blocks(thetas: tuple[int, int]) -> Threshold:
    """A choice of θ for slots 0 and 1 of the cycle and another for slots 2 and 3, whose readings are twice as large."""
    edges = tuple(range(0, 1002, 2))
    mass = [np.exp(-np.arange(500) / scale) for scale in (40, 80)]
    densities = [each / each.sum() for each in mass]
    middles = np.arange(500) * 2 + 0.5
    choices = [
        Threshold(
            theta, theta, theta, float(density @ np.maximum(middles - theta, 0)), 0.1, 1.0, density, edges, "known"
        )
        for theta, density in zip(thetas, densities, strict=True)
    ]
    made = [Block(2 * at, 0.5, choice) for at, choice in enumerate(choices)]
    return replace(choices[1], density=np.mean(densities, axis=0), blocks=made)


def test_each_block_of_the_day_has_its_own_decode_noise_and_bias() -> None:
    chosen = blocks((200, 500))
    epoch = Epoch(campaign(cohort_stride=9, theta=200, later=((2, 0, 500),)), 0, threshold_to_json(chosen))
    assert epoch.report is not None
    start = FIRST + (-FIRST) % 4
    partial = {}
    for slot in range(start, start + 8):
        theta = 200 if slot % 4 < 2 else 500
        partial[key(epoch, slot)] = histograms(epoch.report.mechanism, theta, np.full(50_000, 150), 1, slot)[0]
    made = Reconstruction(Timeline([epoch]))
    estimates = estimates_of(made, partial, ["all"])
    for estimate in estimates:
        assert estimate.theta == (200 if estimate.slot % 4 < 2 else 500)
        assert estimate.truncated_se is not None
        assert abs(estimate.truncated_mean - 150) < 5 * estimate.truncated_se
        assert estimate.bias is not None
        assert estimate.standard_error is not None
        assert estimate.standard_error > estimate.truncated_se
    night, day = estimates[0], estimates[2]
    assert night.truncated_se is not None
    assert day.truncated_se is not None
    assert day.truncated_se / night.truncated_se == pytest.approx(2.5, rel=0.1)
    # Each block has its own distribution of readings, and so its own bias.
    biases = [choice.bias for _, _, choice in chosen.blocks]
    assert model_of(epoch).at_phases("excess")[[0, 2]] == pytest.approx(biases, rel=0.15)


def test_groups_add_up_to_all() -> None:
    assert NEW.report is not None
    parts = {
        key(NEW, FIRST + 150, group=group): histograms(NEW.report.mechanism, 500, np.full(n, 100), 1, 4)[0]
        for group, n in (("north", 50), ("south", 150))
    }
    made = Reconstruction(Timeline([NEW]))
    everyone, north, south = estimates_of(made, parts)
    assert [everyone.group, north.group, south.group] == ["all", "north", "south"]
    sums = [each.estimate * each.reports for each in (everyone, north, south)]
    assert sums[0] == pytest.approx(sums[1] + sums[2])
    assert [estimate.group for estimate in estimates_of(made, parts, ["south"])] == ["south"]


def test_a_threshold_epoch_shows_a_model_without_coverage() -> None:
    mechanism = THRESHOLD.campaign.cohort.mechanism
    rng = np.random.default_rng(7)
    level = np.array(mechanism.weights(1), dtype=float)
    counts = rng.multinomial(5000, level / level.sum())
    (estimate,) = estimates_of(
        Reconstruction(Timeline([THRESHOLD])), {key(THRESHOLD, FIRST - 20, report.COHORT): counts}
    )
    assert (
        estimate.kind,
        estimate.reports,
        estimate.cohort,
        estimate.standard_error,
        estimate.low,
        estimate.theta,
    ) == (
        MODEL,
        0,
        5000,
        None,
        None,
        None,
    )
    assert 30 < estimate.model < 150, "all readings lie in the cell from 10 to 99"


def test_a_cells_mean_is_the_fitted_distributions_or_its_middle() -> None:
    edges = (0, 4, 8, 20)
    # Readings are integers: a cell from 0 to 3 has its middle at 1.5.
    assert _cell_means(edges, None).tolist() == [1.5, 5.5, 13.5]
    # The fine bins [0, 2), [2, 4) and [4, 8) have the means .5, 2.5 and 5.5. Nothing is known above 8.
    density, fine = np.array([0.75, 0.25, 0.0]), (0, 2, 4, 8)
    chosen = Threshold(9, 9, 9, 0.0, 0.0, 0.0, density, fine, "none")
    with np.errstate(all="raise"):
        assert _cell_means(edges, chosen).tolist() == [0.75 * 0.5 + 0.25 * 2.5, 5.5, 13.5]


def turns(stride: int, theta: int = 400) -> Epoch:
    """A report epoch in which each device has a turn every ``stride`` slots."""
    whole = campaign(cohort_stride=9, theta=theta)
    fields = {name: getattr(whole, name) for name in ("sensor", "unit", "measure", "offset", "bound", "default")}
    return Epoch(
        build(
            name="meters", slot_seconds=1, cycle=5, epoch=FIRST, last_slot=FIRST + 99, cohort=whole.cohort,
            report=whole.report, schedule=Schedule(bytes(16), stride, 7), **fields,
        ),
        0,
    )  # fmt: skip


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_of_a_sample_the_reports_themselves_say_how_far_they_scatter(stride: int) -> None:
    epoch = turns(stride)
    assert epoch.report is not None
    made = Reconstruction(Timeline([epoch])).decoder(epoch)
    counts = np.zeros(made.symbols, dtype=np.int64)
    counts[[0, made.symbols // 2, made.symbols - 1]] = 3, 1, 2
    one_by_one = np.repeat(200 * decoded(epoch.report.mechanism, 400), counts)
    _, variance, n = made.mean(counts)
    assert n == 6
    if stride > 1:
        assert variance == pytest.approx(one_by_one.var(ddof=1) / 6)
    else:
        assert variance == pytest.approx(200**2 * made.noise(counts[None])[0] / 6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_few_reports_that_are_alike_by_chance_are_not_exact(n: int) -> None:
    made = Reconstruction(Timeline([turns(3)])).decoder(turns(3))
    counts = np.zeros(made.symbols, dtype=np.int64)
    counts[0] = n
    assert made.mean(counts)[1] == pytest.approx(200**2 * made.noise(counts[None])[0] / n)


def test_the_evidence_against_a_slot_adds_up_over_its_epochs() -> None:
    made = Reconstruction(Timeline([OLD, NEW]))
    assert OLD.report is not None
    bad = np.zeros(OLD.report.mechanism.symbols, dtype=np.int64)
    bad[-1] = 400
    (old,) = estimates_of(made, {key(OLD, FIRST + 101): bad})
    (new,) = estimates_of(made, {key(NEW, FIRST + 101): bad})
    (both,) = estimates_of(made, {key(OLD, FIRST + 101): bad, key(NEW, FIRST + 101): bad})
    assert old.misfit is not None
    assert old.misfit > 6
    assert new.misfit is not None
    # Two histograms have two chances of a large misfit. The sum is smaller for that.
    assert both.misfit == pytest.approx(old.misfit + new.misfit - 2 * np.log10(2))
