"""The part of [landing] that ingest workers need."""

from typing import NamedTuple

# The engine that counts the reports.
SERVER, SPARK = "server", "spark"


class LandingPlan(NamedTuple):
    """Settings with which a worker writes deliveries to files.

    ``folder``: the same path on every machine. ``seconds``: the time whose batches are merged into one file. ``days``:
    age at which files are removed. ``counts``: `SERVER` or `SPARK`.
    """

    folder: str
    seconds: float
    days: int
    counts: str
