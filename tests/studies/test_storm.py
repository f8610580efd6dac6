"""A server is away for some slots, with few devices and short slots. Then no report is lost or refused."""

import json
from pathlib import Path

import pytest

from undertone_aggregator.base.room import CONNECTION_BYTES
from undertone_studies.bench import storm
from undertone_studies.bench.storm import Storm, come_back

RESULTS = Path(__file__).parents[2] / "docs/results"


@pytest.mark.slow
@pytest.mark.long
def test_everybody_comes_back_with_what_was_stored() -> None:
    # The oldest stored report is of the slot before the kill, and must come within four slots. Up to one slot passes
    # until the kill, and two during the absence. So the server's start and the next try have one slot for both.
    period, devices = 500, 60
    came = come_back(Storm(devices, period, 5))
    assert len(came.waits) == devices
    # Each device draws a report in each slot of the absence.
    assert came.stored >= storm.AWAY_SLOTS * devices
    assert came.counted == came.stored
    assert came.after_settling == 0
    assert came.accounts.holds
    assert came.accounts.rejected.total() == 0


def test_the_stored_return_of_19_000_devices_met_the_goals_and_fits_what_a_connection_is_taken_to_need() -> None:
    """docs/scale.md shows the stored rows."""
    rows = json.loads((RESULTS / "storm.json").read_text(encoding="utf-8"))["rows"]
    found = {row["what"]: row["value"] for row in rows}
    assert {row["devices"] for row in rows} == {storm.MOST}
    assert found["s until all are in"] <= storm.ALLOWED_SECONDS
    assert found["stored reports in settled numbers"] == found["reports that devices had stored"]
    assert not any(found[what] for what in found if what.startswith(("reports refused", "reports after", "acknow")))
    # The kernel takes 4 KB for a socket with its file.
    assert found["KB of the server's memory a device"] + 4 < CONNECTION_BYTES / 1024
