"""Building firmware with the device's code.

The command names what is missing before it writes anything, passes the manifest to the program `make`, and says how to
flash.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support import micropython as mp
from support.ci import absent
from undertone_device import __main__ as command
from undertone_device.tools import firmware
from undertone_device.tools.compile import board_files
from undertone_device.tools.shipped import LISTS
from undertone_shared.errors import Invalid

SOURCES = mp.REPO / ".tools/board/build/micropython"
BUILDING = "building mpy-cross"

# A fake make that notes its arguments and writes the image with which a board is flashed.
MAKE = """#!/bin/sh
echo "$@" >>{notes}
for word in "$@"; do
    case $word in BUILD=*) for image in uf2 bin hex; do echo image >"${{word#BUILD=}}/firmware.$image"; done ;; esac
done
"""
GCC = """#!/bin/sh
for word in "$@"; do
    case $word in -print-file-name=*) echo "/lib/${word#-print-file-name=}" ;; esac
done
"""
IDF = """#!/bin/sh
echo "ESP-IDF v5.4.2"
"""
NM = """#!/bin/sh
echo "20010000 B __GcHeapStart"
echo "20040000 A __GcHeapEnd"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set PATH to a folder with a stand-in for every tool of every board and nothing else. Return the folder."""
    folder = tmp_path / "tools"
    folder.mkdir()
    programs = {"make": MAKE.format(notes=tmp_path / "notes"), "arm-none-eabi-gcc": GCC, "arm-none-eabi-nm": NM}
    programs |= {"idf.py": IDF, "gcc": GCC, "cmake": GCC, "python3": GCC}
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of MicroPython with all boards and submodules."""
    folder = tmp_path / "micropython"
    files = [module for port in firmware.PORTS.values() for module in port.submodules]
    for name, board in firmware.BOARDS.items():
        files.append(f"ports/{board.port}/boards/{name}/board.json")
    files.append("ports/rp2/boards/RPI_PICO_W/manifest.py")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("", encoding="utf-8")
    (folder / "py").mkdir()
    set_version(folder, 28)
    (folder / "tools").mkdir()
    (folder / "tools/ci.sh").write_text("IDF_OLDEST_VER=v5.2.2\nIDF_NEWEST_VER=v5.5.1\n", encoding="utf-8")
    return folder


def set_version(checkout: Path, minor: int) -> None:
    lines = f"#define MICROPY_VERSION_MAJOR 1\n#define MICROPY_VERSION_MINOR {minor}\n"
    (checkout / "py/mpconfig.h").write_text(lines, encoding="utf-8")


def build(name: str, checkout: Path, out: Path) -> Path:
    return firmware.build(name, firmware.find(name), checkout, out, lambda line: None)


@pytest.mark.parametrize("name", firmware.BOARDS)
def test_make_builds_mpy_cross_and_then_the_board_with_the_manifest(
    name: str, tools: Path, checkout: Path, tmp_path: Path
) -> None:
    image = build(name, checkout, tmp_path / "out")
    assert image.read_text(encoding="utf-8") == "image\n"
    cross, board = (tmp_path / "notes").read_text(encoding="utf-8").splitlines()
    assert cross.endswith(f"-C {checkout}/mpy-cross")
    place = f"{checkout}/ports/{firmware.BOARDS[name].port}"
    manifest = tmp_path / f"out/{name}.manifest.py"
    assert board.endswith(f"-C {place} BOARD={name} FROZEN_MANIFEST={manifest} BUILD={tmp_path}/out/{name}")


class Manifest:
    """Reads a manifest as MicroPython's tools do, and keeps what it freezes."""

    def __init__(self, text: str):
        self.included: list[str] = []
        self.required: list[str] = []
        self.frozen: dict[str, Path] = {}
        names = {"include": self.included.append, "require": self.required.append}
        exec(text, {**names, "package": self.package, "module": self.module})

    def package(self, name: str, files: tuple[str, ...], base_path: str, opt: int) -> None:
        for file in files:
            self.module(f"{name}/{file}", base_path, opt)

    def module(self, name: str, base_path: str, opt: int) -> None:
        assert opt == 3
        self.frozen[name] = Path(base_path) / name


@pytest.mark.parametrize("meters", [False, True])
def test_the_code_and_main_py_are_frozen(checkout: Path, meters: bool) -> None:
    board = firmware.BOARDS["RPI_PICO_W"]
    made = Manifest(firmware.manifest("RPI_PICO_W", board, checkout, meters=meters))
    assert set(made.frozen) == {*board_files(*LISTS[: 1 + meters]), "main.py"}
    assert all(path.is_absolute() and path.is_file() for path in made.frozen.values())
    assert made.required == ["ntptime", "ssl"]


@pytest.mark.parametrize(
    ("name", "own"),
    [("RPI_PICO_W", "boards/RPI_PICO_W/manifest.py"), ("ESP32_GENERIC", "boards/manifest.py")],
)
def test_what_the_board_freezes_itself_stays_frozen(name: str, own: str, checkout: Path) -> None:
    made = Manifest(firmware.manifest(name, firmware.BOARDS[name], checkout))
    assert made.included == [f"$(PORT_DIR)/{own}"]


