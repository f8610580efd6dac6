"""The start of a participation in a process without Home Assistant, where mock objects stand for its modules."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support import micropython as mp

sys.path.append(str(mp.REPO / "scripts"))

import home_assistant_zip

# The modules of Home Assistant and of its packages are mock objects; the integration's own modules are real.
MOCKS = """
import asyncio, importlib.abc, importlib.machinery, sys
from unittest.mock import AsyncMock, MagicMock

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("homeassistant", "voluptuous", "aiohttp", "yarl"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = MagicMock(__path__=[], __spec__=spec)
        # A decorator leaves the function as it is.
        module.callback = lambda function: function
        return module
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
path = list(sys.path)
import custom_components.undertone as undertone
"""
FAILS = """
assert sys.path == path

async def main():
    stopped = []
    class Participation:
        def __init__(self, *words):
            self.source = MagicMock()
        def start(self):
            pass
        def stop(self):
            stopped.append(True)
    async def run(function, *words):
        return function(*words)
    undertone.Participation = Participation
    undertone.stored = lambda *words: {"measures": {"unit": "Wh", "measure": "sum", "slot_seconds": 60}}
    hass = MagicMock()
    hass.async_add_executor_job = run
    hass.config_entries.async_forward_entry_setups = AsyncMock(side_effect=error)
    try:
        await undertone.async_setup_entry(hass, MagicMock())
    except BaseException as raised:
        assert raised is error
    assert stopped == [True]

error = ERROR
asyncio.run(main())
"""
PACKAGES = """
assert sys.path == path
import undertone_device.core.reporter, undertone_shared.policy
for module in (undertone_device.core.reporter, undertone_shared.policy):
    assert "/custom_components/undertone/packages/undertone_" in module.__file__, module.__file__
"""


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A folder into which the zip of the integration was unpacked."""
    home_assistant_zip.main(str(tmp_path / "undertone.zip"))
    with zipfile.ZipFile(tmp_path / "undertone.zip") as archive:
        archive.extractall(tmp_path / "custom_components/undertone")
    return tmp_path


def run(folder: Path, program: str) -> None:
    """Run a program that can import only those modules of ours that the zip has."""
    code = f"import sys\nsys.path.insert(0, {str(folder)!r})\n{MOCKS}{program}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_packages_of_the_zip_are_found_without_a_place_in_the_path(unpacked: Path) -> None:
    run(unpacked, PACKAGES)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ValueError('a platform fails')", "asyncio.CancelledError()"])
def test_the_devices_thread_ends_if_its_entities_cannot_be_added(unpacked: Path, error: str) -> None:
    run(unpacked, FAILS.replace("ERROR", error))
