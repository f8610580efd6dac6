"""The driver: landed files in, batches into the store, until it is stopped."""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undertone_aggregator.binding import bind_counting
from undertone_aggregator.collect.epochs import Epoch
from undertone_aggregator.collect.ingest import Failpoint, Say, nowhere
from undertone_aggregator.collect.landing import COLUMNS, COUNTED, LANDED
from undertone_aggregator.collect.landing_plan import SPARK
from undertone_aggregator.collect.store import Batch, Store, StoreError, open_store
from undertone_aggregator.spark import ledger
from undertone_aggregator.spark.counting import ROWS, STATE, UNKNOWN, Counting, batch_of
from undertone_shared.errors import Invalid

_TYPES = {"int64": "long", "int32": "int", "int32s": "array<int>"}
_WATCH_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark quotes plans in its errors, and hides secrets in them by a regular expression that recurses.
_JAVA_OPTIONS = "-Xss8m"


@dataclass(frozen=True)
class Job:
    """What is counted, where, and how finely.

    ``folder``: of landed files; ``checkpoint``: a folder that all machines share, as the first one. ``seconds``:
    between batches; ``files``: of one batch at most. ``partitions``: tasks of a batch, fixed by the checkpoint.
    ``buckets``: parts that the devices are divided into, each with a memory of its own of 48 bytes a device, which is
    written anew in each batch that has a report of it; fixed as well. ``once``: end when all there is was counted.
    """

    store: str
    campaign: str
    folder: Path
    checkpoint: Path
    master: str | None = None
    query: str = "undertone"
    seconds: float = 30.0
    files: int = 100
    partitions: int = 8
    buckets: int = 64
    once: bool = False

    def run(
        self,
        stop: threading.Event,
        say: Say,
        failpoint: Failpoint = nowhere,
    ) -> None:
        """Until ``stop`` is set. Raises Invalid for a store and a checkpoint that do not fit each other."""
        with open_store(self.store, campaign=self.campaign) as store:
            bind_counting(store, SPARK)
            ledger.check(store, self.query, self.checkpoint, self.buckets)
            (self.folder / LANDED).mkdir(mode=0o700, parents=True, exist_ok=True)
            with _session(self.master, self.partitions) as session:
                say(f"Spark {session.version} counts {self.folder} with {self.buckets} buckets of devices")
                while not stop.is_set():
                    epochs = store.epochs()
                    if self._count(session, store, epochs, stop, say, failpoint) and self.once:
                        return

    def _count(
        self, session: Any, store: Store, epochs: list[Epoch], stop: threading.Event, say: Say, failpoint: Failpoint
    ) -> bool:
        """Count until ``stop``, until another epoch is issued (False), or, if ``once``, until there is no more."""
        query = self._start(session, epochs, say, failpoint)
        try:
            while query.isActive and not stop.wait(_WATCH_SECONDS):
                if store.epoch_count() != len(epochs):
                    return False
        finally:
            # A batch under way is given up and repeated.
            query.stop()
        wrong = query.exception()
        if wrong is None:
            return True
        if UNKNOWN in str(wrong) and store.epoch_count() != len(epochs):
            return False
        raise Invalid(f"the query ended: {_cause(str(wrong))}")

    def _start(self, session: Any, epochs: list[Epoch], say: Say, failpoint: Failpoint) -> Any:
        from pyspark.sql import functions as F

        fields = ", ".join(f"{name} {_TYPES.get(kind, kind)}" for name, kind in COLUMNS.items())
        landed = (
            session.readStream.schema(fields)
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", self.files)
            .option("cleanSource", "archive")
            .option("sourceArchiveDir", str(self.folder / COUNTED))
            .parquet(str(self.folder / LANDED))
        )
        # Names stay in the files.
        rows = landed.drop("device", "second").withColumn("bucket", F.pmod("key", F.lit(self.buckets)))
        counting = Counting(self.campaign, [bytes(epoch.campaign.body) for epoch in epochs])
        counted = rows.groupBy("bucket").applyInPandasWithState(counting, ROWS, STATE, "append", "NoTimeout")
        sink = _Sink(self, say, failpoint)
        writer = counted.writeStream.queryName(self.query).option("checkpointLocation", str(self.checkpoint))
        kind = {"availableNow": True} if self.once else {"processingTime": f"{self.seconds} seconds"}
        return writer.foreachBatch(sink).trigger(**kind).start()


def _cause(text: str) -> str:
    """The sentence in what Spark quotes of tracebacks, Python's and Java's."""
    raised = re.findall(r"^(?:[A-Za-z_]+\.)*[A-Za-z_]*(?:Invalid|Error|Exception): (.+)", text, re.MULTILINE)
    return str(raised[-1] if raised else text.strip().partition("\n")[0])


class _Sink:
    """Takes each batch into the store; called in the driver."""

    def __init__(self, job: Job, say: Say, failpoint: Failpoint) -> None:
        self._job, self._say, self._failpoint = job, say, failpoint
        self._began = self._before = time.monotonic()
        self._rows = 0

    def __call__(self, frame: Any, number: int) -> None:
        job = self._job
        batch = batch_of(job.campaign, frame.collect())
        entry = ledger.Ledger(job.query, ledger.checkpoint_id(job.checkpoint), job.buckets, number)
        self._failpoint("before_commit")
        while not self._apply(entry, batch):
            time.sleep(_RETRY_SECONDS)
        self._failpoint("after_commit")
        now, rows = time.monotonic(), batch.outcomes.total()
        self._rows += rows
        self._say(
            f"batch {number}: {rows} rows in {now - self._before:.2f} s; {self._rows} in {now - self._began:.2f} s"
        )
        self._before = now

    def _apply(self, entry: ledger.Ledger, batch: Batch) -> bool:
        try:
            with open_store(self._job.store, campaign=self._job.campaign) as store:
                if not ledger.apply(store, entry, batch):
                    self._say(f"batch {entry.batch} was in the store already")
        except StoreError as wrong:
            self._say(f"the store cannot be written, trying again: {wrong}")
            return False
        return True


@contextlib.contextmanager
def _session(master: str | None, partitions: int) -> Iterator[Any]:
    """A Spark session; without a master the one that spark-submit was given, or this machine. Raises Invalid."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise Invalid("this needs PySpark and Java 17: pip install 'undertone-ldp[spark]'") from None
    options = {
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 100_000,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.showConsoleProgress": "false",
    }
    if master is not None and master.startswith("local"):
        # One machine: nobody else hears of it, and its executors find the jars of the wheel.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        options |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    builder = SparkSession.builder.appName("undertone")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = (builder if master is None else builder.master(master)).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
