"""docs/vectors: as scripts/vectors.py writes them, with every reason, and enough for a client in another language."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_vectors import NAMES

from support import micropython as mp
from support.ci import unavailable
from undertone_shared import policy

sys.path.append(str(mp.REPO / "scripts"))

import vectors

CLIENT = Path(__file__).with_name("vector_client.mjs")
# What the client in JavaScript plays: the draw and the report.
CLIENTS = ("draws", "mechanisms", "reports", "schedules", "topics")


def of(name):
    return json.loads((vectors.OUT / f"{name}.json").read_text(encoding="utf-8"))["vectors"]


@pytest.mark.parametrize("name", sorted(vectors.FILES))
def test_the_files_are_what_the_script_writes(name):
    assert (vectors.OUT / f"{name}.json").read_text(encoding="utf-8") == vectors.text_of(name)


def test_every_file_is_played():
    files = {path.stem for path in vectors.OUT.iterdir()}
    assert files == set(vectors.FILES) == set(NAMES)


@pytest.mark.parametrize("name", sorted(vectors.FILES))
def test_names_are_single(name):
    names = [vector["name"] for vector in of(name)]
    assert len(names) == len(set(names))


def test_every_reason_of_a_refusal_is_among_them():
    table = re.split(r"^=+ =+$", policy.__doc__, flags=re.MULTILINE)[1]
    listed = {line.split()[0] for line in table.splitlines() if line}
    answers = [answer for vector in of("refusals") for answer in vector["expected"]["answers"]]
    # The storage of the vectors never fails.
    assert {answer["refused"] for answer in answers if "refused" in answer} == listed - {"storage"}


def test_the_reasons_why_a_slot_is_not_drawn_are_among_them():
    answers = [answer for vector in of("ledger") for answer in vector["expected"]["answers"]]
    words = {"turn", "spent", "ahead", "rest", "rate", "boots", "period", "lifetime", "clock"}
    assert {answer["paused"] for answer in answers if answer.get("paused")} >= words


def test_a_client_in_another_language_needs_nothing_but_the_vectors():
    node = shutil.which("node")
    if node is None:
        unavailable("no node here: it runs the client in JavaScript")
    paths = [str(vectors.OUT / f"{name}.json") for name in CLIENTS]
    done = subprocess.run([node, str(CLIENT), *paths], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r": (\d+) vectors", done.stdout) == [str(len(of(name))) for name in CLIENTS]


def test_the_client_notices_a_difference(tmp_path):
    node = shutil.which("node")
    if node is None:
        unavailable("no node here: it runs the client in JavaScript")
    content = json.loads((vectors.OUT / "draws.json").read_text(encoding="utf-8"))
    content["vectors"][0]["expected"]["symbol"] += 1
    (tmp_path / "draws.json").write_text(json.dumps(content))
    command = [node, str(CLIENT), str(tmp_path / "draws.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert content["vectors"][0]["name"] in done.stdout
