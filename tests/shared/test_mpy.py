"""The package undertone_shared as a board loads it: compiled, and each module can be imported alone in a small heap."""

import pytest

from support import micropython as mp

PACKAGE = mp.REPO / "shared/undertone_shared"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    out = tmp_path_factory.mktemp("mpy")
    mp.compile_mpy(PACKAGE, out, optimise=3)
    return out


@pytest.mark.parametrize("module", MODULES)
def test_each_module_is_importable_on_its_own(module, compiled, micropython):
    # The words of this interpreter have 64 bits. So a module takes about twice as much as on a board, whose heap
    # tests/device/board tests.
    result = micropython(f"import undertone_shared.{module}\nprint('alone')", paths=[compiled], heap="72k")
    assert result.stdout.strip() == "alone", result.stderr
