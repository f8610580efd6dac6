"""shared/ as a board loads it: compiled, each module importable on its own, small."""

from pathlib import Path

import pytest

from support import micropython as mp

PACKAGE = mp.REPO / "shared/undertone_shared"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
# What no board carries; what it loads for streams, and for tables, only when a campaign has one.
SERVERS = ("analysis", "intake", "issue")
STREAMS = ("gaussian", "stream", "stream_policy")
TABLES = ("table",)
LARGEST_BYTES = 14_000
LARGEST_STREAM_BYTES = 7_200
LARGEST_TABLE_BYTES = 2_900


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    out = tmp_path_factory.mktemp("mpy")
    mp.compile_mpy(PACKAGE, out, optimise=3)
    return out


def test_size(compiled: Path):
    sizes = {path.stem: path.stat().st_size for path in compiled.rglob("*.mpy")}
    assert sum(sizes[name] for name in STREAMS) <= LARGEST_STREAM_BYTES
    assert sum(sizes[name] for name in TABLES) <= LARGEST_TABLE_BYTES
    assert sum(sizes[name] for name in sizes.keys() - {*SERVERS, *STREAMS, *TABLES}) <= LARGEST_BYTES


@pytest.mark.parametrize("module", MODULES)
def test_each_module_is_importable_on_its_own(module, compiled, micropython):
    result = micropython(f"import undertone_shared.{module}\nprint('alone')", paths=[compiled], heap="64k")
    assert result.stdout.strip() == "alone", result.stderr
