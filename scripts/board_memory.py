"""Measure the heap of a device by the form of its code, with and without TLS, and write docs/results/boards.md.

usage: .venv/bin/python scripts/board_memory.py [OUT]

The first table is of device/measure.py: the client with a simulated broker. The second is of a whole board:
device/main.py with Wi-Fi, clock and watchdog as stand-ins, a real broker and a campaign of 128 bins, until two reports
are acknowledged. The code comes from sources, from .mpy files, or from a read-only file system that is used in place,
like ROMFS; all but the sources are compiled. Both tables are measured under the unix port of MicroPython, whose words,
and therefore objects, are twice as large as a board's; the second has half of the least heap there. The image of a
read-only file system is subtracted, because a board has it in flash. Frozen code needs less than ROMFS, because its
names are in flash, too; this is not measured, because no tool here builds firmware. The firmware's own use of the heap,
for Wi-Fi or TLS, comes on top.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
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
# Heap in KB that a board with words of 32 bits should have, by the form of its code: the least heap, and room for what
# an owner's sensor.py needs. tests/device/board/test_board.py runs main.py in it.
BOARD_KB = {".mpy files": 88, FLASH: 64}
SIGNED_KB = {".mpy files": 88, FLASH: 72}
# Two reports take about three seconds of a quiet machine.
_PATIENCE_SECONDS = 45
# What a whole board does: whether it has TLS, and whether its campaign is signed.
BOARDS = {"no TLS": (False, False), "TLS": (True, False), "TLS, signed campaign": (True, True)}
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


def least_kilobytes(succeeds: Callable[[int], bool], most: int) -> int:
    """Return the least heap of a board, in KB; ``succeeds`` gets a heap in bytes, of words that are twice as long."""
    low, high = 8, most
    while low < high:
        middle = (low + high) // 2
        if succeeds(2 * STEP * middle):
            high = middle
        else:
            low = middle + 1
    return low


def whole_board(lib: Path, image: Path | None, *, tls: bool, signed: bool) -> int:
    """Return the least heap in KB in which main.py runs from .mpy files in ``lib``, or from an ``image`` in flash."""
    from support.board_site import SIGNED, BoardSite
    from support.mosquitto import find_mosquitto
    from support.ports import free_port
    from support.private_broker import PrivateBroker

    def succeeds(heap: int) -> bool:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with PrivateBroker(
                find_mosquitto() or "mosquitto", folder, free_port(), "localhost" if tls else None
            ) as broker:
                policy = SIGNED if signed else {}
                site = BoardSite(broker, folder, mp.run_micropython, lib, 1, tls=tls, **policy)
                try:
                    done = site.start(heap, "2", image=image, timeout=_PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    # The campaign does not fit, so the board waits for a smaller one.
                    return False
                finally:
                    site.close()
        return done.returncode == 0 and "True True" in done.stdout

    return least_kilobytes(succeeds, 256)


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
        boards = {
            what: [whole_board(scratch / "lib", image, tls=tls, signed=signed) for image in (None, scratch / "image")]
            for what, (tls, signed) in BOARDS.items()
        }
    every = mpy_sizes.totals()["every board"]
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = ["# What the code takes on a board", "", f"Made by `scripts/{Path(__file__).name}`. {about}", ""]
    lines += [f"The .mpy files that every board loads are {every:,} bytes together.", ""]
    lines += ["| bytes, 64-bit words | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in [*SHOWN, "least heap in which it runs, a signature too"]:
        values = " | ".join(f"{column[row]:,}" for column in columns.values())
        lines.append(f"| {SHOWN.get(row, row)} | {values} |")
    lines += ["", "| heap of a whole board in KB, 32-bit words | " + " | ".join(BOARD_KB) + " |", "|---|" + "---:|" * 2]
    lines += [f"| least: {what} | {files} | {flash} |" for what, (files, flash) in boards.items()]
    for row, promised in (("", BOARD_KB), (" where campaigns are signed", SIGNED_KB)):
        lines.append(
            f"| **to count on**{row} | " + " | ".join(f"**{kilobytes}**" for kilobytes in promised.values()) + " |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs/results/boards.md"
    out.write_text(table(), encoding="utf-8")
