"""The journal of the phone's app survives power failures and a full disk, and refuses damaged content. Run by node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.ci import unavailable


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        unavailable("node was not found")
    return found


@pytest.mark.slow
def test_a_journal_keeps_the_state_before_or_after_the_write_that_a_power_cut_interrupts(node: str) -> None:
    # After a cut at each step, the script compares what the disk may have kept with the two right states.
    done = subprocess.run(
        [node, "--no-warnings", Path(__file__).with_name("journal.mjs")],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tried = json.loads(done.stdout)
    assert tried["erased"] > tried["openings"]
    assert tried["failures"] > 1000
    assert tried["cuts"] > 150
    assert tried["openings"] > 1000
    assert tried["copies"] > 5
    assert tried["refused"] == tried["damaged"]
    assert tried["full"] == "four"
