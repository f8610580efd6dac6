"""The part of [landing] that ingest workers need."""

from typing import NamedTuple

# The engine that counts the reports.
SERVER, SPARK = "server", "spark"


class LandingPlan(NamedTuple):
    """Settings with which a worker writes deliveries to files.

    ``folder``: the same path on every machine. ``seconds``: the batches of this time are merged into one file.
    ``days``: age at which files are removed. ``counts``: who counts the reports, `SERVER` or `SPARK`.
    """

    folder: str
    seconds: float
    days: int
    counts: str
