"""Copies a device's files and the package to a board over USB: ``undertone device flash FOLDER --port PORT``.

The command first removes the old main.py. Then it copies the modules, the device's files and sensor.py, and at last
main.py. So if the cable is unplugged meanwhile, the board does not start a half-copied program. At the end the board
restarts. Its state folder (ledger, campaigns) is never changed. The copying is done by mpremote.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from undertone_device.board.receive import parse_files
from undertone_device.setup.config import LARGEST, check, parse_config
from undertone_device.setup.storage import read_bounded
from undertone_device.tools.compile import board_files, compile_boards
from undertone_device.tools.shipped import LISTS, shipped
from undertone_shared.errors import Invalid

Say = Callable[[str], None]
_SECONDS = 600
# A program that runs on the board before the first file is copied. It removes main.py and the notes of an update
# (`code`, `code.new`), so that a board that is unplugged in between does not start half of the new program.
_PREPARE = """
import os
for name in ("main.py", "code", "code.new"):
    try:
        os.remove(name)
    except OSError:
        pass
for name in {folders}:
    try:
        os.mkdir(name)
    except OSError:
        pass
"""
_ANSWER_SECONDS = 5
# Largest number of lines to read before the board's answer, because its terminal first echoes the input.
_LINES = 20
_CHUNK = 256


def collect(folder: Path, out: Path, sensor: Path | None = None, *, meters: bool = False) -> list[str]:
    """Collect the board's files below ``out``; return their names in the order of copying. Raises Invalid.

    ``folder`` contains the device's files from `undertone devices add`. ``sensor``: the board's sensor.py.
    """
    names = _files(folder)
    compiled = compile_boards(out / "lib", board_files(*(LISTS if meters else LISTS[:1])))
    order = [str(path.relative_to(out)) for path in compiled]
    for name in names:
        shutil.copyfile(folder / name, out / name)
    if sensor is not None:
        shutil.copyfile(sensor, out / "sensor.py")
        names.append("sensor.py")
    shutil.copyfile(shipped("main.py"), out / "main.py")
    return order + names + ["main.py"]


def flash(folder: Path, port: str, sensor: Path | None, say: Say, *, meters: bool = False) -> None:
    """Copy a device to the board at ``port``, and restart the board. It may be run again.

    Raises Invalid with mpremote's message.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        order = collect(folder, out, sensor, meters=meters)
        say(f"{len(order)} files, {sum((out / name).stat().st_size for name in order)} bytes, to {port}")
        folders = sorted({str(parent) for name in order for parent in Path(name).parents if str(parent) != "."})
        commands = [["exec", _PREPARE.format(folders=folders)]]
        commands += [["fs", "cp", str(out / name), f":{name}"] for name in order] + [["reset"]]
        _mpremote(port, commands, say, len(order))


def _files(folder: Path) -> list[str]:
    """Return the names of a device's own files. Raises Invalid for one that is missing, and for a wrong device.json."""
    names = ["device.json", "policy.json"]
    for name in names:
        if not (folder / name).is_file():
            raise Invalid(f"{folder} has no {name}, expected a device's folder as undertone devices add writes it")
    config = parse_config(read_bounded(str(folder / "device.json"), LARGEST))
    check(config)
    broker = config.broker
    if "://" in broker.host:
        raise Invalid(f"broker.host is {broker.host!r}, expected a host's name or address: boards have no WebSocket")
    names += [name for name in (broker.password_file, broker.tls) if name]
    if broker.identity is not None:
        names += [broker.identity + ending for ending in (".crt", ".key")]
    for name in names:
        if "/" in name or not (folder / name).is_file():
            raise Invalid(f"{folder} has no file {name} directly in it, but device.json names this file")
    return names


def settings_line(folder: Path, sensor: Path | None = None) -> bytes:
    """Return a device's files as one line, for a board that waits for its files. Raises Invalid.

    ``sensor``: the board's sensor.py, which is included.
    """
    paths = {name: folder / name for name in _files(folder)}
    if sensor is not None:
        paths["sensor.py"] = sensor
    texts = {}
    for name, path in paths.items():
        try:
            texts[name] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise Invalid(f"{path} is not UTF-8 text (a certificate must be PEM)") from None
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error.strerror}") from None
    line = json.dumps(texts).encode() + b"\n"
    parse_files(line)
    return line


def send(folder: Path, port: str, sensor: Path | None, say: Say) -> None:
    """Send the files to the board that waits at ``port``. Raises Invalid with the board's message."""
    try:
        import serial
    except ImportError:
        raise Invalid("sending needs pyserial: pip install 'undertone-device[boards]'") from None
    line = settings_line(folder, sensor)
    try:
        with serial.Serial(port, 115200, timeout=_ANSWER_SECONDS) as board:
            board.reset_input_buffer()
            for at in range(0, len(line), _CHUNK):
                board.write(line[at : at + _CHUNK])
                board.flush()
            for _ in range(_LINES):
                answer = board.readline().decode(errors="replace").strip()
                if answer.startswith("stored"):
                    say(answer)
                    return
                if answer.startswith("refused"):
                    raise Invalid(f"the board at {port}: {answer}")
    except OSError as error:
        raise Invalid(f"the board at {port}: {error}") from None
    raise Invalid(
        f"the board at {port} does not confirm the files: it accepts them only if it has main.py and no device.json"
    )


def _mpremote(port: str, commands: list[list[str]], say: Say, files: int) -> None:
    """Run the commands in one process, which opens the port once. Raises Invalid with mpremote's message.

    A process for each file would close the port each time, and another program could open it in between.
    """
    line = [sys.executable, "-m", "mpremote", "connect", port]
    for command in commands:
        line += ["+"] + command
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    ) as process:
        limit = threading.Timer(_SECONDS, process.kill)
        limit.start()
        copied, output = 0, ""
        assert process.stdout is not None
        for text in process.stdout:
            output = text.strip() or output
            if text.startswith("cp "):
                copied += 1
                if copied % 10 == 0 or copied == files:
                    say(f"{copied} of {files} files")
        process.wait()
        limit.cancel()
    if "No module named mpremote" in output:
        raise Invalid("flashing needs mpremote: pip install 'undertone-device[boards]'")
    if process.returncode < 0:
        raise Invalid(f"copying to the board at {port} was killed, or took more than {_SECONDS} s")
    if process.returncode:
        raise Invalid(f"the board at {port}: {output or 'mpremote failed'}")
