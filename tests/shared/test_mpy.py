"""shared/ as a board loads it: compiled, each module importable on its own, small."""

import pytest

from support import micropython as mp
from undertone_device.tools.compile import shorten

PACKAGE = mp.REPO / "shared/undertone_shared"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
# What a board loads for streams, and for tables, only when a campaign has one; for signatures, when a body is new.
SIGNATURES = ("ed25519",)
STREAMS = ("gaussian", "points", "stream", "stream_policy")
TABLES = ("table",)
# Ratchets; scripts/mpy_sizes.py prints what there is.
LARGEST_BYTES = 16_900
# With each report's own rho under a cap per report, turns and kinds refused in streams; `points` apart.
LARGEST_STREAM_BYTES = 7_300
LARGEST_TABLE_BYTES = 2_800
LARGEST_SIGNATURE_BYTES = 2_600


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    out = tmp_path_factory.mktemp("mpy")
    mp.compile_mpy(PACKAGE, out, optimise=3)
    return out


def test_size(tmp_path):
    files = mp.compile_boards(tmp_path)
    sizes = {path.stem: path.stat().st_size for path in files if path.parent.name == "undertone_shared"}
    assert sum(sizes[name] for name in STREAMS) <= LARGEST_STREAM_BYTES
    assert sum(sizes[name] for name in SIGNATURES) <= LARGEST_SIGNATURE_BYTES
    assert sum(sizes[name] for name in TABLES) <= LARGEST_TABLE_BYTES
    assert sum(sizes[name] for name in sizes.keys() - {*STREAMS, *TABLES, *SIGNATURES}) <= LARGEST_BYTES


def test_private_integers_are_constants_of_the_compiler():
    source = "_DAY = 86400\n_WEEK = 7 * _DAY\nOPEN = 3\n_NAME = 'x'\n_lower = 1\n_THERE = OPEN + 1\n"
    assert shorten(source) == "_0 = const(86400)\n_1 = const(7 * _0)\nOPEN = 3\n_2 = 'x'\n_3 = 1\n_4 = OPEN + 1\n"


@pytest.mark.parametrize("module", MODULES)
def test_each_module_is_importable_on_its_own(module, compiled, micropython):
    result = micropython(f"import undertone_shared.{module}\nprint('alone')", paths=[compiled], heap="64k")
    assert result.stdout.strip() == "alone", result.stderr
