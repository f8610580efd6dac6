"""Where a phone's or gateway's samples come from: integers in the campaign's unit. CPython only."""

import os
import subprocess
import sys
from collections.abc import Callable

from undertone_device.config import Config
from undertone_shared.errors import Invalid

_LONGEST_LINE = 64


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
    """The source's lines if it is ``stdin`` or ``fifo``. Raises Invalid if the FIFO cannot be opened."""
    source = config.source
    if source is None or source["kind"] not in ("stdin", "fifo"):
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
    source = config.source
    if source is None:
        raise Invalid("the configuration has no field 'source', expected where samples come from")
    kind = source["kind"]
    if kind == "constant":
        return lambda now: int(source["value"])
    if kind == "file":
        return lambda now: _read_file(source["path"])
    if kind == "command":
        return lambda now: _run_command(source["command"], source["timeout_seconds"])
    if kind == "list":
        return _list_reader(source["path"])
    if kind == "board":
        raise Invalid("source.kind is 'board', which only main.py on a board offers")
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