def test_everything_that_is_missing_is_named_at_once(tools: Path, checkout: Path, tmp_path: Path) -> None:
    (tools / "cmake").unlink()
    (tools / "arm-none-eabi-gcc").write_text('#!/bin/sh\necho "${1#-print-file-name=}"\n', encoding="utf-8")
    (checkout / "lib/pico-sdk/pico_sdk_init.cmake").unlink()
    with pytest.raises(Invalid) as wrong:
        build("RPI_PICO_W", checkout, tmp_path / "out")
    assert str(wrong.value).splitlines() == [
        "the firmware cannot be built here:",
        "  cmake is missing: apt-get install cmake",
        "  libc.a for ARM is missing: apt-get install libnewlib-arm-none-eabi",
        "  libstdc++.a for ARM is missing: apt-get install libstdc++-arm-none-eabi-newlib",
        f"  {checkout} lacks lib/pico-sdk: run make -C {checkout}/ports/rp2 BOARD=RPI_PICO_W submodules",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("minor", "words"), [(22, "MicroPython is 1.22, expected 1.23 or later"), (24, "1.24 has no board RPI_PICO2_W")]
)
def test_a_checkout_that_is_too_old_is_refused(
    minor: int, words: str, tools: Path, checkout: Path, tmp_path: Path
) -> None:
    set_version(checkout, minor)
    (checkout / "ports/rp2/boards/RPI_PICO2_W/board.json").unlink()
    (checkout / "ports/rp2/boards/RPI_PICO2_W").rmdir()
    with pytest.raises(Invalid, match=words):
        build("RPI_PICO2_W", checkout, tmp_path / "out")


def test_a_folder_that_is_no_checkout_is_refused(tools: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"no checkout of MicroPython: it has no py/mpconfig\.h with a version"):
        build("RPI_PICO_W", tmp_path, tmp_path / "out")


@pytest.mark.parametrize("version", ["5.1.4", "6.0"])
def test_another_esp_idf_than_micropython_names_is_refused(
    version: str, tools: Path, checkout: Path, tmp_path: Path
) -> None:
    (tools / "idf.py").write_text(f'#!/bin/sh\necho "ESP-IDF v{version}"\n', encoding="utf-8")
    with pytest.raises(Invalid, match=rf"ESP-IDF is {version[:3]}, expected 5\.2 to 5\.5 for this MicroPython"):
        build("ESP32_GENERIC_S3", checkout, tmp_path / "out")


def test_an_esp_idf_of_unknown_version_is_refused(tools: Path, checkout: Path, tmp_path: Path) -> None:
    (checkout / "tools/ci.sh").unlink()
    with pytest.raises(Invalid, match="the version of ESP-IDF cannot be checked"):
        build("ESP32_GENERIC", checkout, tmp_path / "out")


def test_a_make_that_fails_shows_the_end_of_what_it_printed(tools: Path, checkout: Path, tmp_path: Path) -> None:
    (tools / "make").write_text('#!/bin/sh\necho "region RAM overflowed by 12 bytes"\nexit 2\n', encoding="utf-8")
    with pytest.raises(Invalid, match=r"make fails in .*mpy-cross[\s\S]*region RAM overflowed by 12 bytes"):
        build("RPI_PICO_W", checkout, tmp_path / "out")


def run(name: str, checkout: Path, tmp_path: Path) -> int:
    return command.main(
        ["firmware", "--board", name, "--micropython", str(checkout), "--output", str(tmp_path / "out")], "device"
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("RPI_PICO_W", "then: cp {image} /media/$USER/RPI-RP2/"),
        ("RPI_PICO2_W", "then: cp {image} /media/$USER/RP2350/"),
        ("ESP32_GENERIC", "esptool --port PORT erase-flash && esptool --port PORT write-flash 0x1000 {image}"),
        ("ESP32_GENERIC_C3", "esptool --port PORT erase-flash && esptool --port PORT write-flash 0x0 {image}"),
        ("ESP32_GENERIC_S3", "esptool --port PORT erase-flash && esptool --port PORT write-flash 0x0 {image}"),
        ("NUCLEO_F767ZI", "cp {image} /media/$USER/NOD_F767ZI/"),
    ],
)
def test_the_command_prints_how_to_flash_the_board(
    name: str, line: str, tools: Path, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, checkout, tmp_path) == 0
    printed = capsys.readouterr().out
    image = tmp_path / "out" / name / firmware.BOARDS[name].image
    assert line.format(image=image) in printed
    assert "undertone-device send" in printed
    assert f"we have not built an image of {name} ourselves" in printed
    guide = (mp.REPO / "docs/boards.md").read_text(encoding="utf-8")
    assert f"`{name}`" in guide.partition("**What was tried.**")[2].partition("\n\n")[0]


