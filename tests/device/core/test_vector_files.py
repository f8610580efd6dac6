"""docs/vectors is what scripts/vectors.py writes, and has every reason of a refusal. Two other clients answer it."""

import json
import os
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

HERE = Path(__file__).parent
# The files that the client in C plays. It plays reports with one symbol and lives without a stream.
IN_C = ("draws", "ledger", "mechanisms", "reports")


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
    assert {answer["refused"] for answer in answers if "refused" in answer} == listed


def rules_before_a_draw():
    """Return the words for `paused`: the first column of the table of rules in docs/wire.md."""
    page = (mp.REPO / "docs/wire.md").read_text(encoding="utf-8")
    section = page.split("### The rules before a draw, in their order\n")[1]
    table = re.search(r"^\| word \| rule \|.*?\n\n", section, flags=re.MULTILINE | re.DOTALL).group()
    return re.findall(r"^\| `([a-z_]+)` \|", table, flags=re.MULTILINE)


def test_each_word_of_the_rules_before_a_draw_is_among_them():
    answers = [answer for vector in of("ledger") for answer in vector["expected"]["answers"]]
    words = {answer["paused"] for answer in answers if answer.get("paused")}
    # In the vectors, randomness never fails, so no life has the word entropy.
    assert words == set(rules_before_a_draw()) | {"storage"}


def test_the_script_says_what_it_does_and_writes_nothing(tmp_path):
    command = [sys.executable, vectors.__file__, "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: ")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The client in C, compiled by $CC or by gcc. It stops at undefined behaviour."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        unavailable("no gcc here: it compiles the client in C (apt-get install gcc, or set CC)")
    program = tmp_path_factory.mktemp("client_c") / "play"
    sources = sorted(str(path) for path in (HERE / "client_c").glob("*.c"))
    options = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    done = subprocess.run(
        [compiler, *options, "-o", str(program), *sources],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [str(program)]


@pytest.fixture(scope="session")
def in_javascript():
    node = shutil.which("node")
    if node is None:
        unavailable("no node here: it runs the client in JavaScript")
    return [node, str(HERE / "client/play.mjs")]


def play(client, *paths):
    return subprocess.run([*client, *map(str, paths)], capture_output=True, encoding="utf-8", timeout=120, check=False)


def paths_of(names):
    return [vectors.OUT / f"{name}.json" for name in names]


def counts(done):
    return [int(count) for count in re.findall(r": (\d+) vectors", done.stdout)]


def test_a_client_in_javascript_answers_all_vectors(in_javascript):
    done = play(in_javascript, *paths_of(sorted(vectors.FILES)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(done) == [len(of(name)) for name in sorted(vectors.FILES)]


def is_in_c(name, given):
    if name == "reports":
        return given["kind"] in (0, 1)
    return "stream" not in given.get("policy", {})


@pytest.mark.slow
def test_a_client_in_c_answers_its_vectors(compiled):
    done = play(compiled, *paths_of(IN_C))
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(done) == [sum(is_in_c(name, vector["given"]) for vector in of(name)) for name in IN_C]


def with_another_answer(name, folder):
    """A file with the vectors of ``name``; in each vector, one number or word of the answer is changed."""

    def change(value):
        if isinstance(value, dict):
            key = next((key for key in sorted(value) if value[key] not in ([], {})), None)
            return value if key is None else {**value, key: change(value[key])}
        if isinstance(value, list):
            return [change(value[0]), *value[1:]]
        if isinstance(value, bool) or value is None:
            return not value
        return value + 1 if isinstance(value, int) else value + "0"

    content = {"kind": vectors.FILES[name][0], "vectors": of(name)}
    content["vectors"] = [{**vector, "expected": change(vector["expected"])} for vector in content["vectors"]]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(vectors.FILES))
def test_the_client_in_javascript_notices_each_wrong_answer(in_javascript, name, tmp_path):
    done = play(in_javascript, with_another_answer(name, tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("\n") == len(of(name)) + 1


@pytest.mark.parametrize("name", [name for name in IN_C if name != "mechanisms"])
def test_the_client_in_c_notices_each_wrong_answer(compiled, name, tmp_path):
    done = play(compiled, with_another_answer(name, tmp_path))
    assert done.returncode == 1
    wrong = sum(is_in_c(name, vector["given"]) and "refused" not in vector["expected"] for vector in of(name))
    assert done.stdout.count("\n") == wrong + 1
