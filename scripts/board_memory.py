"""How much heap a device needs with each form of its code; scripts/board_results.py uses these measurements.

``client_rows``: the client alone, with a simulated broker (device/measure.py). ``board_rows``: device/main.py with a
real broker and a campaign of 128 bins until two reports are acknowledged, while Wi-Fi, clock and watchdog are imitated.
The interpreter is MicroPython's unix port with words of 32 bits, which scripts/board_interpreter.sh builds.
"""

import contextlib
import functools
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests"), str(REPO / "scripts")]

from mpremote.romfs import make_romfs  # noqa: E402

from support import micropython as mp  # noqa: E402

STEP = 1024
# Bytes of heap that suffice for all forms.
MOST = 256 * STEP
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
FILES, FROZEN = ".mpy files", "frozen"
# Heap in KB that a board with words of 32 bits should have, by the form of its code: the least heap, and room for what
# an owner's sensor.py needs.
BOARD_KB = {FILES: 100, FLASH: 68, FROZEN: 48}
SIGNED_KB = {FILES: 104, FLASH: 72, FROZEN: 52}
# Heap in KB in which tests/device/board runs main.py on an interpreter with words of 64 bits.
WIDE_KB = {FILES: 176, FLASH: 128}
WIDE_SIGNED_KB = {FILES: 176, FLASH: 144}
# Two reports take about three seconds on a quiet machine, and half a minute on a busy one.
_PATIENCE_SECONDS = 90
# Kind of board -> whether it has TLS, whether TLS takes its memory from MicroPython's heap, and whether the campaign is
# signed.
BOARDS = {
    "no TLS": (False, False, False),
    "TLS outside the heap": (True, False, False),
    "TLS outside the heap, signed campaign": (True, False, True),
    "TLS in the heap": (True, True, False),
    "TLS in the heap, signed campaign": (True, True, True),
}
INTERPRETERS = REPO / ".tools/board"
LEAST = "least heap in which it runs and checks a signature"
_ROW = re.compile(r"^\| (.*?) \| (\d+) (bytes|us) \|$", re.MULTILINE)
SHOWN = {
    "modules: reporter, client, MQTT session": "modules: reporter, client, MQTT session",
    "modules: sockets, TLS, configuration file, storage": "modules: sockets, TLS, configuration, storage",
    "modules that are unloaded after the start": "modules that are unloaded after the start",
    "a running device: campaign, ledger, outbox of 96 reports": "a running device: campaign, ledger, 96 reports",
    "garbage of one slot": "garbage of one slot",
    "heap that 200 slots leave behind": "heap that 200 slots leave behind",
}


def board_interpreter(form: str, *, inside: bool = False) -> Path:
    """Return the interpreter with words of 32 bits for this form of the code.

    Raises SystemExit if it has not been built.

    ``inside``: TLS takes its memory from MicroPython's heap.
    """
    name = f"micropython-{'frozen' if form == FROZEN else 'files'}-{'inside' if inside else 'outside'}"
    if not (INTERPRETERS / name).exists():
        raise SystemExit(f"{INTERPRETERS / name} is missing: run scripts/board_interpreter.sh, on Debian or Ubuntu")
    return INTERPRETERS / name


def measure(
    code: str, paths: list[Path | str], scratch: Path, heap: int | None = None, program: Path | None = None
) -> dict[str, int] | None:
    """Return the table that the program ``code`` prints, row -> number; None if the heap is too small.

    Raises RuntimeError if the program fails for another reason.
    """
    size = None if heap is None else str(heap)
    done = mp.run_micropython(code, paths=paths, cwd=scratch, heap=size, program=program)
    if done.returncode:
        if any(words in done.stdout + done.stderr for words in ("MemoryError", "not enough memory")):
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
        FILES: (compiled, [scratch / "lib"], 0),
        FLASH: (rom + compiled, [], len(image)),
        FROZEN: (compiled, [], 0),
    }


