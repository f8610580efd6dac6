"""Builder of firmware with the device's code, its libraries and main.py frozen: ``undertone device firmware``.

The builder checks first that nothing is missing, and then uses the build system of the owner's copy of MicroPython.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from undertone_device.tools.compile import packages
from undertone_device.tools.shipped import LISTS, shipped
from undertone_shared.errors import Invalid

OLDEST = (1, 23)
# Libraries of micropython-lib that the code imports, whether or not a board's own firmware has them.
LIBRARIES = ("ntptime", "ssl")
_COMMON_TOOLS = {"make": "apt-get install make", "gcc": "apt-get install gcc", "python3": "apt-get install python3"}
_CMAKE = {"cmake": "apt-get install cmake"}
_ARM = {"arm-none-eabi-gcc": "apt-get install gcc-arm-none-eabi"}
_ARM_LIBRARIES = {"libc.a": "libnewlib-arm-none-eabi", "libstdc++.a": "libstdc++-arm-none-eabi-newlib"}


@dataclass(frozen=True)
class Port:
    """What a port of MicroPython needs: tools, C libraries of the ARM compiler, submodules (a file of each).

    ``heap``: the linker's symbols for the two ends of the heap, if they are fixed when the firmware is built.
    """

    tools: dict[str, str]
    libraries: tuple[str, ...]
    submodules: tuple[str, ...]
    heap: tuple[str, str] | None


PORTS = {
    "rp2": Port(
        _CMAKE | _ARM,
        ("libc.a", "libstdc++.a"),
        (
            "lib/pico-sdk/pico_sdk_init.cmake",
            "lib/cyw43-driver/src",
            "lib/lwip/src",
            "lib/mbedtls/library",
            "lib/tinyusb/src",
            "lib/micropython-lib/micropython",
        ),
        ("__GcHeapStart", "__GcHeapEnd"),
    ),
    "esp32": Port(
        _CMAKE | {"idf.py": "install ESP-IDF, and run `. esp-idf/export.sh` in this terminal"},
        (),
        ("lib/berkeley-db-1.xx/README", "lib/micropython-lib/micropython"),
        None,
    ),
    "stm32": Port(
        _ARM,
        ("libc.a",),
        ("lib/stm32lib/README.md", "lib/lwip/src", "lib/mbedtls/library", "lib/micropython-lib/micropython"),
        ("_heap_start", "_heap_end"),
    ),
}


@dataclass(frozen=True)
class Board:
    """A board that MicroPython supports.

    ``about``: its name for people. ``port``: one of `PORTS`. ``image``: the file to flash. ``flash``: how to flash it,
    with {image} in place of the file's path.
    """

    about: str
    port: str
    image: str
    flash: str


def _esp32(about: str, address: str) -> Board:
    flash = f"esptool --port PORT erase-flash && esptool --port PORT write-flash {address} {{image}}"
    return Board(about, "esp32", "firmware.bin", flash)


def _pico(about: str, drive: str) -> Board:
    flash = f"hold BOOTSEL while you plug the board in, then: cp {{image}} /media/$USER/{drive}/"
    return Board(about, "rp2", "firmware.uf2", flash)


BOARDS = {
    "RPI_PICO_W": _pico("Pico W", "RPI-RP2"),
    "RPI_PICO2_W": _pico("Pico 2 W", "RP2350"),
    "ESP32_GENERIC": _esp32("ESP32", "0x1000"),
    "ESP32_GENERIC_C3": _esp32("ESP32-C3", "0x0"),
    "ESP32_GENERIC_S3": _esp32("ESP32-S3", "0x0"),
    "NUCLEO_F767ZI": Board(
        "STM32 with Ethernet", "stm32", "firmware.hex", "cp {image} /media/$USER/NOD_F767ZI/ (the drive of the ST-Link)"
    ),
}


def find(name: str) -> Board:
    """Return the board of this name. Raises Invalid."""
    if name not in BOARDS:
        known = ", ".join(f"{each} ({board.about})" for each, board in BOARDS.items())
        raise Invalid(f"board is {name!r}, expected one of {known}")
    return BOARDS[name]


def build(
    name: str, board: Board, micropython: Path, out: Path, say: Callable[[str], None], *, meters: bool = False
) -> Path:
    """Build the firmware below ``out``, and return the image; ``meters``: with the code that reads meters.

    Raises Invalid before anything is written if something is missing, and later if make fails or writes no image.
    """
    micropython = micropython.resolve()
    needs = missing(name, board, micropython)
    if needs:
        raise Invalid("\n  ".join(["the firmware cannot be built here:"] + needs))
    out = out.resolve()
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    frozen = out / f"{name}.manifest.py"
    frozen.write_text(manifest(name, board, micropython, meters=meters), encoding="utf-8")
    log = out / f"{name}.log"
    log.write_text("", encoding="utf-8")
    # Without this, the build system of some ports would use the code that it froze last time.
    (target / "frozen_content.c").unlink(missing_ok=True)
    say("building mpy-cross")
    _make(log, micropython / "mpy-cross")
    say(f"building {name}; what make prints is in {log}")
    place = micropython / "ports" / board.port
    _make(log, place, f"BOARD={name}", f"FROZEN_MANIFEST={frozen}", f"BUILD={target}")
    image = target / board.image
    if not image.is_file():
        raise Invalid(f"make has written no {image}: see {log}")
    return image


def _make(log: Path, place: Path, *settings: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        command = ["make", f"-j{os.cpu_count() or 1}", "-C", str(place)] + list(settings)
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        raise Invalid(f"make fails in {place} (all that it printed is in {log}):\n  " + "\n  ".join(last))


def manifest(name: str, board: Board, micropython: Path, *, meters: bool = False) -> str:
    """Return the manifest: the board's own, the libraries, the device's code, and main.py."""
    own = micropython / "ports" / board.port / "boards" / name / "manifest.py"
    first = f"boards/{name}/manifest.py" if own.is_file() else "boards/manifest.py"
    main = shipped("main.py")
    code = packages(*(LISTS if meters else LISTS[:1]), absolute=True)
    lines = [f'include("$(PORT_DIR)/{first}")']
    lines += [f'require("{library}")' for library in LIBRARIES]
    lines += [code, f'module("main.py", base_path="{main.parent}", opt=3)']
    return "\n".join(lines) + "\n"


def missing(name: str, board: Board, micropython: Path) -> list[str]:
    """Return what is missing for the build, a sentence for each thing."""
    version = version_of(micropython)
    if version is None:
        return [f"{micropython} is no checkout of MicroPython: it has no py/mpconfig.h with a version"]
    if version < OLDEST:
        return [f"MicroPython is {_dotted(version)}, expected {_dotted(OLDEST)} or later"]
    place = micropython / "ports" / board.port
    if not (place / "boards" / name).is_dir():
        return [f"MicroPython {_dotted(version)} has no board {name}: use a newer checkout"]
    port = PORTS[board.port]
    tools = _COMMON_TOOLS | port.tools
    needs = [f"{tool} is missing: {how}" for tool, how in tools.items() if shutil.which(tool) is None]
    if shutil.which("arm-none-eabi-gcc"):
        needs += [
            f"{library} for ARM is missing: apt-get install {_ARM_LIBRARIES[library]}"
            for library in port.libraries
            if "/" not in _print(["arm-none-eabi-gcc", f"-print-file-name={library}"])
        ]
    if "idf.py" in tools and shutil.which("idf.py"):
        needs += _other_idf(micropython)
    absent = [module for module in port.submodules if not (micropython / module).exists()]
    if absent:
        names = ", ".join("/".join(module.split("/")[:2]) for module in absent)
        needs.append(f"{micropython} lacks {names}: run make -C {place} BOARD={name} submodules")
    return needs


def _other_idf(micropython: Path) -> list[str]:
    """Return a list of one sentence if the version of ESP-IDF is not one of those with which this MicroPython is
    tested, or cannot be checked; an empty list otherwise.
    """
    has = re.search(r"v(\d+)\.(\d+)", _print(["idf.py", "--version"]))
    script = micropython / "tools/ci.sh"
    text = script.read_text(encoding="utf-8") if script.is_file() else ""
    wanted = sorted((int(a), int(b)) for a, b in re.findall(r"\bIDF\w*_VER=v(\d+)\.(\d+)", text))
    if not has or not wanted:
        return [f"the version of ESP-IDF cannot be checked: idf.py --version or {script} names no version"]
    version = int(has[1]), int(has[2])
    if wanted[0] <= version <= wanted[-1]:
        return []
    span = " to ".join(dict.fromkeys(_dotted(each) for each in (wanted[0], wanted[-1])))
    return [f"ESP-IDF is {_dotted(version)}, expected {span} for this MicroPython"]


def version_of(micropython: Path) -> tuple[int, int] | None:
    """Return (major, minor) of the version of a checkout of MicroPython; None if the folder is no such checkout."""
    header = micropython / "py/mpconfig.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    found = [re.search(rf"#define MICROPY_VERSION_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    return (int(found[0][1]), int(found[1][1])) if found[0] and found[1] else None


def heap_bytes(board: Board, image: Path) -> int | None:
    """Return the bytes of heap that the firmware leaves.

    Return None if the heap is not fixed when the firmware is built.
    """
    ends = PORTS[board.port].heap
    listing = _print(["arm-none-eabi-nm", str(image.with_name("firmware.elf"))]) if ends else ""
    places = dict(re.findall(r"^([0-9a-f]+) \w (\w+)$", listing, re.MULTILINE))
    at = {symbol: int(place, 16) for place, symbol in places.items()}
    return at[ends[1]] - at[ends[0]] if ends and ends[0] in at and ends[1] in at else None


def _print(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False).stdout.strip()


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
