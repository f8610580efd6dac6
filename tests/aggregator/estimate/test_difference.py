"""Differences of two means: the errors that both means share cancel in the number and in its standard error."""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from support.stores import simulated_store
from undertone_aggregator.campaign.results import open_results
from undertone_aggregator.estimate.against import Against
from undertone_aggregator.estimate.difference import GroupNoise, MeanDifference, Means, chance_of, difference
from undertone_aggregator.estimate.estimates import Series, Z
from undertone_aggregator.estimate.query import Results
from undertone_aggregator.estimate.removed import Removed
from undertone_aggregator.estimate.selection import OnDays
from undertone_shared.errors import Invalid

# The error of a difference whose parts cancel: 0, up to the root of 64 rounding errors of variances up to 9.
NOTHING = pytest.approx(0.0, abs=3.0 * math.sqrt(64 * 2.0**-52))
CYCLE, HALF_HOUR = 48, 1800


def side(
    group: str,
    slots: Sequence[int],
    mean: float = 100.0,
    *,
    n: float = 10.0,
    noise: float = 0.0,
    choice: int = 0,
    **errors: Any,
) -> Means:
    """One side of a comparison, with equal values in all slots; ``errors``: columns of `Removed`."""
    slot = np.array(slots, dtype=np.int64)
    columns = {name: np.full(len(slot), errors.get(name, 0.0)) for name in Removed._fields}
    every = np.full(len(slot), n)
    band = np.full((len(slot), 1), noise**2)
    truncated = np.full(len(slot), mean)
    choices = np.full(len(slot), choice)
    return Means(
        Series(group), list(slots), slot, truncated, every, Removed(**columns), choices, GroupNoise(slot, every, band)
    )


def apart(one: Means, other: Means) -> MeanDifference:
    row = difference(one, other, HALF_HOUR, CYCLE)
    assert row is not None
    return row


MONDAY, TUESDAY = range(0, CYCLE), range(CYCLE, 2 * CYCLE)


def test_the_noise_of_two_groups_adds_up() -> None:
    row = apart(side("a", [1, 2], 103.0, noise=3.0), side("b", [1, 2], 100.0, noise=4.0))
    assert (row.mean, row.against, row.estimate) == (103.0, 100.0, 3.0)
    assert row.standard_error == pytest.approx(5.0 / math.sqrt(2))
    assert (row.low, row.high) == pytest.approx((3 - Z * row.standard_error, 3 + Z * row.standard_error))


def test_a_groups_noise_is_a_part_of_that_of_all() -> None:
    """A group of ten among forty devices, with noise v each: Var(group - all) = v (1/10 - 1/40)."""
    row = apart(side("a", [1], n=10, noise=math.sqrt(1 / 10)), side("all", [1], n=40, noise=math.sqrt(1 / 40)))
    assert row.standard_error == pytest.approx(math.sqrt(1 / 10 - 1 / 40))
    turned = apart(side("all", [1], n=40, noise=math.sqrt(1 / 40)), side("a", [1], n=10, noise=math.sqrt(1 / 10)))
    assert turned.standard_error == pytest.approx(row.standard_error)
    # A group that contains everybody differs from everybody by exactly 0, without any error.
    whole = apart(side("a", [1], n=40, noise=0.2), side("all", [1], n=40, noise=0.2))
    assert (whole.estimate, whole.standard_error, whole.chance) == (0.0, NOTHING, None)


def test_slots_on_both_sides_cancel() -> None:
    """The mean of two slots is compared with the first of them."""
    row = apart(side("a", range(2), noise=1.0), side("a", range(1), noise=1.0))
    # The weights of the noise are 1/2 - 1 in the first slot and 1/2 in the second.
    assert row.standard_error == pytest.approx(math.sqrt(1 / 4 + 1 / 4))


def test_what_the_choice_of_theta_errs_in_cancels() -> None:
    for part in ("fit", "explained", "shape"):
        both = [side("a", [slot], bias=9.0, **{part: 3.0}) for slot in (5, 5 + CYCLE)]
        assert apart(*both).bias_se == NOTHING, part
        # If one side's error is half as large, half of the error is left.
        less = side("a", [5 + CYCLE], bias=9.0, **{part: 1.5})
        assert apart(both[0], less).bias_se == pytest.approx(1.5), part


