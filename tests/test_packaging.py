"""What the distributions contain and what `pip install` gives.

undertone-device has the device, undertone-ldp the rest.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

import undertone
from support.ci import unavailable
from support.factory import policy_of
from support.micropython import REPO
from support.waiting import wait_for
from undertone.app import app
from undertone_device.host import status

# Distribution -> its packages.
PACKAGES = {
    "undertone_device": {"undertone_device", "undertone_shared"},
    "undertone_ldp": {
        "undertone",
        "undertone_aggregator",
        "undertone_central",
        "undertone_operate",
        "undertone_simulator",
    },
}
FOLDERS = {"undertone_device": REPO / "device", "undertone_ldp": REPO}
# Commands of undertone_studies, which the wheel does not contain.
ONLY_IN_A_CLONE = {"bench", "experiment", "reproduce"}


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, encoding="utf-8", timeout=600, **options
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Distribution -> its wheel."""
    out = tmp_path_factory.mktemp("wheels")
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", out]
    built = run(sys.executable, "-m", "pip", "wheel", *options, *FOLDERS.values())
    assert built.returncode == 0, built.stderr
    return {name: path for name in PACKAGES for path in out.glob(f"{name}-*.whl")}


def environment(folder: Path, *wheels: Path) -> Path:
    """The Python of a new environment in a folder, with these wheels and their required dependencies."""
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = run(sys.executable, "-m", "pip", "--python", python, "install", "--retries=5", *wheels)
    if installed.returncode and "No matching distribution found for paho-mqtt" in installed.stderr:
        unavailable("no package index in reach to install paho-mqtt from")
    assert installed.returncode == 0, installed.stderr
    return python


def installed_names(python: Path) -> set[str]:
    """The distributions in an environment, except pip's own."""
    listed = run(sys.executable, "-m", "pip", "--python", python, "list", "--format=json")
    assert listed.returncode == 0, listed.stderr
    return {package["name"] for package in json.loads(listed.stdout)} - {"pip", "setuptools"}


@pytest.fixture(scope="module")
def device_install(wheels, tmp_path_factory) -> Path:
    """A gateway's environment: undertone-device alone."""
    return environment(tmp_path_factory.mktemp("device"), wheels["undertone_device"])


@pytest.fixture(scope="module")
def plain_install(wheels, tmp_path_factory) -> Path:
    """undertone-ldp without extras."""
    return environment(tmp_path_factory.mktemp("plain"), *wheels.values())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_its_typed_packages_and_nothing_beside_them(wheels, name):
    with zipfile.ZipFile(wheels[name]) as archive:
        names = [held for held in archive.namelist() if ".dist-info/" not in held]
    assert {held.split("/")[0] for held in names} == PACKAGES[name]
    assert {f"{package}/py.typed" for package in PACKAGES[name]} <= set(names)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_what_is_committed(wheels, name):
    """If npm is installed, the wheel also contains what its build fetches by npm."""
    compared = run(sys.executable, REPO / "scripts/wheel_contents.py", wheels[name])
    lacking = [line for line in compared.stderr.splitlines() if "/vendor/" not in line]
    assert compared.returncode == 0 or (shutil.which("npm") is None and not lacking), compared.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_names_its_licence(wheels, name):
    with zipfile.ZipFile(wheels[name]) as archive:
        (licence,) = [held for held in archive.namelist() if held.endswith("/licenses/LICENSE")]
        (metadata,) = [held for held in archive.namelist() if held.endswith(".dist-info/METADATA")]
        assert archive.read(licence) == (REPO / "LICENSE").read_bytes()
        assert b"License-Expression: Apache-2.0" in archive.read(metadata)


@pytest.mark.slow
def test_the_devices_sdist_builds_the_same_wheel(wheels, tmp_path):
    """The build runs outside the clone, so it has no folder ``shared`` next to it."""
    built = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, REPO / "device")
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(wheels["undertone_device"]) as other:
        assert {each.filename: each.CRC for each in one.infolist() if "RECORD" not in each.filename} == {
            each.filename: each.CRC for each in other.infolist() if "RECORD" not in each.filename
        }


@pytest.mark.slow
def test_a_device_pulls_nothing_but_paho(device_install):
    assert installed_names(device_install) == {"undertone-device", "paho-mqtt"}


@pytest.mark.slow
def test_a_plain_install_pulls_nothing_but_the_device(plain_install):
    assert installed_names(plain_install) == {"undertone-ldp", "undertone-device", "paho-mqtt"}


