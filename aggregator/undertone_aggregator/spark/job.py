"""Spark's driver: it reads landed files and writes batches to the store."""

import contextlib
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undertone_aggregator.base.plural import many
from undertone_aggregator.campaign.binding import bind_counting
from undertone_aggregator.counts.epochs import Epoch
from undertone_aggregator.ingest import ledger
from undertone_aggregator.ingest.ingest import Failpoint, Say, no_failpoint
from undertone_aggregator.ingest.landing import COLUMNS, COUNTED, GATHERED_GLOB, LANDED
from undertone_aggregator.ingest.landing_batches import forget_batches, note_batch, waiting_files
from undertone_aggregator.settings.landing_plan import SPARK
from undertone_aggregator.spark.counting import OTHER_CAMPAIGN, ROWS, STATE, UNKNOWN, Counting, batch_of
from undertone_aggregator.spark.quarantine import quarantine, take_back
from undertone_aggregator.store.store import Batch, Store, StoreError, open_store
from undertone_shared.errors import Invalid

_TYPES = {"int64": "long", "int32": "int", "int32s": "array<int>"}
_WATCH_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_MENDED_SECONDS = 30.0
_STOPPING_SECONDS = 3.0
_PARTITIONS = 8
# Largest size in bytes of one batch's files.
_MOST_BYTES = 1 << 30
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark's JVM gets a stack of 8 MB. If an error quotes a query plan, Spark removes secrets from the plan with a
# recursive regular expression, and a long plan overflows the default stack.
_JAVA_OPTIONS = "-Xss8m"


# A function that handles a batch, usually by adding it to a store. It returns False if the store held it already.
Apply = Callable[[Store, ledger.BatchLedger, Batch], bool]


