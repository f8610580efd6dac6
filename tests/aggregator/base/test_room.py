"""How many devices can be connected at once, and what an operator does to allow more.

Open files, memory and the server's own setting limit the number.
"""

from pathlib import Path

import pytest

from undertone_aggregator.base.room import room, usable_memory

GB = 1 << 30


@pytest.mark.parametrize(
    ("chosen", "files", "memory", "connections", "why", "fix"),
    [
        (None, 1024, 4 * GB, 768, "the limit of 1024 open files", "LimitNOFILE=2256"),
        (None, 100, 4 * GB, 1, "the limit of 100 open files", "ulimit -Hn 2256"),
        (None, 1 << 20, GB // 2, 21_845, "the memory of 512 MB", "connections = 2000 in [broker]"),
        (None, 1 << 20, 8 * GB, 349_525, "the memory of 8192 MB", "more memory, or connections = 2000"),
        (400_000, 1 << 20, 8 * GB, 400_000, "connections = 400000 in [broker]", "connections = 2000 in [broker]"),
        (300_000, 20_000, 8 * GB, 19_744, "the limit of 20000 open files", "LimitNOFILE=2256"),
    ],
)
def test_the_smaller_of_files_and_memory_or_setting(
    chosen: int | None, files: int, memory: int, connections: int, why: str, fix: str
) -> None:
    found = room(chosen, files, memory)
    assert (found.connections, found.why) == (connections, why)
    assert fix in found.fix_for(2000)


def test_a_control_group_and_those_around_it_limit_the_memory(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("12:cpu:/other\n0::/system.slice/undertone.service\n", encoding="utf-8")
    inner = tmp_path / "system.slice/undertone.service"
    inner.mkdir(parents=True)
    machine = usable_memory(tmp_path, own)
    assert machine >= GB // 4
    (inner / "memory.max").write_text("max\n", encoding="utf-8")
    assert usable_memory(tmp_path, own) == machine
    (inner.parent / "memory.max").write_text("1048576\n", encoding="utf-8")
    assert usable_memory(tmp_path, own) == 1 << 20
    assert usable_memory(tmp_path, tmp_path / "no such file") == machine
