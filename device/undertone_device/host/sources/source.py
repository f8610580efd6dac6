"""The base class of all sources, and the description of a kind of source."""

from collections.abc import Callable
from dataclasses import dataclass, field

from undertone_device.host.sources.fields import Checks, Fields
from undertone_shared.errors import Invalid

LONGEST_LINE = 64
LONGEST_BURST = 65536
LARGEST = (1 << 30) - 1

# A sample, or a burst of samples of the same moment.
Reading = int | list[int]


class SensorSource:
    """Samples of one sensor. If ``polled``, ``read`` returns a sample on request.

    Otherwise ``arrived`` returns the samples that have come since the last call.

    ``trouble`` is a sentence that says why there was no sample last, or empty. A slot without samples reports the
    campaign's public default.
    """

    polled = True
    # True if a sample may take long; `background` then reads it in a thread.
    slow = False
    trouble = ""

    def read(self, now: int) -> Reading | None:
        """Return one sample or a burst, None if there are no more.

        Raises OSError or ValueError; its text becomes ``trouble``.
        """
        try:
            sample = self.sample(now)
        except (OSError, ValueError) as error:
            self.trouble = f"no sample: {error}"
            raise
        self.trouble = ""
        return sample

    def sample(self, now: int) -> Reading | None:
        """Return one sample or a burst, None if there are no more. Raises OSError or ValueError.

        Every polled source implements this method, which ``read`` calls.
        """
        raise NotImplementedError

    def arrived(self) -> list[int]:
        """Return the samples that arrived since the last call, without waiting."""
        return []

    def close(self) -> None:
        """Release open resources."""


class Plausible(SensorSource):
    """Passes on plausible samples of another source: within ``bounds`` (inclusive).

    If ``twice``, two reads in a row must give the same sample.

    Without a checksum a damaged digit is just another number, and the bounds find only some such errors. Any
    exception of a library counts as a missing sample, so that one sensor's failure does not end other devices. The
    messages appear in status and log, so they quote no reading.
    """

    def __init__(self, source: SensorSource, bounds: tuple[int, int] | None = None, twice: bool = False):
        self.polled = source.polled
        self.slow = source.slow
        self._source = source
        self._bounds = bounds or (-LARGEST, LARGEST)
        self._twice = twice
        self._refused = ""

    def sample(self, now: int) -> Reading | None:
        """Return a plausible sample. Raises OSError or ValueError, also for an implausible one."""
        sample = self._sample(now)
        if self._twice and self._sample(now) != sample:
            raise ValueError("two reads in a row gave different values")
        for one in [] if sample is None else sample if isinstance(sample, list) else [sample]:
            if why := self._implausible(one):
                raise ValueError(why)
        return sample

    def arrived(self) -> list[int]:
        """Return the plausible samples."""
        plausible: list[int] = []
        if self.polled:
            # Only ``read`` gets samples of a polled source; ``trouble`` keeps the error of the last ``read``.
            return plausible
        try:
            samples = self._source.arrived()
        except Invalid:
            raise
        except Exception as error:
            self.trouble = f"no sample: {_words(error)}"
            return []
        for sample in samples:
            why = self._implausible(sample)
            self._refused = why and f"no sample: {why}"
            if not why:
                plausible.append(sample)
        self.trouble = self._source.trouble or self._refused
        return plausible

    def close(self) -> None:
        """Release open resources."""
        self._source.close()

    def _sample(self, now: int) -> Reading | None:
        try:
            return self._source.sample(now)
        except UnicodeError:
            raise ValueError("a sample is no text") from None
        except (OSError, ValueError):
            raise
        except Exception as error:
            raise OSError(_words(error)) from error

    def _implausible(self, sample: int) -> str:
        if self._bounds[0] <= sample <= self._bounds[1]:
            return ""
        return f"a sample is out of bounds, expected {self._bounds[0]} to {self._bounds[1]}"


def _words(error: Exception) -> str:
    # A library's text is not used, because it may quote what it has read.
    return f"the source failed with {type(error).__name__}"


@dataclass(frozen=True)
class Kind:
    """One kind of source: the function that opens it from its checked fields, and the checks of its fields.

    ``needed`` and ``optional`` have a check for each field. Any kind may have the field ``range``.
    """

    open: Callable[[Fields], SensorSource]
    needed: Checks = field(default_factory=dict)
    optional: Checks = field(default_factory=dict)


def parse_samples(text: str | bytes) -> int | list[int]:
    """Parse one integer, or a burst of them with spaces or line ends between. Raises ValueError."""
    if len(text) > LONGEST_BURST:
        raise ValueError(f"a burst of samples has more than {LONGEST_BURST} characters")
    words = text.split()
    return parse_sample(text.strip()) if len(words) < 2 else [parse_sample(word) for word in words]


def parse_sample(text: str | bytes) -> int:
    """Parse the integer in a line. Raises ValueError for anything else, also for more than 64 characters."""
    if len(text) > LONGEST_LINE:
        raise ValueError(f"a sample has {len(text)} characters, expected at most {LONGEST_LINE}")
    try:
        return int(text)
    except ValueError:
        raise ValueError("a sample is no integer") from None
