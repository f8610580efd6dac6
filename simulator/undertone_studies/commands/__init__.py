"""The commands ``undertone bench`` and ``undertone experiment``, which a clone has and an installed wheel has not."""

from typer import Typer

from undertone_studies.commands import bench, experiment


def register(app: Typer) -> None:
    """Add both commands."""
    bench.register(app)
    experiment.register(app)
