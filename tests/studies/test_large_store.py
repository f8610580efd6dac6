"""The large store for benchmarks has all that a server's store has, and estimates from it agree with its readings."""

from pathlib import Path

import numpy as np
import pytest

from undertone_aggregator.campaign.results import open_public, open_results
from undertone_studies.large_store import write_large_store

SLOTS, GROUPS, DEVICES = 4 * 48, 3, 40


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.store"
    write_large_store(path, SLOTS, GROUPS, devices=DEVICES)
    return path


@pytest.mark.slow
def test_it_is_the_store_of_a_server(path: Path) -> None:
    with open_results(path) as results:
        assert [epoch.phase for epoch in results.timeline.epochs] == ["threshold", "threshold", "report"]
        assert results.groups == ("all", "group-00", "group-01", "group-02")
        first = results.timeline.epochs[0].campaign.first_slot
        assert results.settled == first + SLOTS - 1
        assert results.lost()["group-01"] == (4, first)
        assert results.unpublished == 2 * GROUPS
        assert results.registered("group-02") == DEVICES
        assert {row.reports + row.cohort for row in results.estimates(groups="group-01")} == {DEVICES, DEVICES + 1}


@pytest.mark.slow
def test_its_estimates_are_those_of_its_readings(path: Path) -> None:
    """The mean over two days of 3 x 40 devices is within 5 standard errors and 5 Wh. The seed is fixed."""
    with open_public(path) as results:
        rows = [row for row in results.estimates() if row.kind == "report"]
        assert len(rows) == SLOTS - 96
        assert {row.group for row in results.estimates(groups=None)} == set(results.groups)
    # The histograms of all slots are drawn independently. Truncation at 700 removes at most 5 Wh of the mean.
    error = np.sqrt(np.mean([row.truncated_se**2 for row in rows if row.truncated_se is not None]) / len(rows))
    assert abs(np.mean([row.truncated_mean for row in rows]) - 150) < 5 * error + 5
