"""``undertone spark``: count landed reports on many machines, and count them again after a loss."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.applies import refuse
from undertone.long_running import LogFormat, open_journal, stop_event
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.ingest.ingest import Say
    from undertone_aggregator.spark.job import CountingJob

Home = Annotated[Path, typer.Option(help="The server's folder, as undertone init makes it.")]
Campaign = Annotated[
    str | None, typer.Option(help='The campaign, with [landing] counts = "spark"; needed if there are several.')
]
Master = Annotated[str | None, typer.Option(help="Address of Spark's master; by default that of spark-submit.")]
Partitions = Annotated[
    int | None,
    typer.Option(min=1, help="Number of tasks of a batch (default 8); keep it for the life of a checkpoint."),
]
Buckets = Annotated[
    int,
    typer.Option(
        min=1,
        max=1 << 20,
        help="Number of parts into which the fleet is divided, one for about 10,000 devices; keep it for the life of"
        " a checkpoint.",
    ),
]

spark = typer.Typer(name="spark", help="Count landed reports on many machines with Spark.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.add_typer(spark)


@spark.command("run")
def run(
    context: typer.Context,
    home: Home,
    checkpoint: Annotated[Path, typer.Option(help="Folder of Spark's checkpoint, which all machines share. Keep it.")],
    campaign: Campaign = None,
    master: Master = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds between two batches.")] = 30.0,
    files: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of files in one batch; without it, up to 1 GiB of the waiting files."),
    ] = None,
    partitions: Partitions = None,
    buckets: Buckets = 64,
    once: Annotated[bool, typer.Option("--once", help="Exit when everything that has landed is counted.")] = False,
    log_format: LogFormat = "text",
) -> None:
    """Count landed reports into the campaign's store: each report once, even after crashes and restarts."""
    if once:
        refuse(context, ["seconds"], "with --once, which does not wait between batches")
    job = _job(home, campaign, checkpoint, master, files=files, partitions=partitions, buckets=buckets)
    job = replace(job, seconds=seconds, once=once)
    job.run(stop_event(), _say(log_format))


@spark.command("recount")
def recount(
    home: Home,
    checkpoint: Annotated[
        Path,
        typer.Option(help="A new folder for the checkpoint, which all machines share; spark run continues with it."),
    ],
    campaign: Campaign = None,
    master: Master = None,
    partitions: Partitions = None,
    buckets: Buckets = 64,
    log_format: LogFormat = "text",
) -> None:
    """Count the landed files that the store lacks, after the store was restored or the checkpoint was lost.

    Stop spark run first. The store names the newest batch that it holds. The files of later batches are counted, with a
    new checkpoint that knows the devices of the earlier batches as far as their files still exist.
    """
    from undertone_aggregator.spark.recovery import recover

    job = _job(home, campaign, checkpoint, master, partitions=partitions, buckets=buckets)
    recover(job, stop_event(), _say(log_format))


def _say(log_format: str) -> "Say":
    journal = open_journal(log_format)
    return lambda sentence: journal.say("spark", sentence)


def _job(
    folder: Path, campaign: str | None, checkpoint: Path, master: str | None, **options: int | None
) -> "CountingJob":
    from undertone_aggregator.server.folder import Home
    from undertone_aggregator.settings.landing_plan import SPARK
    from undertone_aggregator.spark.job import CountingJob

    home = Home(folder)
    settings = home.config(home.only(campaign))
    plan = settings.landing.plan(settings.folder)
    if plan is None or plan.counts != SPARK:
        raise Invalid(f"landing.counts is {settings.landing.counts!r}, expected 'spark', with landing.folder")
    where = (settings.store_url, settings.campaign.name, Path(plan.folder), checkpoint.resolve(), master)
    return CountingJob(*where, **options)  # type: ignore[arg-type]
