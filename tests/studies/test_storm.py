"""A server that was away for an hour of slots, with few devices and short slots: nothing is lost or refused."""

import pytest

from undertone_studies.bench import storm
from undertone_studies.bench.storm import Storm, come_back


@pytest.mark.waits
def test_everybody_comes_back_with_what_was_stored() -> None:
    period, devices = 2000, 60
    came = come_back(Storm(devices, period, 2))
    assert len(came.waits) == devices
    # Each device draws in each of the slots of the absence.
    assert came.stored >= storm.AWAY_SLOTS * devices
    assert came.counted == came.stored
    assert came.after_settling == 0
    assert came.accounts.holds
    assert came.accounts.rejected.total() == 0
