"""shared/ as a board loads it: compiled, each module importable on its own, small."""

from pathlib import Path

import pytest

from support import micropython as mp

PACKAGE = mp.REPO / "shared/undertone_shared"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
# A ratchet, not the goal of 12 KB: see scripts/mpy_sizes.py.
LARGEST_BYTES = 20_000
# Loaded by devices whose policy allows streams only.
STREAMS = ("gaussian", "stream", "stream_policy")
LARGEST_STREAM_BYTES = 7_000


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    out = tmp_path_factory.mktemp("mpy")
    mp.compile_mpy(PACKAGE, out, optimise=3)
    return out


def test_size(compiled: Path):
    sizes = {path.stem: path.stat().st_size for path in compiled.rglob("*.mpy")}
    streams = sum(sizes.pop(name) for name in STREAMS)
    assert streams <= LARGEST_STREAM_BYTES
    assert sum(sizes.values()) <= LARGEST_BYTES


@pytest.mark.parametrize("module", MODULES)
def test_each_module_is_importable_on_its_own(module, compiled, micropython):
    result = micropython(f"import undertone_shared.{module}\nprint('alone')", paths=[compiled], heap="64k")
    assert result.stdout.strip() == "alone", result.stderr
