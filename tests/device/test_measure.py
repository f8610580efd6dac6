"""measure.py, the board's own table of what the code takes, in the heap that the guides name."""

import sys

import pytest

from support import micropython as mp
from support.ci import unavailable

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import FLASH, SHOWN, forms, measure


@pytest.mark.micropython
def test_from_flash_it_runs_in_64_kb_even_with_words_of_64_bits(tmp_path):
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    program, paths, image = forms(tmp_path)[FLASH]
    rows = measure(program, paths, tmp_path, image + 64 * 1024)
    assert rows is not None, "it needs more: what is loaded that need not be?"
    assert rows.keys() >= SHOWN.keys()
    assert measure(program, paths, tmp_path, image + 48 * 1024) is None, "a smaller heap is enough: say so in docs"
