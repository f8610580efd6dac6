"""Where a phone's or gateway's samples come from: integers in the campaign's unit. CPython only."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from undertone_device.config import check_text, in_folder, known_fields
from undertone_device.settings import Config
from undertone_shared.checks import check_integer
from undertone_shared.errors import Invalid

_LONGEST_LINE = 64
# kind of source: its required and its optional fields
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": (("value",), ()),
    "file": (("path",), ()),
    "command": (("command",), ("timeout_seconds",)),
    "list": (("path",), ()),
    "stdin": ((), ()),
    "fifo": (("path",), ()),
}


def parse_source(config: Config) -> dict[str, Any]:
    """The configuration's ``source``, paths in its folder. Raises Invalid, the field named."""
    if not config.source:
        raise Invalid("the configuration has no field 'source', expected where samples come from")
    kind = config.source.get("kind")
    if kind == "board":
        raise Invalid("source.kind is 'board', which only main.py on a board offers")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Invalid(f"source.kind is {kind!r}, expected one of {', '.join(sorted(_KINDS))}")
    needed, optional = _KINDS[kind]
    source = dict(known_fields("source", config.source, ("kind", "seconds") + needed + optional, needed))
    if "path" in source:
        source["path"] = in_folder(config.folder, check_text("source.path", source["path"]))
    if "value" in source:
        check_integer("source.value", source["value"], 1 - (1 << 30), (1 << 30) - 1)
    if kind == "command":
        command = source["command"]
        if not isinstance(command, list) or not 1 <= len(command) <= 64:
            raise Invalid(f"source.command is {command!r}, expected a list of 1 to 64 words")
        for i, word in enumerate(command):
            check_text(f"source.command[{i}]", word, 1024)
        seconds = source.get("timeout_seconds", 10)
        source["timeout_seconds"] = check_integer("source.timeout_seconds", seconds, 1, 3600)
    return source


def parse_sample(text: "str | bytes") -> int:
    """The integer in a line. Raises ValueError for anything else, also for more than 64 characters."""
    if len(text) > _LONGEST_LINE:
        raise ValueError(f"a sample has {len(text)} characters")
    return int(text)


class Lines:
    """Samples that arrive by themselves, one integer a line, over a descriptor that is never waited for."""

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""
        self.bad = 0

    def arrived(self) -> list[int]:
        """The samples since the last call; lines that are not integers are counted in ``bad``."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[: _LONGEST_LINE + 1]
        samples = []
        for line in lines:
            try:
                samples.append(parse_sample(line))
            except ValueError:
                self.bad += 1
        return samples


def open_lines(config: Config) -> Lines | None:
    """The source's lines if it is ``stdin`` or ``fifo``. Raises Invalid, also if the FIFO cannot be opened."""
    source = parse_source(config)
    if source["kind"] not in ("stdin", "fifo"):
        return None
    if source["kind"] == "stdin":
        return Lines(sys.stdin.fileno())
    try:
        # Open for writing too: the FIFO then never ends when its writer goes away.
        return Lines(os.open(source["path"], os.O_RDWR))
    except OSError as error:
        raise Invalid(f"source.path: {error}") from None


def make_read(config: Config) -> Callable[[int], int | None] | None:
    """The function that the client calls for each sample; None where samples arrive by themselves. Raises Invalid."""
    source = parse_source(config)
    kind = source["kind"]
    if kind == "constant":
        return lambda now: int(source["value"])
    if kind == "file":
        return lambda now: _read_file(source["path"])
    if kind == "command":
        return lambda now: _run_command(source["command"], source["timeout_seconds"])
    if kind == "list":
        return _list_reader(source["path"])
    return None


def _read_file(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return parse_sample(file.read(_LONGEST_LINE + 1).strip())


def _run_command(command: list[str], seconds: int) -> int:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=seconds, check=True)
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from None
    return parse_sample(done.stdout.strip())


def _list_reader(path: str) -> Callable[[int], int | None]:
    try:
        with open(path, encoding="ascii") as file:
            samples = [parse_sample(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        raise Invalid(f"source.path: {error}") from None
    if not samples:
        raise Invalid(f"source.path is {path!r}, expected one integer a line")
    rest = iter(samples)
    return lambda now: next(rest, None)
