"""The commands of `undertone device` that prepare boards and services."""

import argparse
from pathlib import Path
from typing import Any

NAMES = ("compile", "firmware", "flash", "send", "label", "install", "release")


def add(commands: Any) -> None:
    """Add the commands to the parser of `undertone device`."""
    words = {
        "compile": "compile a board's modules into the folder OUT, to be copied to /lib on the board",
        "firmware": "build firmware for a board with the code and main.py frozen, from a checkout of MicroPython",
        "flash": "copy a device's files and Undertone's code onto a board over USB",
        "send": "send a device's files to a board that waits for them on its serial line",
        "label": "write a label for a device's case: name and QR code, as SVG",
        "install": "install this machine's device as a service",
        "release": "write a zip of compiled modules and their hashes, from which boards fetch new code",
    }
    parsers = {name: commands.add_parser(name, help=text, description=text) for name, text in words.items()}
    kind = parsers["compile"].add_mutually_exclusive_group(required=True)
    kind.add_argument("out", type=Path, metavar="OUT", nargs="?", help="the folder to write")
    kind.add_argument(
        "--manifest",
        type=Path,
        metavar="FILE",
        help="write a manifest for frozen firmware, instead of compiled modules",
    )
    parsers["firmware"].add_argument(
        "--board", required=True, help="the board's name in MicroPython, such as RPI_PICO_W"
    )
    parsers["firmware"].add_argument(
        "--micropython", type=Path, required=True, metavar="FOLDER", help="MicroPython's sources"
    )
    parsers["firmware"].add_argument(
        "--output", type=Path, default=Path("firmware"), metavar="FOLDER", help="where to write (default: firmware)"
    )
    parsers["firmware"].add_argument("--meters", action="store_true", help="add the code that reads meters")
    parsers["flash"].add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder that `undertone devices add` writes"
    )
    parsers["flash"].add_argument("--port", required=True, help="the board's serial port, such as /dev/ttyACM0")
    parsers["flash"].add_argument("--sensor", type=Path, metavar="FILE", help="your sensor.py, which is copied, too")
    parsers["flash"].add_argument("--meters", action="store_true", help="add the code that reads meters")
    parsers["send"].add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder that `undertone devices add` writes"
    )
    parsers["send"].add_argument("--port", required=True, help="the board's serial port, such as /dev/ttyACM0")
    parsers["send"].add_argument("--sensor", type=Path, metavar="FILE", help="your sensor.py, which is sent, too")
    parsers["label"].add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder that `undertone devices add` writes"
    )
    parsers["label"].add_argument(
        "--output", type=Path, default=Path("label.svg"), metavar="FILE", help="where to write (default: label.svg)"
    )
    parsers["release"].add_argument("out", type=Path, metavar="ZIP", help="the file to write")
    parsers["install"].add_argument(
        "--systemd", action="store_true", required=True, help="install the device as a systemd service"
    )
    parsers["install"].add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="the device's configuration, JSON"
    )
    parsers["install"].add_argument("--yes", action="store_true", help="write the service without asking")


def run(arguments: argparse.Namespace) -> None:
    """Run one of the commands. Raises Invalid."""
    if arguments.command == "compile":
        from undertone_device.tools.compile import compile_boards, manifest

        if arguments.manifest is not None:
            arguments.manifest.write_text(manifest(), encoding="utf-8")
            return
        files = compile_boards(arguments.out)
        print(f"{len(files)} modules, {sum(file.stat().st_size for file in files)} bytes in {arguments.out}")
    elif arguments.command == "firmware":
        from undertone_device.tools import firmware

        board = firmware.find(arguments.board)
        image = firmware.build(
            arguments.board, board, arguments.micropython, arguments.output, print, meters=arguments.meters
        )
        heap = firmware.heap_bytes(board, image)
        print(f"{image}: {image.stat().st_size:,} bytes" + (f", heap {heap // 1024} KB" if heap is not None else ""))
        print(f"flash it:   {board.flash.format(image=image)}")
        print("then:       undertone-device send FOLDER --port PORT --sensor sensor.py")
        print(f"untried:    we have not built an image of {arguments.board} ourselves; please tell us whether it runs")
    elif arguments.command == "flash":
        from undertone_device.tools.flash import flash

        flash(arguments.folder, arguments.port, arguments.sensor, print, meters=arguments.meters)
    elif arguments.command == "send":
        from undertone_device.tools.flash import send

        send(arguments.folder, arguments.port, arguments.sensor, print)
    elif arguments.command == "label":
        from undertone_device.tools.label import label

        arguments.output.write_text(label(arguments.folder), encoding="utf-8")
        print(f"{arguments.output}: print it 62 mm wide")
    elif arguments.command == "release":
        from undertone_device.tools.release import release

        print(f"{arguments.out}: unpack it on a web server; its package.json has the sha256 {release(arguments.out)}")
    else:
        from undertone_device.tools.install import NAME, UNITS, install

        commands = install(arguments.config, _agreed if not arguments.yes else lambda path, text: True)
        if not commands:
            print("nothing was written")
            return
        print(f"{UNITS / NAME} is written; now run")
        for command in commands:
            print(f"  {command}")


def _agreed(path: Path, text: str) -> bool:
    """Ask at the terminal whether to write this file; without a terminal the answer is no."""
    print(text)
    try:
        return input(f"write this to {path}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
