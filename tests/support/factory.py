"""Campaigns and policies, in which the fields that a test does not name have usual values.

Tests that also run under MicroPython use `tests/device/both/rig.py`.
"""

from typing import Any

from undertone_shared.campaign import Campaign
from undertone_shared.off_board.issue import build

DAY = 86400
# The first slot of campaigns of one-second slots.
FIRST = 1_800_000_000


def campaign_of(**changes: Any) -> Campaign:
    """Return a campaign with slots of a second. ``changes`` are other fields."""
    fields: dict[str, Any] = {
        "name": "meters",
        "sensor": "load",
        "unit": "Wh",
        "measure": "sum",
        "offset": 0,
        "bound": 1000,
        "slot_seconds": 1,
        "cycle": 4,
        "epoch": FIRST,
        "last_slot": FIRST + 1000,
        "default": 0,
    }
    return build(**(fields | changes))


def policy_of(**changes: Any) -> dict[str, Any]:
    """Return a device's policy as its file has it. ``changes`` are fields to replace or to add."""
    fields: dict[str, Any] = {
        "version": 1,
        "sensor": "energy",
        "measures": ["sum"],
        "cap": [2, 1],
        "slot_seconds": 1,
        "theta": [1, 1000],
        "duration_seconds": 400 * DAY,
        "reports_per_period": 86400,
        "insecure": True,
    }
    return fields | changes
