"""What `pip install undertone-ldp` gives a phone or a gateway: the device, paho-mqtt, and nothing else."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from typer.main import get_command

import undertone
from support.ci import unavailable
from support.micropython import REPO
from undertone.app import app

PACKAGES = {
    "undertone",
    "undertone_aggregator",
    "undertone_central",
    "undertone_device",
    "undertone_operate",
    "undertone_shared",
    "undertone_simulator",
}
# Commands of undertone_studies, which the wheel leaves out.
ONLY_IN_A_CLONE = {"bench", "experiment", "reproduce"}


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", out]
    built = run(sys.executable, "-m", "pip", "wheel", *options, REPO)
    assert built.returncode == 0, built.stderr
    (path,) = out.glob("undertone_ldp-*.whl")
    return path


@pytest.fixture(scope="module")
def plain_install(wheel, tmp_path_factory) -> Path:
    """The Python of a fresh environment with the wheel and its plain dependencies."""
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = run(sys.executable, "-m", "pip", "--python", python, "install", "--retries=5", wheel)
    if installed.returncode and "No matching distribution found for paho-mqtt" in installed.stderr:
        unavailable("no package index in reach to install paho-mqtt from")
    assert installed.returncode == 0, installed.stderr
    return python


def test_the_wheel_holds_the_typed_packages_and_nothing_beside_them(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_the_wheel_names_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert b"Apache License" in archive.read(licence)
        assert b"License-Expression: Apache-2.0" in archive.read(metadata)


def test_a_plain_install_pulls_nothing_but_paho(plain_install):
    listed = run(sys.executable, "-m", "pip", "--python", plain_install, "list", "--format=json")
    assert listed.returncode == 0, listed.stderr
    names = {package["name"] for package in json.loads(listed.stdout)}
    assert names - {"pip", "setuptools"} == {"undertone-ldp", "paho-mqtt"}


def test_the_device_runs_from_a_plain_install(plain_install, tmp_path):
    shown = run(plain_install, "-m", "undertone_device", "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "usage" in shown.stdout.lower()


def test_the_command_of_a_plain_install_says_what_is_missing_and_no_traceback(plain_install, tmp_path):
    command = plain_install.with_name("undertone.exe" if os.name == "nt" else "undertone")
    shown = run(command, "demo", cwd=tmp_path)
    assert shown.returncode != 0
    assert "Traceback" not in shown.stderr
    assert "pip install 'undertone-ldp[simulator]'" in shown.stderr
    queried = run(command, "query", "store.sqlite", cwd=tmp_path)
    assert queried.returncode == 2
    assert "pip install 'undertone-ldp[aggregator]'" in queried.stderr


def test_the_wheel_has_every_command_but_those_of_a_clone(wheel, tmp_path):
    """Its own code runs here, with the dependencies of this environment and without the clone's packages."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    clone = [str(REPO / folder) for folder in ("aggregator", "cli", "device", "shared", "simulator")]
    program = f"""
import sys
sys.path[:] = [{str(tmp_path)!r}, *(path for path in sys.path if path not in {clone})]
import undertone
from typer.main import get_command
from undertone.app import app
assert undertone.__file__.startswith({str(tmp_path)!r}), undertone.__file__
print(" ".join(get_command(app).commands))
"""
    shown = run(sys.executable, "-c", program, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert set(shown.stdout.split()) == set(get_command(app).commands) - ONLY_IN_A_CLONE
    assert set(get_command(app).commands) >= ONLY_IN_A_CLONE


def test_one_version_everywhere(plain_install):
    command = plain_install.with_name("undertone.exe" if os.name == "nt" else "undertone")
    assert run(command, "--version").stdout == f"undertone {undertone.__version__}\n"
    listed = json.loads(run(sys.executable, "-m", "pip", "--python", plain_install, "list", "--format=json").stdout)
    assert {"name": "undertone-ldp", "version": undertone.__version__} in listed
    assert json.loads((REPO / "package.json").read_text(encoding="utf-8"))["version"] == undertone.__version__


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("CHANGELOG.md", r"^## (\S+)"),
        ("sensors.json", r'"version": "([^"]+)"'),
        ("aggregator/deploy/Dockerfile", r"^ARG VERSION=(\S+)$"),
        ("docs/boards.md", r"/undertone-([\d.]+)\""),
    ],
)
def test_what_repeats_the_version_agrees(file, pattern):
    shown = re.search(pattern, (REPO / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert shown[1] == undertone.__version__


def test_all_means_all():
    """Every extra but spark, which needs Java, compiled, which not every platform has, and those of contributors."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def needed(extra: str) -> set[str]:
        found = set()
        for requirement in extras[extra]:
            name, _, more = requirement.partition("[")
            if name == "undertone-ldp":
                found |= {package for each in more.partition("]")[0].split(",") for package in needed(each)}
            else:
                found.add(re.split(r"[<>=;\[ ]", requirement)[0])
        return found

    everything = needed("all")
    for extra in extras.keys() - {"all", "spark", "compiled", "docs", "dev"}:
        assert needed(extra) <= everything, extra
