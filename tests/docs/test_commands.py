"""The blocks of the first pages run in order in an empty folder.

On other pages, blocks marked ``<!-- run -->`` run. A block of a first page that cannot run has a line before it that
says why: ``<!-- not run: reason -->``.
"""

import os
import re
import subprocess
import sys

import pytest

from support.micropython import REPO

FIRST_PAGES = ("tutorial", "privacy", "firmware", "statistician", "comparison")
_BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<kind>sh|python)\n(?P<text>.*?)```", re.DOTALL)


def blocks(text, wanted_unless_marked):
    """(kind, text) of the blocks to run, and the reasons of the blocks that are not run."""
    chosen, reasons = [], []
    for match in _BLOCK.finditer(text):
        note = match["note"] or ""
        if note.startswith("not run:"):
            reasons.append(note)
        elif wanted_unless_marked or note == "run":
            chosen.append((match["kind"], match["text"]))
    return chosen, reasons


PAGES = {path.stem: blocks(path.read_text("utf-8"), path.stem in FIRST_PAGES) for path in (REPO / "docs").glob("*.md")}


@pytest.mark.long
@pytest.mark.services
@pytest.mark.broker
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [name for name, (chosen, _) in sorted(PAGES.items()) if chosen])
def test_what_a_page_shows_runs(page, tmp_path, mosquitto_binary):
    environment = os.environ | {
        "PATH": os.pathsep.join(
            [os.path.dirname(sys.executable), os.path.dirname(mosquitto_binary), os.environ["PATH"]]
        ),
        "COLUMNS": "120",
    }
    for kind, text in PAGES[page][0]:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=600, check=False
        )
        assert done.returncode == 0, f"{page}: {text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
    if page == "tutorial":
        assert (tmp_path / "plot.png").stat().st_size > 10_000
        assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_the_tutorial_has_no_block_that_is_not_run():
    chosen, reasons = PAGES["tutorial"]
    assert len(chosen) >= 6
    assert reasons == []


def test_a_marked_block_is_found():
    text = "<!-- run -->\n```sh\na\n```\n\n```sh\nb\n```\n\n<!-- not run: slow -->\n```sh\nc\n```\n"
    assert blocks(text, False) == ([("sh", "a\n")], ["not run: slow"])
    assert blocks(text, True) == ([("sh", "a\n"), ("sh", "b\n")], ["not run: slow"])
