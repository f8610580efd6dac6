"""shared/ as a board loads it: compiled, each module importable on its own, small."""

import pytest

from support import micropython as mp

PACKAGE = mp.REPO / "shared/undertone_shared"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
# A board loads these only when it needs them: streams and tables when a campaign has one, signatures when a body is
# new, hand-overs when a message has one.
SIGNATURES = ("ed25519",)
STREAMS = ("gaussian", "points", "stream", "stream_policy")
TABLES = ("table",)
HANDOVERS = ("handover",)
# Ratchets; scripts/mpy_sizes.py prints what there is.
LARGEST_BYTES = 18_500
# With each report's own rho under a cap per report, turns and kinds refused in streams, a lifetime; `points` apart.
LARGEST_STREAM_BYTES = 8_100
LARGEST_TABLE_BYTES = 2_700
LARGEST_SIGNATURE_BYTES = 2_700
LARGEST_HANDOVER_BYTES = 1_450


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
    assert sum(sizes[name] for name in HANDOVERS) <= LARGEST_HANDOVER_BYTES
    assert sum(sizes[name] for name in sizes.keys() - {*STREAMS, *TABLES, *SIGNATURES, *HANDOVERS}) <= LARGEST_BYTES


@pytest.mark.parametrize("module", MODULES)
def test_each_module_is_importable_on_its_own(module, compiled, micropython):
    result = micropython(f"import undertone_shared.{module}\nprint('alone')", paths=[compiled], heap="64k")
    assert result.stdout.strip() == "alone", result.stderr
