"""A release that survives interruption: nothing is drawn twice for a value whose release may have been seen.

Every step draws, then writes a checkpoint (state, and the text that it will output) durably, then outputs the text. A
restart outputs the checkpoint's text again, byte for byte, and goes on from its state. The checkpoint holds raw sums
and noise: it is readable by its owner only, and removed when the stream has ended.
"""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from undertone_central.continual import Continual
from undertone_central.document import heading, piece_line, rows
from undertone_central.noise import Integers
from undertone_shared.errors import Invalid

VERSION = 1


class Sink(Protocol):
    """Where released text goes."""

    def append(self, text: str, at: int) -> None:
        """Output ``text``, which follows the ``at`` bytes before it; what is there already after them is the same."""
        ...


@dataclass
class Progress:
    """How far a release is: values read (and their checksum), pieces begun, bytes output."""

    consumed: int = 0
    checksum: int = 0
    first: int = 0
    phase: int = -1
    blocks: int = 0
    output: int = 0


class Job:
    """Feeds values to a mechanism and its releases to a sink, through a checkpoint file (None: no resuming).

    ``settings``: what the user asked for, compared when resuming. Raises Invalid for a checkpoint of another release.
    """

    def __init__(self, mechanism: Continual, sink: Sink, checkpoint: Path | None, settings: dict[str, Any]) -> None:
        self._mechanism = mechanism
        self._sink = sink
        self._checkpoint = checkpoint
        self._settings = json.loads(json.dumps(settings))
        self.progress = Progress()
        # What the feed wants to find again after a restart.
        self.notes: dict[str, Any] = {}
        self.resumed = checkpoint is not None and checkpoint.exists() and self._resume(checkpoint)
        if not self.resumed:
            self._commit(heading(mechanism))

    def step(self, values: Integers, notes: dict[str, Any] | None = None) -> int:
        """Release what these values release; returns how many numbers that were. Durable when it returns."""
        lines: list[str] = []
        self.progress.checksum = checksum(values, self.progress.checksum)
        count = 0
        while len(values):
            left = self._mechanism.phase_left
            part, values = (values, values[:0]) if left is None else (values[:left], values[left:])
            count += self._part(part, lines)
        self.notes = notes or {}
        self._commit("".join(lines))
        return count

    def close(self, ending: str) -> None:
        """The end of the stream: release what the mechanism still may, and forget the state."""
        numbers = self._mechanism.close(ending)
        self._commit("".join(self._rows(numbers, self.progress.consumed)))
        if self._checkpoint is not None:
            self._checkpoint.unlink()

    def _part(self, values: Integers, lines: list[str]) -> int:
        """Values of one phase."""
        mechanism, progress = self._mechanism, self.progress
        if not mechanism.withholding and progress.phase != mechanism.phase:
            progress.phase, progress.first = mechanism.phase, progress.consumed
            lines.append(piece_line(progress.first, mechanism.parameters))
        numbers = mechanism.extend(values)
        lines += self._rows(numbers, progress.consumed)
        progress.consumed += len(values)
        return len(numbers)

    def _rows(self, numbers: Integers, position: int) -> list[str]:
        parameters = self._mechanism.parameters
        if parameters["released"] == "items":
            released = rows(parameters, 0, self.progress.blocks, numbers)
            self.progress.blocks += len(numbers) // parameters["kept_items"]
            return released
        return rows(parameters, self.progress.first, position, numbers)

    def _commit(self, text: str) -> None:
        at = self.progress.output
        if self._checkpoint is not None:
            state = {
                "version": VERSION,
                "settings": self._settings,
                "progress": vars(self.progress),
                "notes": self.notes,
                "text": text,
                "state": self._mechanism.state(),
            }
            _write_private(self._checkpoint, json.dumps(state))
        self._sink.append(text, at)
        self.progress.output = at + len(text.encode())

    def _resume(self, checkpoint: Path) -> bool:
        """Go on where it ended; False if that was before the first value, when all may still be changed."""
        try:
            saved = json.loads(checkpoint.read_text(encoding="utf-8"))
            progress = Progress(**saved["progress"])
            if progress.consumed == 0:
                return False
            if saved["version"] != VERSION or saved["settings"] != self._settings:
                raise Invalid(
                    f"{checkpoint} belongs to a release with other settings: repeat them, or name another file"
                )
            self._mechanism.restore(saved["state"])
            self.progress, self.notes = progress, saved["notes"]
            text = str(saved["text"])
        except (ValueError, KeyError, TypeError) as wrong:
            if isinstance(wrong, Invalid):
                raise
            raise Invalid(f"{checkpoint} is not a checkpoint of a release") from None
        self._sink.append(text, self.progress.output)
        self.progress.output += len(text.encode())
        return True


class TextFile:
    """A file that grows, and is cut back to a committed length on restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("r+b" if path.exists() else "w+b")

    def append(self, text: str, at: int) -> None:
        """Output ``text`` after the first ``at`` bytes."""
        self._file.seek(at)
        self._file.truncate()
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _write_private(path: Path, text: str) -> None:
    """Replace the file in one step, durably, readable by its owner only."""
    new = path.with_name(path.name + ".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def checksum(values: Integers, before: int = 0) -> int:
    """CRC-32 of a stream of values, continued from what came ``before``."""
    return zlib.crc32(values.astype("<i8").tobytes(), before)
