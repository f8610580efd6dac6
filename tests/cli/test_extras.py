"""What commands do when a package is missing, a terminal or a locale lacks letters, or a disk has no room."""

import errno
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from support.micropython import REPO
from undertone.app import _sentence
from undertone.extras import advice


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("typer", "serve", "server"),
        ("typer", "init", "server"),
        ("typer", "web", "server"),
        ("typer", "query", "aggregator"),
        ("typer", "certify", "aggregator"),
        ("typer", "plan", "simulator"),
        ("numpy", "reproduce", "simulator"),
        ("matplotlib", "demo", "simulator"),
        ("pyspark", "spark", "spark"),
    ],
)
def test_the_extra_is_the_one_that_the_command_needs(module: str, command: str, extra: str) -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extra in extras
    assert advice(module, command).endswith(f"pip install 'undertone-ldp[{extra}]'")


@pytest.mark.parametrize("extra", ["web", "postgres", "recount", "simulator", "server"])
def test_an_extra_of_the_server_brings_the_server(extra: str) -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert any(each.startswith("undertone-ldp[aggregator") for each in extras[extra])


def test_a_terminal_without_greek_letters() -> None:
    code = (
        "import sys, undertone.app, undertone.__main__\n"
        "undertone.app.run = lambda: print('\\u03b5 = 1') or 0\n"
        "sys.exit(undertone.__main__.main())"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"\\u03b5 = 1\n"


@pytest.mark.slow
def test_a_locale_that_cannot_read_a_folders_name(tmp_path: Path) -> None:
    """In the locale C, Python reads the é of a name as two bytes that are no text.

    The written file of the service contains the same bytes.
    """
    folder = os.fsencode(tmp_path) + "/Zähler-é".encode()
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "undertone", "init", folder]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert b'serve "%s"\n' % folder in Path(os.fsdecode(folder), "undertone.service").read_bytes()


def test_a_full_disk_is_named() -> None:
    said = _sentence(OSError(errno.ENOSPC, "No space left on device"))
    assert tempfile.gettempdir() in said
    assert "TMPDIR" in said