@pytest.mark.slow
def test_a_gateway_runs_with_the_device_alone(device_install, tmp_path, free_port):
    """The gateway writes its status while the broker is away, and ends when it gets a signal."""
    command = device_install.with_name("undertone-device.exe" if os.name == "nt" else "undertone-device")
    broker = {"host": "127.0.0.1", "port": free_port()}
    config = {"name": "meter", "broker": broker, "campaigns": ["load"], "policy": "policy.json", "state": "state"}
    config |= {"source": {"kind": "file", "path": "reading", "seconds": 1}}
    (tmp_path / "policy.json").write_text(json.dumps(policy_of(measures=["last"])), encoding="utf-8")
    (tmp_path / "device.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "reading").write_text("5\n", encoding="utf-8")
    arguments = [str(command), "run", "--config", str(tmp_path / "device.json")]
    gateway = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        wait_for(lambda: (tmp_path / "state" / status.FILE).exists() or gateway.poll() is not None)
        gateway.send_signal(signal.SIGTERM)
        printed, errors = gateway.communicate(timeout=60)
    finally:
        gateway.kill()
    assert (gateway.returncode, errors) == (0, ""), printed + errors
    shown = run(command, "status", "--config", tmp_path / "device.json")
    assert shown.returncode == 0, shown.stderr


def test_the_device_runs_as_a_module(device_install, tmp_path):
    shown = run(device_install, "-m", "undertone_device", "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "usage" in shown.stdout.lower()


@pytest.mark.slow
def test_the_command_of_a_plain_install_says_what_is_missing_and_no_traceback(plain_install, tmp_path):
    command = plain_install.with_name("undertone.exe" if os.name == "nt" else "undertone")
    shown = run(command, "demo", cwd=tmp_path)
    assert shown.returncode != 0
    assert "Traceback" not in shown.stderr
    assert "pip install 'undertone-ldp[simulator]'" in shown.stderr
    queried = run(command, "query", "store.sqlite", cwd=tmp_path)
    assert queried.returncode == 2
    assert "pip install 'undertone-ldp[aggregator]'" in queried.stderr


def test_the_wheels_have_every_command_but_those_of_a_clone(wheels, tmp_path):
    """The wheels' own code runs here, with the dependencies of this environment and without the clone's packages."""
    for wheel in wheels.values():
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
    for name in ("undertone-ldp", "undertone-device"):
        assert {"name": name, "version": undertone.__version__} in listed
    assert json.loads((REPO / "package.json").read_text(encoding="utf-8"))["version"] == undertone.__version__


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("device/pyproject.toml", r'^version = "([^"]+)"$'),
        ("pyproject.toml", r'"undertone-device==([^"]+)"'),
        ("CHANGELOG.md", r"^## (\S+)"),
        ("sensors.json", r'"version": "([^"]+)"'),
        ("aggregator/deploy/Dockerfile", r"^ARG VERSION=(\S+)$"),
        ("docs/boards.md", r"/undertone-([\d.]+)\""),
        ("README.md", r"^\*Version (\d+\.\d+\.\d+)"),
    ],
)
def test_what_repeats_the_version_agrees(file, pattern):
    shown = re.search(pattern, (REPO / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert shown[1] == undertone.__version__


def test_all_means_all():
    """The extra `all` has all extras but spark (needs Java), compiled (not on every platform) and contributors'."""
    extras = {
        name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
        for name, folder in (("undertone-ldp", REPO), ("undertone-device", REPO / "device"))
    }

    def needed(extra: str, distribution: str = "undertone-ldp") -> set[str]:
        found = set()
        for requirement in extras[distribution][extra]:
            name, _, more = requirement.partition("[")
            if name in extras:
                found |= {package for each in more.partition("]")[0].split(",") for package in needed(each, name)}
            else:
                found.add(re.split(r"[<>=;\[ ]", requirement)[0])
        return found

    everything = needed("all")
    for extra in extras["undertone-ldp"].keys() - {"all", "spark", "compiled", "docs", "dev"}:
        assert needed(extra) <= everything, extra


def test_the_lock_has_a_version_of_each_package_for_development() -> None:
    locked = {}
    for line in (REPO / "requirements-dev.txt").read_text(encoding="utf-8").splitlines():
        requirement = Requirement(line)
        locked.setdefault(canonicalize_name(requirement.name), []).append(requirement.specifier)
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(text) for text in project["optional-dependencies"]["dev"]]
    for requirement in wanted:
        if requirement.name != "undertone-ldp":
            (pinned,) = locked[canonicalize_name(requirement.name)]
            (version,) = (each.version for each in pinned if each.operator == "==")
            assert requirement.specifier.contains(version), requirement