def test_two_groups_at_the_same_time_are_between_the_explanations() -> None:
    """A difference of groups may lie anywhere between the two explanations, so its error is 1/√12 of their distance.

    A difference of times has the whole distance as its error.
    """
    large, small = side("a", [5], bias=9.0, explained=6.0), side("b", [5], bias=3.0, explained=-2.0)
    assert apart(large, small).bias_se == pytest.approx(8.0 / math.sqrt(12.0))
    assert apart(large, side("all", [5], bias=6.0)).bias_se == pytest.approx(6.0 / math.sqrt(12.0))
    week = 5 + 7 * CYCLE
    for group in "ab":
        assert apart(large, side(group, [week], bias=3.0, explained=-2.0)).bias_se == pytest.approx(8.0)


def test_a_later_choice_of_theta_knows_the_reports_of_an_earlier_one() -> None:
    """Both choices err in the same direction, in proportion to their biases, so equal biases cancel.

    The ratio of error to bias is the mean of the stated errors divided by the mean of the biases.
    """
    early, late = side("a", [5], bias=9.0, fit=3.0), side("a", [5 + 7 * CYCLE], bias=9.0, fit=1.5, choice=1)
    assert apart(early, late).bias_se == NOTHING
    more = side("a", [5 + 7 * CYCLE], bias=18.0, fit=3.75, choice=1)
    assert apart(early, more).bias_se == pytest.approx(6.75 / 27 * 9)


def test_large_homes_stay_in_their_group() -> None:
    """A group's homes with large readings stay in it, so a tenth of the variance by chance is the same in all slots.

    For all devices together, the fit's error already contains this tenth.
    """
    many = range(100)
    group = apart(side("a", many, bias=9.0, chance=3.0), side("b", many, bias=9.0))
    assert group.bias_se == pytest.approx(math.sqrt(9 / 10 + 9 / 100))
    everybody = apart(side("all", many, bias=9.0, chance=3.0), side("b", many, bias=9.0))
    assert everybody.bias_se == pytest.approx(3 / 10)


def test_the_shape_of_two_times_of_day_does_not_cancel() -> None:
    same = apart(side("a", [5], bias=9.0, shape=3.0), side("a", [5 + CYCLE], bias=9.0, shape=3.0))
    other = apart(side("a", [5], bias=9.0, shape=3.0), side("a", [29], bias=9.0, shape=3.0))
    assert same.bias_se == NOTHING
    assert other.bias_se is not None
    assert other.bias_se > 3.0 * math.sqrt(2)


def test_the_level_of_two_groups_or_two_weeks_does_not_cancel() -> None:
    """Here, each mean's level comes from its own slot alone, so the errors of level and mean add up: 3 + 1 = 4.

    ``bias_se`` of one mean is the level's part of this error: √(4² - 1²).
    """
    errs: dict[str, Any] = {"bias": 9.0, "level": 3.0, "noise": 1.0}
    groups = apart(side("a", [5], **errs), side("b", [5], **errs))
    assert groups.standard_error == pytest.approx(4.0 * math.sqrt(2))
    assert groups.bias_se == pytest.approx(math.sqrt(2 * 15))
    weeks = apart(side("a", [5], **errs), side("a", [5 + 7 * CYCLE], **errs))
    assert weeks.standard_error == pytest.approx(4.0 * math.sqrt(2))


def test_levels_around_two_slots_are_of_the_same_reports_in_part() -> None:
    """Each level is the mean of 49 slots.

    At twelve slots' distance, the two levels share all but twelve of them, and the errors of the shared ones cancel.
    """
    every = side("a", range(-50, 100), bias=9.0, level=7.0, noise=1.0)
    one, other = (every.at(np.flatnonzero(every.slot == slot))._replace(asked=[slot]) for slot in (5, 17))
    row = apart(one, other)
    # The noise of each slot has the weight 7 / √49 = 1 in a level. Twelve slots are in one level alone, twelve in the
    # other, and both means add the noise of their own slot.
    assert row.standard_error == pytest.approx(math.sqrt(24 + 2))


