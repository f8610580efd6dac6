"""Lets all tests of devices import the helpers in the folders ``both`` and ``board``, and compiles the boards' code."""

import contextlib
import io
import sys
from pathlib import Path

import pytest

from undertone_device.tools.compile import board_files, compile_boards
from undertone_device.tools.shipped import LISTS

HERE = Path(__file__).parent
sys.path.extend([*map(str, sorted(HERE.rglob("both"))), str(HERE / "board")])


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `undertone device compile` fills, with the meters' protocols; not to be written to."""
    out = tmp_path_factory.mktemp("compiled") / "lib"
    compile_boards(out, board_files(*LISTS))
    return out


@pytest.fixture(scope="session")
def rom(compiled: Path) -> Path:
    """The code of `compiled` as the image of a ROMFS partition."""
    from mpremote.romfs import make_romfs

    image = compiled.parent / "rom.img"
    with contextlib.redirect_stdout(io.StringIO()):
        image.write_bytes(make_romfs(str(compiled), mpy_cross=False))
    return image
