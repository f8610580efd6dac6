"""A command that runs until it is stopped refuses a wrong number of seconds, and leaves the signals as they are."""

import signal

import pytest

from undertone.long_running import stop_event
from undertone_shared.errors import Invalid


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_what_is_no_length_of_time_is_refused(seconds: float) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Invalid, match="expected 0 to "):
        stop_event(seconds)
    assert signal.getsignal(signal.SIGTERM) is before
