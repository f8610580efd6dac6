"""Measure what a device takes on a board, memory and time, and write docs/results/boards.md.

It needs Debian or Ubuntu, and first scripts/board_interpreter.sh, which builds the interpreters with the code as it is
now. A part that is not named keeps its figures of docs/boards/results.json; without a name every part is measured. The
parts are measured at the same time. No result depends on the speed of the PC. But a try counts as failed after 90 s,
and takes about three on a quiet machine, so let the machine do nothing else.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.append(str(REPO / "scripts"))

import board_memory as memory  # noqa: E402
import board_time as time  # noqa: E402
import mpy_sizes  # noqa: E402

ROWS = REPO / "docs/boards/results.json"
PAGE = REPO / "docs/results/boards.md"
# Part -> the form of the code that it measures.
FORMS = {"files": memory.FILES, "romfs": memory.FLASH, "frozen": memory.FROZEN}
# The heap in KB that was measured independently, with another program, for signed campaigns.
INDEPENDENT = {
    "TLS outside the heap, signed campaign": {memory.FILES: 95, memory.FLASH: 76, memory.FROZEN: 41},
    "TLS in the heap, signed campaign": {memory.FILES: 120, memory.FLASH: 87, memory.FROZEN: 65},
}
_ABOUT = """\
`scripts/board_results.py` makes this page. No real board was measured: the memory is that of MicroPython's unix port
with words of 32 bits, whose objects are as large as those on a board, and the time is that of an emulated Cortex-M3."""
_MEMORY = """\
The first table is for the client alone, with a simulated broker (device/measure.py). The second is for a whole board:
device/main.py runs with a real broker and a campaign of 128 bins until two reports are acknowledged, while Wi-Fi,
clock and watchdog are imitated. The columns are three forms of the compiled code: .mpy files, a read-only file system
that is used in place (ROMFS), and code that is frozen into the firmware together with main.py. The size of the
read-only file system is subtracted, because a board has it in flash. On an ESP32, TLS takes its memory outside of
MicroPython's heap. On a Pico W, an STM32 and an i.MX RT, it takes its memory from this heap. Numbers in brackets were
measured independently, with another program. The last two rows are what a board should have if TLS is outside of the
heap: the least heap, and some room for a sensor.py. (With ROMFS and signed campaigns, leave more room, because the
independent program needed more.) The firmware itself needs further memory for Wi-Fi, which is not in the tables."""
_TIME = f"""\
The emulator executes 31.25 million instructions a second, none of which waits for memory. MicroPython's heap has
{time.HEAP_KB} KB, and the code is frozen. The campaign has ε = 1. One report in five is for the threshold, and is drawn
by a square wave of 256 bins. In the last column all reports are for the threshold. The ledger is in memory, so the
table leaves out the time that a board's file system needs. It also leaves out the network. A board with another
processor, or with wait states of its flash, needs more or less time."""


def _form(name: str) -> Callable[[], dict[str, Any]]:
    form = FORMS[name]
    return lambda: {"client": memory.client_rows(form), "board": memory.board_rows(form)}


def _size() -> dict[str, Any]:
    return {"bytes": mpy_sizes.totals()["every board"]}


# Part -> the function that measures it.
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "size": _size,
    **{name: _form(name) for name in FORMS},
    "time": lambda: {"slots": time.slot_rows()},
}


def page(rows: dict[str, Any]) -> str:
    """Return the page for ``rows``: part -> what `PARTS` measured, and the day of the measurement."""
    titles = list(FORMS.values())
    lines = ["# What the code takes on a board", "", _flowing(_ABOUT), "", "## Memory", "", _flowing(_MEMORY), ""]
    lines += [f"The .mpy files that every board loads are {rows['size']['bytes']:,} bytes together.", ""]
    lines += [_days(rows), ""]
    clients = [rows[name]["client"] for name in FORMS]
    lines += _table("bytes, 32-bit words", titles)
    for row in (*memory.SHOWN, memory.LEAST):
        lines.append(_line(memory.SHOWN.get(row, row), [f"{client[row]:,}" for client in clients]))
    lines += ["", *_table("heap of a whole board in KB", titles)]
    for what in memory.BOARDS:
        cells = [str(rows[name]["board"].get(what, "not measured")) for name in FORMS]
        if what in INDEPENDENT:
            cells = [f"{cell} ({INDEPENDENT[what][form]})" for cell, form in zip(cells, titles, strict=True)]
        lines.append(_line(f"least: {what}", cells))
    for about, promised in (("", memory.BOARD_KB), (" where campaigns are signed", memory.SIGNED_KB)):
        lines.append(_line(f"**to count on**{about}", [f"**{promised[form]}**" for form in titles]))
    slots = rows["time"]["slots"]
    lines += ["", "## Time", "", _flowing(_TIME), "", *_table("ms", list(slots))]
    for what, label in time.ROWS.items():
        lines.append(_line(label, [f"{measured[what] / 1000:.1f}" for measured in slots.values()]))
    return "\n".join(lines) + "\n"


def _days(rows: dict[str, Any]) -> str:
    """Return a sentence with the day on which each part was measured, because an old measurement is one of old code."""
    return "Measured on: " + ", ".join(f"{FORMS.get(name, name)} {rows[name]['day']}" for name in PARTS) + "."


def _flowing(text: str) -> str:
    return " ".join(text.split())


def _table(title: str, columns: list[str]) -> list[str]:
    return [f"| {title} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]


def _line(title: str, cells: list[str]) -> str:
    return f"| {title} | " + " | ".join(cells) + " |"


def _measure(part: str) -> dict[str, Any]:
    return PARTS[part]() | {"day": datetime.datetime.now(datetime.UTC).date().isoformat()}


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"measure only these parts: {', '.join(PARTS)}")
    parts = parser.parse_args().parts or list(PARTS)
    for name in parts:
        if name not in PARTS:
            parser.error(f"PART is {name!r}, expected one of {', '.join(PARTS)}")
    rows = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    with ProcessPoolExecutor(len(parts)) as pool:
        measured = {pool.submit(_measure, name): name for name in parts}
        for each in as_completed(measured):
            rows[measured[each]] = each.result()
            text = json.dumps({part: rows[part] for part in PARTS if part in rows}, indent=1) + "\n"
            ROWS.write_text(text, encoding="utf-8")
    lacking = [name for name in PARTS if name not in rows]
    if lacking:
        raise SystemExit(f"{ROWS.name} lacks {', '.join(lacking)}: measure these, too; the page is not written")
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
