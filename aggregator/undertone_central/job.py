"""A release that survives interruption: noise is never drawn twice for a value whose release may have been seen.

Every step draws noise, then writes a checkpoint (the state, and the text to output) to the disk, and then outputs the
text. After a restart the job outputs the checkpoint's text again, byte for byte, and continues from its state. The
checkpoint contains raw sums and noise, so only its owner may read it. It is removed when the stream has ended.
"""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from undertone_aggregator.base.files import write_private
from undertone_central.document import heading, piece_line, rows
from undertone_central.mechanisms.continual import Continual
from undertone_central.noise.laplace import Integers
from undertone_shared.errors import Invalid

VERSION = 1


class Sink(Protocol):
    """The destination of released text."""

    def append(self, text: str, at: int) -> None:
        """Output ``text``, which belongs after the first ``at`` bytes of the release.

        After a restart, a part of ``text``, or all of it, may have been output already.
        """
        ...


@dataclass
class Progress:
    """How far a release has come.

    ``consumed``: number of values read; ``checksum``: that of these values. ``first``: position of the piece's first
    value. ``phase``: the mechanism's phase of the piece. ``blocks``: number of blocks of items released. ``output``:
    bytes output.
    """

    consumed: int = 0
    checksum: int = 0
    first: int = 0
    phase: int = -1
    blocks: int = 0
    output: int = 0


class ReleaseJob:
    """Feeds values to a mechanism and its releases to a sink, with a checkpoint file (None: the job cannot be resumed).

    ``settings``: the user's options, which must be the same when the job is resumed. Raises Invalid for the checkpoint
    of another release, and for a file that is no checkpoint.
    """

    def __init__(self, mechanism: Continual, sink: Sink, checkpoint: Path | None, settings: dict[str, Any]) -> None:
        self._mechanism = mechanism
        self._sink = sink
        self._checkpoint = checkpoint
        self._settings = json.loads(json.dumps(settings))
        self.progress = Progress()
        # State that the source of the values saves with the checkpoint and reads again after a restart.
        self.notes: dict[str, Any] = {}
        self.resumed = checkpoint is not None and checkpoint.exists() and self._resume(checkpoint)
        if not self.resumed:
            self._commit(heading(mechanism))

    @property
    def bound(self) -> int:
        """The public upper bound of a value."""
        return self._mechanism.bound

    def step(self, values: Integers, notes: dict[str, Any] | None = None) -> int:
        """Pass values to the mechanism, write the checkpoint, and output what is released; return how many numbers."""
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

    def close(self, ending: str) -> int:
        """End the stream: output what the mechanism still releases, and delete the checkpoint.

        Return the number of numbers that the mechanism released at the end.
        """
        numbers = self._mechanism.close(ending)
        self._commit("".join(self._rows(numbers, self.progress.consumed)))
        if self._checkpoint is not None:
            self._checkpoint.unlink()
        return len(numbers)

    def _part(self, values: Integers, lines: list[str]) -> int:
        """Pass values that all belong to one phase to the mechanism; return the number of released numbers."""
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
            write_private(self._checkpoint, json.dumps(state))
        self._sink.append(text, at)
        self.progress.output = at + len(text.encode())

    def _resume(self, checkpoint: Path) -> bool:
        """Restore the checkpoint. Return False if no value had been read, so that every option may still change."""
        try:
            saved = json.loads(checkpoint.read_text(encoding="utf-8"))
            progress = Progress(**saved["progress"])
            if progress.consumed == 0:
                return False
            if saved["version"] != VERSION or saved["settings"] != self._settings:
                raise Invalid(
                    f"{checkpoint} belongs to a release with other settings, or of another version of Undertone: "
                    "give those settings, or name another file"
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
    """A file to which text is appended. On a restart it is cut back to the committed length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("r+b" if path.exists() else "w+b")

    def append(self, text: str, at: int) -> None:
        """Write ``text`` after the first ``at`` bytes, durably."""
        self._file.seek(at)
        self._file.truncate()
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def checksum(values: Integers, before: int = 0) -> int:
    """Return the CRC-32 of a stream of values, continued from the checksum ``before``."""
    return zlib.crc32(values.astype("<i8").tobytes(), before)
