"""``undertone spark``: counts landed reports on many machines, and recounts them after a loss."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.long_running import LogFormat, open_journal, stop_event
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.ingest.ingest import Say
    from undertone_aggregator.spark.job import Job

Config = Annotated[Path, typer.Option(help='The aggregator\'s configuration, with [landing] counts = "spark".')]
Master = Annotated[str | None, typer.Option(help="Spark's master; else what spark-submit says.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="Tasks of a batch, 8 by default; fixed by the checkpoint.")]
Buckets = Annotated[
    int, typer.Option(min=1, max=1 << 20, help="Parts of the devices, about 10,000 devices each; fixed as well.")
]

spark = typer.Typer(name="spark", help="Count landed reports on many machines, by Spark.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(spark)


@spark.command("run")
def run(
    config: Config,
    checkpoint: Annotated[Path, typer.Option(help="What Spark remembers: a folder that all machines share. Keep it.")],
    master: Master = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Between two batches.")] = 30.0,
    files: Annotated[
        int | None, typer.Option(min=1, help="Files of one batch at most; else 1 GiB of all that waits.")
    ] = None,
    partitions: Partitions = None,
    buckets: Buckets = 64,
    once: Annotated[bool, typer.Option("--once", help="End when everything that has landed is counted.")] = False,
    log_format: LogFormat = "text",
) -> None:
    """Count what workers land, into the campaign's store: each report once, whatever dies and starts again."""
    job = _job(config, checkpoint, master, files=files, partitions=partitions, buckets=buckets)
    job = replace(job, seconds=seconds, once=once)
    job.run(stop_event(), _say(log_format))


@spark.command("recount")
def recount(
    config: Config,
    checkpoint: Annotated[Path, typer.Option(help="A new folder that all machines share: spark run goes on with it.")],
    master: Master = None,
    partitions: Partitions = None,
    buckets: Buckets = 64,
    log_format: LogFormat = "text",
) -> None:
    """Count the landed files that the store lacks, after it was restored or its checkpoint was lost.

    No spark run may be counting meanwhile. The store says which batch it holds; files of later ones are counted, with a
    new checkpoint that remembers the devices of the earlier ones, as far as their files are kept.
    """
    from undertone_aggregator.spark.recovery import recover

    recover(_job(config, checkpoint, master, partitions=partitions, buckets=buckets), stop_event(), _say(log_format))


def _say(log_format: str) -> "Say":
    journal = open_journal(log_format)
    return lambda sentence: journal.say("spark", sentence)


def _job(config: Path, checkpoint: Path, master: str | None, **options: int | None) -> "Job":
    from undertone_aggregator.settings.config import read_config
    from undertone_aggregator.settings.landing_plan import SPARK
    from undertone_aggregator.spark.job import Job

    settings = read_config(config)
    plan = settings.landing.plan(settings.folder)
    if plan is None or plan.counts != SPARK:
        raise Invalid(f"landing.counts is {settings.landing.counts!r}, expected 'spark', with the folder of the files")
    where = (settings.store_url, settings.campaign.name, Path(plan.folder), checkpoint.resolve(), master)
    return Job(*where, **options)  # type: ignore[arg-type]
