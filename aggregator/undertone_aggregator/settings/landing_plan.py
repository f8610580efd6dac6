"""How workers land deliveries: the settings that are sent to them."""

from typing import NamedTuple

# The engine that counts reports.
SERVER, SPARK = "server", "spark"


class LandingPlan(NamedTuple):
    """Settings of landing. ``folder``: the same path on every machine of a campaign.

    ``seconds``: time between gatherings.

    ``days``: how long files are kept; ``counts``: `SERVER` or `SPARK`.
    """

    folder: str
    seconds: float
    days: int
    counts: str
