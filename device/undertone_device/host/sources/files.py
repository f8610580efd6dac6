"""Samples from this machine: a file, a command, a list, standard input, a FIFO, a constant."""

import os
import subprocess

from undertone_device.host.sources import fields as check
from undertone_device.host.sources.fields import Checks, Fields
from undertone_device.host.sources.source import (
    LARGEST,
    LONGEST_BURST,
    LONGEST_LINE,
    Kind,
    Reading,
    SensorSource,
    parse_sample,
    parse_samples,
)
from undertone_shared.errors import Invalid

_TIMEOUT_SECONDS = 10
_STDIN = 0


class Constant(SensorSource):
    """A source that always returns the same value, for tests."""

    def __init__(self, fields: Fields):
        self._value = int(fields["value"])

    def sample(self, now: int) -> int:
        """Return the constant sample from the configuration."""
        return self._value


class File(SensorSource):
    """A source that reads the file anew for each sample: one integer, or several for a burst."""

    slow = True

    def __init__(self, fields: Fields):
        self._path = fields["path"]

    def sample(self, now: int) -> Reading:
        """Return the file's current content: one sample or a burst."""
        with open(self._path, encoding="ascii") as file:
            return parse_samples(file.read(LONGEST_BURST + 1))


class Command(SensorSource):
    """A source that runs a command and reads its output."""

    slow = True

    def __init__(self, fields: Fields):
        self._command = fields["command"]
        self._seconds = fields.get("timeout_seconds", _TIMEOUT_SECONDS)

    def sample(self, now: int) -> Reading:
        """Return the command's current output: one sample or a burst."""
        options = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, "timeout": self._seconds}
        try:
            done = subprocess.run(self._command, check=True, **options)
        except subprocess.TimeoutExpired:
            raise OSError(f"{self._command[0]} timed out after {self._seconds} s") from None
        except subprocess.CalledProcessError as error:
            # The arguments are not in the message, because they may contain a password.
            raise OSError(f"{self._command[0]} ended with code {error.returncode}") from None
        return parse_samples(done.stdout)


class Recording(SensorSource):
    """The lines of a file, one per sample; after the last line there are no samples."""

    def __init__(self, fields: Fields):
        path = fields["path"]
        try:
            with open(path, encoding="ascii") as file:
                samples = [parse_sample(line) for line in file if line.strip()]
        except (OSError, ValueError) as error:
            raise Invalid(f"source.path: {error}") from None
        if not samples:
            raise Invalid(f"source.path: {path} has no sample, expected one integer a line")
        self._rest = iter(samples)

    def sample(self, now: int) -> int | None:
        """Return the sample of the next line, None after the last line."""
        return next(self._rest, None)


class Lines(SensorSource):
    """Samples that arrive by themselves, one integer a line, on a non-blocking descriptor."""

    polled = False

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._rest = b""

    def arrived(self) -> list[int]:
        """Return the samples since the last call; ``trouble`` reports a line that is no integer."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return []
        except OSError as error:  # Reading fails after a terminal was hung up.
            self.trouble = f"no sample: {error}"
            return []
        if not data:
            self.trouble = "no sample: the input has ended"
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[: LONGEST_LINE + 1]
        samples = []
        for line in lines:
            try:
                samples.append(parse_sample(line))
                self.trouble = ""
            except ValueError:
                # The message appears in status and log, so it does not quote the line, which may be a reading with its
                # unit.
                self.trouble = f"no sample: a line is no integer of at most {LONGEST_LINE} characters"
        return samples

    def close(self) -> None:
        """Close the descriptor, unless it is standard input."""
        if self._descriptor != _STDIN:
            os.close(self._descriptor)


def _open_fifo(fields: Fields) -> Lines:
    try:
        # The FIFO is also opened for writing, so that it does not end when its writer closes it.
        return Lines(os.open(fields["path"], os.O_RDWR))
    except OSError as error:
        raise Invalid(f"source.path: {error}") from None


_PATH: Checks = {"path": check.path}

KINDS = {
    "constant": Kind(Constant, {"value": check.integer(-LARGEST, LARGEST)}),
    "file": Kind(File, _PATH, {"twice": check.flag}),
    "command": Kind(
        Command, {"command": check.command}, {"timeout_seconds": check.integer(1, 3600), "twice": check.flag}
    ),
    "list": Kind(Recording, _PATH),
    "stdin": Kind(lambda fields: Lines(_STDIN)),
    "fifo": Kind(_open_fifo, _PATH),
}
