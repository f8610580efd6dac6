"""``undertone spark run``: landed reports counted on many machines."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from undertone.running import stop_event
from undertone_shared.errors import Invalid

spark = typer.Typer(name="spark", help="Count landed reports on many machines, by Spark.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(spark)


@spark.command("run")
def run(
    config: Annotated[Path, typer.Option(help='The aggregator\'s configuration, with [landing] counts = "spark".')],
    checkpoint: Annotated[Path, typer.Option(help="What Spark remembers: a folder that all machines share. Keep it.")],
    master: Annotated[str | None, typer.Option(help="Spark's master; else what spark-submit says.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Between two batches.")] = 30.0,
    files: Annotated[int, typer.Option(min=1, help="Files of one batch at most.")] = 100,
    partitions: Annotated[int, typer.Option(min=1, help="Tasks of a batch; fixed by the checkpoint.")] = 8,
    buckets: Annotated[
        int, typer.Option(min=1, max=1 << 20, help="Parts of the devices, about 10,000 devices each; fixed as well.")
    ] = 64,
    once: Annotated[bool, typer.Option("--once", help="End when everything that has landed is counted.")] = False,
) -> None:
    """Count what workers land, into the campaign's store: each report once, whatever dies and starts again."""
    from undertone_aggregator.collect.landing_plan import SPARK
    from undertone_aggregator.config import read_config
    from undertone_aggregator.spark.job import Job

    settings = read_config(config)
    plan = settings.landing.plan(settings.folder)
    if plan is None or plan.counts != SPARK:
        raise Invalid(f"landing.counts is {settings.landing.counts!r}, expected 'spark', with the folder of the files")
    job = Job(
        settings.store_url, settings.campaign.name, Path(plan.folder), checkpoint.resolve(), master,
        seconds=seconds, files=files, partitions=partitions, buckets=buckets, once=once,
    )  # fmt: skip
    job.run(stop_event(), lambda sentence: print(sentence, file=sys.stderr))
