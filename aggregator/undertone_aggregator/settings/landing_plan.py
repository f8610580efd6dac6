"""How deliveries are landed: what a worker is told of it."""

from typing import NamedTuple

# Who counts.
SERVER, SPARK = "server", "spark"


class LandingPlan(NamedTuple):
    """``folder``: the same path on every machine of a campaign. ``seconds``: how long files are gathered.

    ``days``: how long they are kept; ``counts``: `SERVER` or `SPARK`.
    """

    folder: str
    seconds: float
    days: int
    counts: str
