"""The commands ``undertone bench`` and ``undertone experiment``, available in a clone and not in an installed wheel."""

from typer import Typer

from undertone_studies.commands import bench, experiment


def register(app: Typer) -> None:
    """Add both commands."""
    bench.register(app)
    experiment.register(app)