def test_a_groups_level_is_a_part_of_that_of_all() -> None:
    """A group of ten devices is part of all forty, so its noise is part of theirs.

    The level's error is three times the noise and comes from the same reports, so each side's error is four times its
    noise.
    """
    part = side("a", [1], n=10, noise=math.sqrt(1 / 10), bias=9.0, level=3.0 * math.sqrt(1 / 10))
    whole = side("all", [1], n=40, noise=math.sqrt(1 / 40), bias=9.0, level=3.0 * math.sqrt(1 / 40))
    assert apart(part, whole).standard_error == pytest.approx(4.0 * math.sqrt(1 / 10 - 1 / 40))


def test_a_slots_own_error_cancels_with_itself_alone() -> None:
    groups = apart(side("a", [5], bias=9.0, own=3.0), side("b", [5], bias=9.0, own=3.0))
    assert groups.bias_se == pytest.approx(3.0 * math.sqrt(2))
    assert apart(*[side("a", [5], bias=9.0, own=3.0)] * 2).bias_se == NOTHING


def test_without_a_model_on_one_side_the_truncated_means_are_compared() -> None:
    row = apart(side("a", [5], 103.0, bias=9.0, noise=3.0), side("b", [5], 100.0, bias=math.nan, noise=4.0))
    assert (row.estimate, row.bias, row.bias_se) == (3.0, None, None)
    assert (row.mean, row.against) == (103.0, 100.0)
    assert row.standard_error == pytest.approx(5.0)


def test_a_slot_counts_if_its_counterpart_has_a_number() -> None:
    one, other = side("a", MONDAY), side("a", TUESDAY)
    # Tuesday has no numbers for its first hour, which would make Monday look different.
    gone = other.at(np.arange(2, CYCLE))
    row = apart(one, gone)
    assert (row.slots, row.against_slots) == (CYCLE - 2, CYCLE - 2)
    # If the two times have different lengths, each mean is over its own slots.
    row = apart(one, replace_asked(gone, range(CYCLE, 3 * CYCLE)))
    assert (row.slots, row.against_slots) == (CYCLE, CYCLE - 2)
    assert difference(one, other.at(np.arange(0)), HALF_HOUR, CYCLE) is None


def replace_asked(means: Means, slots: range) -> Means:
    return means._replace(asked=list(slots))


def test_a_verdict_needs_an_interval_without_zero() -> None:
    row = apart(side("a", [1], 103.0, noise=1.0), side("b", [1], 100.0))
    assert (row.verdict, chance_of(row)) == ("more", "1 in 370")
    # A normal variable is three or more standard deviations away with this chance.
    assert row.chance == pytest.approx(0.0026998, rel=1e-4)
    for estimate, verdict in ((Z - 1e-9, "unclear"), (-Z + 1e-9, "unclear"), (-Z - 1e-9, "less")):
        moved = replace(row, estimate=estimate, low=estimate - Z, high=estimate + Z)
        assert moved.verdict == verdict
    far = apart(side("a", [1], 110.0, noise=1.0), side("b", [1], 100.0))
    assert chance_of(far) == "less than 1 in 10,000"


# --- the group and the times as people write them


def test_what_a_mean_is_compared_with() -> None:
    assert Against.parse("--against", "group:north") == Against(group="north")
    assert Against.parse("--against", "7d") == Against(before=7 * 86400)
    assert Against.parse("--against", "2026-03-02..2026-03-09") == Against(begin="2026-03-02", end="2026-03-09")
    assert Against.parse("--against", "days:sat,sun") == Against(days=OnDays("sat,sun"))
    for text in ("group:north", "604800s", "2026-03-02..2026-03-09", "days:days-off"):
        assert str(Against.parse("--against", text)) == text


@pytest.mark.parametrize("text", ["", "north", "group:", "7", "..", "2026-03-02..", "monday..tuesday", "days:weekend"])
def test_what_is_none_is_named(text: str) -> None:
    with pytest.raises(Invalid, match="--against"):
        Against.parse("--against", text)


