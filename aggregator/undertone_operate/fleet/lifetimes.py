"""Lifetimes: how many reports a device's policy allows in its whole life, and how many of them a campaign may take.

The reports of a campaign's predecessors count as well, because they had the same devices, and a device has one ledger
for all its campaigns.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.server.folder import Home
from undertone_aggregator.store.store import open_store
from undertone_device.core.units import epsilon_units
from undertone_shared.policy import Policy, parse_policy


def policies_in(fleet: Path) -> list[tuple[Policy, int]]:
    """Return each policy below ``fleet``/devices with the number of devices that have it. Raises Invalid, OSError."""
    files = Counter(path.read_bytes() for path in sorted((fleet / "devices").glob("*/policy.json")))
    return [(parse_policy(data), devices) for data, devices in files.items()]


def allowed_reports(policy: Policy) -> int:
    """Return the number of reports that a policy with a lifetime allows in a device's life."""
    return policy.lifetime // epsilon_units(*policy.cap)


def turns_of(epochs: Sequence[Epoch]) -> int:
    """Return the largest number of reports that one device draws in a campaign with these epochs; 0 without epochs."""
    if not epochs:
        return 0
    slots = epochs[-1].campaign.last_slot + 1 - epochs[0].campaign.first_slot
    return int(-(-slots // min(epoch.campaign.schedule.stride for epoch in epochs)))


def turns_in(home: Home, campaigns: Sequence[str]) -> int:
    """Return the largest number of reports that one device draws in all these campaigns. Raises Invalid, StoreError."""
    stores, turns = home.stores(), 0
    for name in campaigns:
        if name in stores:
            with open_store(stores[name], campaign=name, read_only=True) as store:
                turns += turns_of(store.epochs())
    return turns
