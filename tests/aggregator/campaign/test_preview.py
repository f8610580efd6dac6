"""What the preview says about a plan before its campaign begins."""

from pathlib import Path

import pytest

from support import server
from undertone_aggregator.campaign.preview import preview

HALF_HOUR = 1800


@pytest.mark.parametrize(
    ("window", "rest"),
    [
        ("10m", "a device rests 2 hours between two readings, longer than campaign.window (10 minutes) asks for"),
        ("24h", ""),
    ],
)
def test_a_rest_that_is_longer_than_the_window_is_said(tmp_path: Path, window: str, rest: str) -> None:
    """Devices report every fifth half-hour, so they rest two hours, although the window is only ten minutes.

    The number of slots from one report to the next must be coprime to the cycle of 48, so it cannot be 2, 3 or 4.
    """
    plan = server.config(tmp_path, slot_seconds=HALF_HOUR, cycle=48, window=f'"{window}"', report_slots=480)
    said = [sentence for sentence in preview(plan, HALF_HOUR) if sentence.startswith("a device rests ")]
    assert [sentence.partition(":")[0] for sentence in said] == ([rest] if rest else [])