@dataclass(frozen=True)
class CountingJob:
    """Settings of a counting job.

    ``folder``: folder of landed files. ``checkpoint``: another folder; all machines share both. ``seconds``: time
    between batches. ``files``: most files of a batch; without it, a batch takes all waiting files up to 1 GiB.
    ``partitions``: tasks of a batch, fixed by the checkpoint; None: 8, or the checkpoint's number. ``buckets``: parts
    into which the devices are divided, also fixed by the checkpoint. Each bucket has a memory of 56 bytes a device, or
    more for streams. A batch with a report of the bucket rewrites this memory. ``once``: end when everything present is
    counted.
    """

    store: str
    campaign: str
    folder: Path
    checkpoint: Path
    master: str | None = None
    query: str = "undertone"
    seconds: float = 30.0
    files: int | None = None
    partitions: int | None = None
    buckets: int = 64
    once: bool = False

    def run(
        self,
        stop: threading.Event,
        say: Say,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        """Run until ``stop`` is set, or if ``once`` until nothing is left. Raises Invalid for a store and a checkpoint
        that do not match.
        """
        with open_store(self.store, campaign=self.campaign) as store:
            bind_counting(store, SPARK)
            ledger.check(store, self.query, self.checkpoint, self.buckets)
            self.count(store, ledger.apply, stop, say, failpoint)

    def count(
        self, store: Store, apply: Apply, stop: threading.Event, say: Say, failpoint: Failpoint = no_failpoint
    ) -> None:
        """Count until ``stop`` is set, or if ``once`` until nothing is left. ``apply``: handles each batch."""
        partitions = self._partitions()
        for folder in (self.folder / LANDED, self.checkpoint):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The folder may have existed before, readable for other users.
        self.checkpoint.chmod(0o700)
        forget_batches(self.folder)
        try:
            with _session(self.master, partitions) as session:
                say(f"Spark {session.version} counts {self.folder} with {self.buckets} buckets of devices")
                state = _State(apply, say, failpoint)
                while not stop.is_set():
                    if self._count(session, store, state, stop) and self.once:
                        return
        except _spark_gone() as wrong:
            # SIGTERM to the whole process group ends Spark's JVM, too, and that is no error. So wait a moment for
            # SIGTERM to arrive here.
            if not stop.wait(_STOPPING_SECONDS):
                raise Invalid(_ended(wrong)) from wrong

    def _partitions(self) -> int:
        """Return the number of partitions. Raises Invalid if the configured number differs from the checkpoint's."""
        stored = ledger.partitions_of(self.checkpoint)
        if stored is not None and self.partitions not in (None, stored):
            raise Invalid(
                f"--partitions is {self.partitions}, expected {stored}, as the checkpoint {self.checkpoint} has"
            )
        return stored or self.partitions or _PARTITIONS

    def _count(self, session: Any, store: Store, state: "_State", stop: threading.Event) -> bool:
        """Count until ``stop``, or, if ``once``, until nothing is left. Return False if a new query must continue the
        work.
        """
        for sentence in take_back(self.folder):
            state.say(sentence)
        epochs = store.epochs()
        query = self._start(session, epochs, state)
        looked = time.monotonic()
        try:
            while query.isActive and not stop.wait(_WATCH_SECONDS):
                if store.epoch_count() != len(epochs):
                    return False
                if time.monotonic() > looked + _MENDED_SECONDS:
                    looked = time.monotonic()
                    for sentence in take_back(self.folder):
                        state.say(sentence)
        finally:
            # A batch under way is abandoned and repeated later.
            query.stop()
        wrong = query.exception()
        if wrong is None:
            return True
        if stop.is_set() or store.epoch_count() != len(epochs):
            return False
        return self._mend(store, str(wrong), state)

    def _mend(self, store: Store, wrong: str, state: "_State") -> bool:
        """Remove the cause that ended a query. Return False, so that the next query continues.

        Raises Invalid for a cause that cannot be removed.
        """
        unknown = re.search(f"{UNKNOWN} ([0-9a-f]{{16}})", wrong)
        if unknown and bytes.fromhex(unknown[1]) not in state.refused:
            # An epoch is in the store before a device receives it, so this store is older than the reports.
            state.refused.add(bytes.fromhex(unknown[1]))
            state.say(
                f"alarm: the store does not know the epoch {unknown[1]} of landed reports, as after a restore: those"
                f" reports are refused as {OTHER_CAMPAIGN}"
            )
            return False
        before = ledger.read_ledger(store)
        checkpoint, newest = (None, -1) if before is None else (before.checkpoint, before.batch)
        damaged = quarantine(self.folder, waiting_files(self.folder, checkpoint, newest))
        for sentence in damaged:
            state.say(sentence)
        if not damaged:
            cause = _cause(wrong)
            if "No space left" in wrong or "quota exceeded" in wrong:
                raise Invalid(
                    f"Spark's query ended because the disk is full: {cause}; Spark writes to the checkpoint"
                    f" {self.checkpoint} and to {os.environ.get('SPARK_LOCAL_DIRS') or tempfile.gettempdir()}"
                )
            raise Invalid(f"Spark's query ended: {cause}")
        # The next query repeats the failed batch without the landed files that are missing.
        state.without_missing = True
        return False

    def _start(self, session: Any, epochs: list[Epoch], state: "_State") -> Any:
        from pyspark.sql import functions as F

        # A batch takes everything that waits, up to a limit. So a job that was down catches up in few batches.
        most = {"maxBytesPerTrigger": _MOST_BYTES} if self.files is None else {"maxFilesPerTrigger": self.files}
        fields = ", ".join(f"{name} {_TYPES.get(kind, kind)}" for name, kind in COLUMNS.items())
        landed = (
            session.readStream.schema(fields)
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", GATHERED_GLOB)
            .option("ignoreMissingFiles", state.without_missing)
            .options(**most)
            .option("cleanSource", "archive")
            .option("sourceArchiveDir", str(self.folder / COUNTED))
            .parquet(str(self.folder / LANDED))
        )
        # Device names are dropped here; they remain in the landed files only.
        rows = landed.drop("device", "digest").withColumn("bucket", F.pmod("key", F.lit(self.buckets)))
        bodies = [bytes(epoch.campaign.body) for epoch in epochs]
        counting = Counting(self.campaign, bodies, frozenset(state.refused))
        counted = rows.groupBy("bucket").applyInPandasWithState(counting, ROWS, STATE, "append", "NoTimeout")
        sink = _Sink(self, state)
        writer = counted.writeStream.queryName(self.query).option("checkpointLocation", str(self.checkpoint))
        kind = {"availableNow": True} if self.once else {"processingTime": f"{self.seconds} seconds"}
        return writer.foreachBatch(sink).trigger(**kind).start()


@dataclass
class _State:
    """State of a counting job that outlasts one query of Spark.

    ``refused``: fingerprints of epochs that the store does not know. ``without_missing``: True if files were removed
    after their batch was planned, so that the next query has to skip them. ``apply``: handles each batch.
    """

    apply: Apply
    say: Say
    failpoint: Failpoint
    refused: set[bytes] = field(default_factory=set)
    without_missing: bool = False


def _spark_gone() -> tuple[type[Exception], ...]:
    """Return the exceptions that mean that Spark's JVM does not answer."""
    try:
        from py4j.protocol import Py4JError
    except ModuleNotFoundError:
        return (ConnectionError,)
    return (Py4JError, ConnectionError)


def _ended(wrong: Exception) -> str:
    """Return a sentence about the error that ended the job: an exception in Spark's JVM, or the end of the JVM."""
    if hasattr(wrong, "java_exception"):
        # The exception's text comes from the JVM, which may end meanwhile.
        with contextlib.suppress(*_spark_gone()):
            cause = _cause(str(wrong).replace("\n: ", "\n"))
            return f"Spark ended with an error: {cause}"
    return (
        "Spark's JVM has ended, killed or without enough memory: start undertone spark run again, or undertone spark"
        " recount with another new folder as --checkpoint"
    )


def _cause(text: str) -> str:
    """Return the error sentence in Spark's quoted tracebacks of Python and Java."""
    raised = re.findall(r"^(?:[A-Za-z_]+\.)*[A-Za-z_]*(?:Invalid|Error|Exception): (.+)", text, re.MULTILINE)
    return str(raised[-1] if raised else text.strip().partition("\n")[0])


class _Sink:
    """Writes each batch to the store. Spark calls it in the driver."""

    def __init__(self, job: CountingJob, state: _State) -> None:
        self._job, self._state = job, state
        self._say, self._failpoint = state.say, state.failpoint
        self._began = self._before = time.monotonic()
        self._rows = 0

    def __call__(self, frame: Any, number: int) -> None:
        job = self._job
        batch = batch_of(job.campaign, frame.collect())
        entry = ledger.BatchLedger(job.query, ledger.checkpoint_id(job.checkpoint), job.buckets, number)
        names = ledger.files_of_batch(job.checkpoint, number)
        note_batch(job.folder, entry.checkpoint, number, names)
        self._failpoint("before_commit")
        while not self._apply(entry, batch):
            time.sleep(_RETRY_SECONDS)
        self._failpoint("after_commit")
        now, rows = time.monotonic(), batch.outcomes.total()
        self._rows += rows
        self._say(
            f"batch {number}: {many(rows, 'row')} of {many(len(names), 'file')} in {now - self._before:.2f} s; in all"
            f" {many(self._rows, 'row')} in {now - self._began:.2f} s"
        )
        self._before = now
        # The batch whose files were missing is done. The next query must find all its files again.
        self._state.without_missing = False

    def _apply(self, entry: ledger.BatchLedger, batch: Batch) -> bool:
        try:
            with open_store(self._job.store, campaign=self._job.campaign) as store:
                if not self._state.apply(store, entry, batch):
                    self._say(f"batch {entry.batch} was in the store already")
        except StoreError as wrong:
            self._say(f"the store cannot be written, trying again: {wrong}")
            return False
        return True


@contextlib.contextmanager
def _session(master: str | None, partitions: int) -> Iterator[Any]:
    """Yield a Spark session, which stops when the context ends. Without a master, use that of spark-submit, or else one
    on this machine. Raises Invalid.
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise Invalid("the job needs PySpark and Java 17: pip install 'undertone-ldp[spark]'") from None
    options = {
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": 100_000,
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.showConsoleProgress": "false",
    }
    if master is not None and master.startswith("local"):
        # On a single machine the session listens on loopback only, and its executors use the jars in PySpark's wheel.
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
        with contextlib.suppress(*_spark_gone()):
            session.stop()
