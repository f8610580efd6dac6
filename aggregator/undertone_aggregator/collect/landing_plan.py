"""How deliveries are landed: what a worker is told of it."""

from dataclasses import dataclass
from pathlib import Path

# Who counts.
SERVER, SPARK = "server", "spark"


@dataclass(frozen=True)
class LandingPlan:
    """``seconds``: how long files are gathered; ``days``: how long they are kept; ``counts``: `SERVER` or `SPARK`."""

    folder: Path
    seconds: float
    days: int
    counts: str