def least(succeeds: Callable[[int], bool], start: int, step: int) -> int:
    """Return the least multiple of ``step`` that succeeds, searched for from ``start``.

    Assumes that every larger heap succeeds, too. Raises RuntimeError if a heap of more than MOST bytes fails.
    """
    low, high, stride = 0, start // step, 1
    while not succeeds(high * step):
        if high * step > MOST:
            raise RuntimeError(f"the run fails even with a heap of {high * step:,} bytes: look for another cause")
        low, high, stride = high, high + stride, 2 * stride
    if low == 0:
        stride = 1
        while high > stride and succeeds((high - stride) * step):
            high, stride = high - stride, 2 * stride
        low = max(0, high - stride)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if succeeds(middle * step) else (middle, high)
    return high * step


def runs(form: str, scratch: Path, heap: int, *, tls: bool, inside: bool, signed: bool) -> bool:
    """Return True if main.py reports on a board with so many bytes of heap.

    Raises RuntimeError if it ends with another error than a lack of memory.
    """
    from support.board_site import SIGNED, BoardSite
    from support.mosquitto import find_mosquitto
    from support.ports import free_port
    from support.private_broker import PrivateBroker

    run = functools.partial(mp.run_micropython, program=board_interpreter(form, inside=inside))
    image = scratch / "image" if form == FLASH else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lib = folder / "empty" if form == FROZEN else scratch / "lib"
        certificate = "localhost" if tls else None
        with PrivateBroker(find_mosquitto() or "mosquitto", folder, free_port(), certificate) as broker:
            site = BoardSite(broker, folder, run, lib, 1, tls=tls, **(SIGNED if signed else {}))
            # The code that imitates a board is frozen into the interpreter, so it takes none of the heap that is
            # measured.
            program = folder / "program/start.py"
            program.parent.mkdir()
            program.write_text("import drive\n", encoding="utf-8")
            try:
                done = site.start(
                    heap, "2", image=image, program=program, small="import small", timeout=_PATIENCE_SECONDS
                )
            except subprocess.TimeoutExpired:
                # The campaign does not fit, so the board waits for a smaller one.
                return False
            finally:
                site.close()
    if "Traceback" in done.stdout and "MemoryError" not in done.stdout:
        raise RuntimeError(done.stdout)
    return done.returncode == 0 and "True True" in done.stdout


def client_rows(form: str) -> dict[str, int]:
    """Return the bytes that the client alone takes, by row."""
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        code, paths, offset = forms(scratch)[form]
        own = scratch / "files"
        own.mkdir()
        program = board_interpreter(form)
        rows = measure(code, paths, own, program=program) or {}
        rows[LEAST] = least(lambda heap: measure(code, paths, own, heap + offset, program) is not None, 32 * STEP, STEP)
    return {row: rows[row] for row in (*SHOWN, LEAST)}


def board_rows(form: str) -> dict[str, int]:
    """Return the least heap in KB of a whole board, for each of BOARDS."""
    rows, start = {}, STEP * (BOARD_KB[form] - 6)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        forms(scratch)
        for what, (tls, inside, signed) in BOARDS.items():
            start = least(
                lambda heap, tls=tls, inside=inside, signed=signed: runs(  # type: ignore[misc]
                    form, scratch, heap, tls=tls, inside=inside, signed=signed
                ),
                start,
                STEP,
            )
            rows[what] = start // STEP
            print(f"{form}, {what}: {rows[what]} KB", file=sys.stderr)
    return rows


def promised_rows() -> str:
    """Return the rows of the table of docs/boards.md: the heap that each form of the code is promised to need."""
    names = {FROZEN: "frozen into the firmware", FLASH: "in a ROMFS partition", FILES: ".mpy files"}
    return " ".join(f"| {name} | {BOARD_KB[form]} KB | {SIGNED_KB[form]} KB |" for form, name in names.items())