def test_the_heap_that_is_left_is_shown_where_the_linker_fixes_it(
    tools: Path, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("RPI_PICO_W", checkout, tmp_path)
    assert "6 bytes, heap 192 KB" in capsys.readouterr().out
    run("ESP32_GENERIC", checkout, tmp_path)
    assert "6 bytes\n" in capsys.readouterr().out


def test_an_unknown_board_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match=r"board is 'PICO', expected one of RPI_PICO_W \(Pico W\), "):
        firmware.find("PICO")


@pytest.mark.parametrize("name", firmware.BOARDS)
def test_the_tools_of_micropython_freeze_what_the_manifest_names(name: str, tmp_path: Path) -> None:
    """Uses the sources of board_sources.sh, which lack micropython-lib.

    Each of its libraries is an empty module here.
    """
    if not (SOURCES / "mpy-cross/build/mpy-cross").is_file():
        absent("the sources that scripts/board_sources.sh fetches")
    board = firmware.BOARDS[name]
    text = firmware.manifest(name, board, SOURCES)
    libraries = ("bundle-networking", "aioble", "dht", "onewire", "neopixel", "upysh", "aioespnow", "ds18x20")
    for library in (*libraries, *firmware.LIBRARIES, "umqtt.robust", "umqtt.simple"):
        folder = tmp_path / "lib/micropython" / library
        folder.mkdir(parents=True)
        (folder / "manifest.py").write_text("", encoding="utf-8")
    (tmp_path / "manifest.py").write_text(text, encoding="utf-8")
    port = SOURCES / "ports" / board.port
    variables = {
        "MPY_DIR": SOURCES,
        "PORT_DIR": port,
        "BOARD_DIR": port / "boards" / name,
        "MPY_LIB_DIR": tmp_path / "lib",
    }
    # This reads the names of the Python files that are frozen, including those of the board's own folder. It builds
    # nothing.
    reads = "import manifestfile, sys\nfile = manifestfile.ManifestFile(manifestfile.MODE_FREEZE, dict(%r))\n"
    reads += "file.execute(%r)\nprint('\\n'.join(each.target_path for each in file.files()))\n"
    program = reads % ({key: str(value) for key, value in variables.items()}, str(tmp_path / "manifest.py"))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=SOURCES / "tools",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.split()
    assert len(names) == len(set(names))
    assert set(names) > {*board_files(), "main.py"}


# This runs on the emulated board: the code in its firmware is imported, and verifies a signature.
EMULATED = """\
from undertone_device.core.reporter import Reporter
from undertone_shared.ed25519 import verify
from undertone_shared.mechanism import WindowMechanism
print()
print(verify(bytes.fromhex('{key}'), b'{message}', bytes.fromhex('{signature}')))
help('modules')
import machine
machine.reset()
"""


def test_the_command_builds_an_image_that_runs_on_an_emulated_cortex_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build runs to its end with the real compiler.

    For a real board, it would need sources that no package of Debian has.
    """
    for tool, package in (("arm-none-eabi-gcc", "gcc-arm-none-eabi"), ("qemu-system-arm", "qemu-system-arm")):
        if shutil.which(tool) is None:
            absent(f"apt-get install {package} libnewlib-arm-none-eabi")
    if not (SOURCES / "mpy-cross/build/mpy-cross").is_file():
        absent("the sources that scripts/board_sources.sh fetches")
    checkout = tmp_path / "micropython"
    others = {port.name for port in (SOURCES / "ports").iterdir()} - {"qemu"}
    shutil.copytree(
        SOURCES,
        checkout,
        symlinks=True,
        ignore=lambda folder, names: (
            others if folder == str(SOURCES / "ports") else {"tests"} if folder == str(SOURCES) else ()
        ),
    )
    # micropython-lib is missing here. The image needs two of its libraries, which run only on a board with a network,
    # so two empty ones take their place.
    for name in ("README.md", "micropython/ntptime/manifest.py", "micropython/ssl/manifest.py"):
        (checkout / "lib/micropython-lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "lib/micropython-lib" / name).write_text("", encoding="utf-8")
    (checkout / "ports/qemu/boards/MPS2_AN385/manifest.py").write_text("", encoding="utf-8")
    port = firmware.Port(firmware._ARM, ("libc.a",), ("lib/micropython-lib/micropython",), None)
    monkeypatch.setitem(firmware.PORTS, "qemu", port)
    board = firmware.Board("an emulated Cortex-M3", "qemu", "firmware.elf", "")
    image = firmware.build("MPS2_AN385", board, checkout, tmp_path / "out", lambda line: None)
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    program = EMULATED.format(
        key=key.public_key().public_bytes_raw().hex(), message="report", signature=key.sign(b"report").hex()
    )
    done = subprocess.run(
        [
            *("qemu-system-arm", "-machine", "mps2-an385", "-nographic", "-monitor", "null", "-semihosting"),
            *("-serial", "stdio", "-kernel", str(image)),
        ],
        # The raw REPL takes the whole program at once.
        input=b"\x01" + program.encode() + b"\x04",
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = done.stdout.decode(errors="replace").replace("\r", "")
    assert "\nTrue\n" in said, said
    frozen = set(said.partition("\nTrue\n")[2].split())
    assert {"main", "undertone_device/core/reporter", "undertone_shared/ed25519"} <= frozen