def test_days_before_are_days_of_the_clock() -> None:
    zone = ZoneInfo("Europe/Amsterdam")

    def slot(*moment: int) -> int:
        return int(datetime(*moment, tzinfo=zone).timestamp()) // HALF_HOUR  # type: ignore[arg-type, misc]

    def slots(moment: datetime) -> int:
        return int(moment.timestamp()) // HALF_HOUR

    week, hours = Against(before=7 * 86400), Against(before=12 * 3600)
    # The clock goes forward on 2026-03-29.
    first, last = slot(2026, 3, 30, 18, 0), slot(2026, 3, 30, 22, 30)
    assert week.span(first, last, HALF_HOUR, zone, slots) == (slot(2026, 3, 23, 18, 0), slot(2026, 3, 23, 22, 30))
    assert hours.span(first, last, HALF_HOUR, zone, slots) == (first - 24, last - 24)
    other = Against(begin="2026-03-01", end="2026-03-02")
    assert other.span(first, last, HALF_HOUR, zone, slots) == (slot(2026, 3, 1, 0, 0), slot(2026, 3, 2, 0, 0) - 1)
    with pytest.raises(Invalid, match="whole number of slots of 1800 s"):
        Against(before=600).span(first, last, HALF_HOUR, zone, slots)


# --- differences that a store's reports give


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_store(tmp_path_factory)


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Iterator[Results]:
    with open_results(Path(shutil.copy(made, tmp_path / "load.sqlite"))) as opened:
        yield opened


def test_a_difference_is_that_of_two_selections(results: Results) -> None:
    last = results.estimates()[-1].slot
    first = last - 9
    (row,) = results.difference(first, last, against="1d")
    (here,), (before,) = results.selection(first, last), results.selection(first - CYCLE, last - CYCLE)
    assert (row.mean, row.against) == pytest.approx((here.estimate, before.estimate))
    assert row.estimate == pytest.approx(here.estimate - before.estimate)
    assert (row.first, row.against_first) == (first, first - CYCLE)
    assert row.bias_se is not None
    # Two times of one campaign share the fit's error, so the difference has a smaller error than two independent means.
    assert row.standard_error < math.hypot(here.standard_error or 0.0, before.standard_error or 0.0)
    assert row.truncated_se == pytest.approx(math.hypot(here.truncated_se or 0.0, before.truncated_se or 0.0))
    moment = [datetime.fromtimestamp(slot * HALF_HOUR, UTC).isoformat() for slot in (first - CYCLE, last - CYCLE + 1)]
    assert results.difference(first, last, against="..".join(moment)) == [row]


def test_a_time_that_begins_before_the_campaign_is_compared_as_far_as_it_goes(results: Results) -> None:
    first = next(row.slot for row in results.estimates() if row.kind == "report")
    (row,) = results.difference(first, first + 2 * CYCLE - 1, against="1d")
    assert (row.slots, row.against_slots) == (CYCLE, CYCLE)
    assert results.difference(first, first + 5, against="900d") == []


def test_hours_and_days_are_selected_on_both_sides(results: Results) -> None:
    last = results.estimates()[-1].slot
    (row,) = results.difference(last - 47, last, against="1d", hours="02:00-06:00", zone=UTC)
    assert (row.slots, row.against_slots) == (8, 8)
    assert (row.first - row.against_first, row.last - row.against_last) == (CYCLE, CYCLE)


def test_workdays_are_compared_with_days_off_of_the_same_time(results: Results) -> None:
    rows = results.estimates()
    first, last = next(row.slot for row in rows if row.kind == "report"), rows[-1].slot
    day = datetime.fromtimestamp(last * HALF_HOUR, UTC).strftime("%a").lower()
    others = ",".join({"mon", "tue", "wed", "thu", "fri", "sat", "sun"} - {day})
    (row,) = results.difference(first, last, days=day, against=f"days:{others}", zone=UTC)
    (here,), (there,) = (results.selection(first, last, days=days, zone=UTC) for days in (day, others))
    # A selection's level is estimated from the reports of all of its time, also those before and after its days.
    assert (row.mean, row.against) == pytest.approx((here.estimate, there.estimate), rel=1e-4)
    assert (row.slots, row.against_slots) == (here.slots, there.slots)
    for same in (None, day):
        with pytest.raises(Invalid, match="select other days on one side, such as workdays"):
            results.difference(first, last, days=same, against=f"days:{day}")


def test_mistakes_are_sentences(results: Results) -> None:
    last = results.estimates()[-1].slot
    for against, words in (
        ("group:nowhere", "group is 'nowhere'"),
        ("group:all", "another group than the one that is compared"),
        ("20m", "whole number of slots"),
        ("30000d", "after 1970"),
    ):
        with pytest.raises(Invalid, match=words):
            results.difference(last, last, against=against)
