"""What a counting job refuses, and which files it reads, tested without Spark."""

import json
from pathlib import Path

import pytest

from support.memory_store import MemoryStore
from undertone_aggregator.ingest.ledger import apply, files_of_batch
from undertone_aggregator.spark.job import CountingJob, _ended, _State
from undertone_shared.errors import Invalid


def job(folder: Path, partitions: int | None = None) -> CountingJob:
    return CountingJob("memory:", "meters", folder / "landing", folder / "checkpoint", partitions=partitions)


def offsets(folder: Path, number: int, offset: int) -> None:
    """Write the file of offsets that Spark keeps in a checkpoint for a planned batch."""
    (folder / "checkpoint" / "offsets").mkdir(parents=True, exist_ok=True)
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": "4"}})
    (folder / "checkpoint" / "offsets" / str(number)).write_text(
        f'v1\n{conf}\n{{"logOffset":{offset}}}', encoding="utf-8"
    )


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    assert job(tmp_path)._partitions() == 8
    assert job(tmp_path, 3)._partitions() == 3
    offsets(tmp_path, 0, 0)
    assert job(tmp_path)._partitions() == job(tmp_path, 4)._partitions() == 4
    with pytest.raises(Invalid, match="--partitions is 3, expected 4"):
        job(tmp_path, 3)._partitions()


def test_a_full_disk_names_the_places(tmp_path: Path) -> None:
    state = _State(apply, print, lambda _: None)
    wrong = "java.io.IOException: No space left on device\n\tat java.base/..."
    with pytest.raises(Invalid, match="the disk is full") as raised:
        job(tmp_path)._mend(MemoryStore(), wrong, state)
    assert str(tmp_path / "checkpoint") in str(raised.value)


def test_the_files_of_a_batch_are_read_from_sparks_log_also_where_it_is_compacted(tmp_path: Path) -> None:
    log = tmp_path / "checkpoint" / "sources" / "0"
    log.mkdir(parents=True)
    entries = [json.dumps({"path": f"file:///l/{n}.parquet", "timestamp": 1, "batchId": n}) for n in range(3)]
    (log / "0").write_text(f"v1\n{entries[0]}", encoding="utf-8")
    (log / "2.compact").write_text("v1\n" + "\n".join(entries), encoding="utf-8")
    (log / "1").write_text(f"v1\n{entries[1]}", encoding="utf-8")
    for number, offset in enumerate((0, 1, 2)):
        offsets(tmp_path, number, offset)
    assert [files_of_batch(tmp_path / "checkpoint", number) for number in range(3)] == [
        ["0.parquet"],
        ["1.parquet"],
        ["2.parquet"],
    ]


class JavaError(Exception):
    """An error of py4j for an exception in the JVM."""

    java_exception = object()


def test_an_exception_in_the_jvm_is_not_its_end() -> None:
    said = "An error occurred while calling o56.start.\n: java.io.IOException: mkdir of /c failed\n\tat java.base/..."
    assert _ended(JavaError(said)) == "Spark ended with an error: mkdir of /c failed"
    assert _ended(ConnectionError("refused")).startswith("Spark's JVM has ended")
