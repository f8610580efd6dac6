"""measure.py, the board's own table of what the code takes, in a heap that bounds its growth."""

import sys

import pytest

from support import micropython as mp
from support.ci import unavailable

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FLASH, SHOWN, forms, measure

# Of 64-bit words, beside the image; docs/results/boards.md has what it takes exactly.
HEAP = 84 * 1024


@pytest.mark.micropython
def test_what_a_device_takes_from_flash_does_not_grow(tmp_path):
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    program, paths, image = forms(tmp_path)[FLASH]
    rows = measure(program, paths, tmp_path, image + HEAP)
    assert rows is not None, "it needs more: what is loaded that need not be?"
    assert rows.keys() >= SHOWN.keys()
    assert measure(program, paths, tmp_path, image + HEAP - 12 * 1024) is None, "a smaller heap is enough: lower HEAP"
