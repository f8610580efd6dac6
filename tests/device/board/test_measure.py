"""measure.py, the board's own table of what the code takes, in a heap that bounds its growth."""

import re
import sys

import pytest

from support import micropython as mp
from support.ci import unavailable

sys.path.append(str(mp.REPO / "scripts"))

from board_memory import BOARD_KB, FLASH, SHOWN, SIGNED_KB, forms, measure

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


@pytest.mark.parametrize("page", ["boards.md", "firmware.md", "results/boards.md"])
def test_the_pages_promise_the_heap_in_which_boards_are_tested(page):
    text = (mp.REPO / "docs" / page).read_text(encoding="utf-8")
    promised = {*BOARD_KB.values(), *SIGNED_KB.values()}
    if page == "results/boards.md":
        promises = [
            set(map(int, re.findall(r"\*\*(\d+)\*\*", line))) for line in text.splitlines() if "to count on" in line
        ]
        assert promises == [set(BOARD_KB.values()), set(SIGNED_KB.values())]
    else:
        found = [
            int(number)
            for number in re.findall(
                r"(\d+) KB (?:of heap|for code|for .mpy|if it|where camp|when|with signed)", " ".join(text.split())
            )
        ]
        assert set(found) == promised, found
