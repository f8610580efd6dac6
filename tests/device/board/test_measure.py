"""measure.py, by which a board measures the heap and the time that the code takes, runs in a heap of limited size.

The guide and its tables are compared with the stored results of such measurements.
"""

import json
import re
import sys
from types import SimpleNamespace

import pytest

from support import micropython as mp
from support.ci import absent, unavailable

sys.path.append(str(mp.REPO / "scripts"))

import board_results
from board_memory import BOARD_KB, FLASH, INTERPRETERS, SHOWN, SIGNED_KB, forms, least, measure, promised_rows, runs

from undertone_device.core.ledger import DEFAULT_OUTBOX, FILE, Ledger
from undertone_shared.report import LENGTH

# The heap in bytes, without the image, for this interpreter's words of 64 bits. docs/results/boards.md states what
# measure.py takes with words of 32 bits.
HEAP = 82 * 1024
# The most milliseconds that a slot may take on the emulated board of docs/results/boards.md.
MOST_MS = 24


@pytest.mark.micropython
def test_what_a_device_takes_from_flash_does_not_grow(tmp_path):
    if mp.interpreter() is None:
        unavailable(mp.MISSING)
    program, paths, image = forms(tmp_path)[FLASH]
    rows = measure(program, paths, tmp_path, image + HEAP)
    assert rows is not None, "the device needs more heap: what is loaded that need not be?"
    assert rows.keys() >= SHOWN.keys()
    assert measure(program, paths, tmp_path, image + HEAP - 12 * 1024) is None, "a smaller heap is enough: lower HEAP"


@pytest.mark.parametrize("enough", [1, 2, 47, 64, 96, 128])
def test_the_search_finds_the_least_heap_wherever_it_begins(enough):
    for start in (1, 16, 32, 48, 55, 98, 200):
        assert least(lambda heap: heap >= enough * 1024, start * 1024, 1024) == enough * 1024


def test_the_search_ends_where_no_heap_suffices():
    with pytest.raises(RuntimeError, match="look for another cause"):
        least(lambda heap: False, 32 * 1024, 1024)


def test_the_guide_promises_the_heap_that_is_tested():
    assert promised_rows() in " ".join((mp.REPO / "docs/boards.md").read_text(encoding="utf-8").split())


def measured():
    return json.loads(board_results.ROWS.read_text(encoding="utf-8"))


def test_the_ledger_that_is_measured_has_the_length_of_a_full_one():
    files = {}
    ledger = Ledger(SimpleNamespace(read=files.get, write=files.__setitem__), DEFAULT_OUTBOX)
    for _ in range(DEFAULT_OUTBOX):
        ledger.outbox.append(bytes(LENGTH))
    ledger.write(0, 0, 0)
    text = (mp.REPO / "device/measure.py").read_text(encoding="utf-8")
    terms = re.search(r"data = bytes\((\d+) \+ (\d+) \+ (\d+) \* (\d+) \+ (\d+)\)", text)
    header, sums, reports, width, check = map(int, terms.groups())
    assert header + sums + reports * width + check == len(files[FILE])


def test_the_page_shows_what_was_measured():
    assert board_results.PAGE.read_text(encoding="utf-8") == board_results.page(measured())


@pytest.mark.parametrize(
    ("promised", "what"),
    [(BOARD_KB, "TLS outside the heap"), (SIGNED_KB, "TLS outside the heap, signed campaign")],
)
def test_the_table_promises_more_than_the_least_heap(promised, what):
    parts = {form: name for name, form in board_results.FORMS.items()}
    rows = measured()
    for form, kilobytes in promised.items():
        assert rows[parts[form]]["board"][what] < kilobytes, form


def test_the_guide_says_how_long_a_slot_takes():
    times = [row["slot"] / 1000 for row in measured()["time"]["slots"].values()]
    guide = " ".join((mp.REPO / "docs/boards.md").read_text(encoding="utf-8").split())
    assert f"The work for one slot takes {min(times):.0f} to {max(times):.0f} ms on an emulated Cortex-M3" in guide
    assert max(times) <= MOST_MS


@pytest.mark.services
@pytest.mark.parametrize("form", SIGNED_KB)
def test_a_board_of_32_bits_reports_in_the_heap_that_the_table_promises(form, tmp_path):
    if not INTERPRETERS.exists():
        absent(f"no {INTERPRETERS}, which scripts/board_interpreter.sh builds")
    forms(tmp_path)
    assert runs(form, tmp_path, 1024 * SIGNED_KB[form], tls=True, inside=False, signed=True)
