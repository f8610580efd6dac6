"""Measure how much heap the device's code needs, by the form of its modules, and write docs/results/boards.md.

usage: .venv/bin/python scripts/board_memory.py [OUT]

device/measure.py runs under the unix port of MicroPython, whose words, and therefore objects, are twice as large as a
board's. Its modules come from sources, from .mpy files, and from a read-only file system that is used in place, like
ROMFS or frozen firmware; all but the sources are compiled. The script finds the least heap in steps of 1 KB and
subtracts the image, which a board has in flash. Code that runs in a heap here runs in the same heap on a board. Rely on
the last rows: the heap of a board with words of 32 bits in which tests/device/board/test_board.py runs main.py with
TLS, from .mpy files and from flash. The firmware's own use of the heap, for Wi-Fi or TLS, comes on top.
"""

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests"), str(REPO / "scripts")]

import mpy_sizes  # noqa: E402
from mpremote.romfs import make_romfs  # noqa: E402

from support import micropython as mp  # noqa: E402

STEP = 1024
FLASH = "in flash (ROMFS)"
ROM = """\
import gc
gc.threshold(4096)
import sys, vfs
image = bytearray({size})
with open({path!r}, "rb") as file:
    file.readinto(image)
vfs.mount(vfs.VfsRom(image), "/rom")
sys.path[:] = ["/rom"]
"""
# Heap in KB that a board with words of 32 bits should have, by the form of its code.
BOARD_KB = {".mpy files": 96, FLASH: 64}
SIGNED_KB = {".mpy files": 96, FLASH: 80}
_ROW = re.compile(r"^\| (.*?) \| (\d+) (bytes|us) \|$", re.MULTILINE)
SHOWN = {
    "modules: reporter, client, MQTT session": "modules: reporter, client, MQTT session",
    "modules: sockets, TLS, configuration file, storage": "modules: sockets, TLS, configuration, storage",
    "of these dropped after the start": "of these dropped after the start",
    "a running device: campaign, ledger, outbox of 96 reports": "a running device: campaign, ledger, 96 reports",
    "garbage of one slot": "garbage of one slot",
    "heap that 200 slots leave behind": "heap that 200 slots leave behind",
}


def measure(code: str, paths: list[Path | str], scratch: Path, heap: int | None = None) -> dict[str, int] | None:
    """Return the table's rows, None if the heap is too small."""
    size = None if heap is None else str(heap)
    done = mp.run_micropython(code, paths=paths, cwd=scratch, heap=size)
    if done.returncode:
        if "MemoryError" in done.stdout or "not enough memory" in done.stdout:
            return None
        raise RuntimeError(done.stdout + done.stderr)
    return {what: int(value) for what, value, _ in _ROW.findall(done.stdout)}


def forms(scratch: Path) -> dict[str, tuple[str, list[Path | str], int]]:
    """Return each form of the code by name: (program, place of its modules, bytes of the image in its heap)."""
    mp.compile_boards(scratch / "lib")
    mp.compile_mpy(REPO / "device/measure.py", scratch / "lib", optimise=3)
    with contextlib.redirect_stdout(io.StringIO()):
        image = make_romfs(str(scratch / "lib"), mpy_cross=False)
    (scratch / "image").write_bytes(image)
    compiled = "import measure\nmeasure.main()\n"
    rom = ROM.format(size=len(image), path=str(scratch / "image"))
    return {
        "sources": ((REPO / "device/measure.py").read_text(encoding="utf-8"), list(mp.SOURCES), 0),
        ".mpy files": (compiled, [scratch / "lib"], 0),
        FLASH: (rom + compiled, [], len(image)),
    }


def table() -> str:
    """Return the page."""
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        columns = {}
        for form, (code, paths, offset) in forms(scratch).items():
            columns[form] = measure(code, paths, scratch) or {}
            heap = 32 * STEP
            while measure(code, paths, scratch, heap + offset) is None:
                heap += STEP
            columns[form]["least heap in which it runs, a signature too"] = heap
    every = mpy_sizes.totals()["every board"]
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# What the code takes on a board", "", f"Made by `scripts/{Path(__file__).name}`: {about}", ""]
    lines += [f"The .mpy files that every board loads are {every:,} bytes together.", ""]
    lines += ["| bytes, 64-bit words | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in [*SHOWN, "least heap in which it runs, a signature too"]:
        values = " | ".join(f"{column[row]:,}" for column in columns.values())
        lines.append(f"| {SHOWN.get(row, row)} | {values} |")
    for row, promised in (("", BOARD_KB), (", signed campaigns", SIGNED_KB)):
        values = " | ".join(f"{promised[form] * 1024:,}" if form in promised else "too much" for form in columns)
        lines.append(f"| heap of a board to count on, 32-bit words{row} | {values} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs/results/boards.md"
    out.write_text(table(), encoding="utf-8")
