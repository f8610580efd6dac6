"""The newest results are kept for calls with equal arguments. An error is not kept."""

import numpy as np
import pytest

from undertone_aggregator.design import square_wave
from undertone_aggregator.threshold import CohortCounts, ReportCounts, first_edges
from undertone_aggregator.threshold.remembered import remembered
from undertone_shared.mechanism import WindowMechanism

MECHANISM = square_wave("1", first_edges(1000, 16))


def cohort(first: int) -> CohortCounts:
    counts = np.full(MECHANISM.cells, 5)
    counts[0] = first
    return CohortCounts(MECHANISM, counts)


def test_equal_histograms_are_computed_once() -> None:
    calls = []

    @remembered
    def total(rounds: list[CohortCounts], reports: list[ReportCounts], *, factor: float = 1.0) -> float:
        calls.append(factor)
        return factor * sum(each.total for each in [*rounds, *reports])

    table = ReportCounts.of(WindowMechanism(3, 1, 1, 1, 1), 10, [3, 4])
    other = ReportCounts.of(WindowMechanism(2, 1, 1, 1, 1), 10, [3, 4])
    first = total([cohort(1)], [table])
    assert total([cohort(1)], [table]) == first
    assert len(calls) == 1
    # The key contains everything on which the result may depend.
    assert total([cohort(2)], [table]) == first + 1
    assert total([cohort(1)], [ReportCounts.of(WindowMechanism(3, 1, 1, 1, 1), 10, [3, 5])]) == first + 1
    assert total([cohort(1), cohort(1)], []) != first
    assert total([cohort(1)], [table], factor=2.0) == 2 * first
    assert len(calls) == 5
    total([cohort(1)], [other])
    total([cohort(1)], [ReportCounts.of(WindowMechanism(3, 1, 1, 1, 1), 11, [3, 4])])
    assert len(calls) == 7


def test_only_the_newest_results_are_kept() -> None:
    calls = []

    @remembered
    def first_of(rounds: list[CohortCounts]) -> int:
        calls.append(rounds)
        return int(rounds[0].counts[0])

    for count in (1, 2, 3, 4, 1, 5, 1, 2):
        assert first_of([cohort(count)]) == count
    # The result for 5 replaces the result for 2, which was used longest ago.
    assert [int(rounds[0].counts[0]) for rounds in calls] == [1, 2, 3, 4, 5, 2]


def test_an_error_is_not_kept() -> None:
    answers = iter([ValueError("no reports"), 7])

    @remembered
    def answer(rounds: list[CohortCounts]) -> int:
        now = next(answers)
        if isinstance(now, Exception):
            raise now
        return now

    with pytest.raises(ValueError, match="no reports"):
        answer([])
    assert answer([]) == 7
