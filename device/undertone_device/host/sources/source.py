"""The base of every source, and the description of a kind of source."""

from collections.abc import Callable
from dataclasses import dataclass, field

from undertone_device.host.sources.fields import Checks, Fields
from undertone_shared.errors import Invalid

LONGEST_LINE = 64
LARGEST = (1 << 30) - 1


class SensorSource:
    """Samples of one sensor. Either ``polled``: ``read`` gives one when asked; or they arrive: ``arrived`` gives them.

    ``trouble`` is a sentence while there is none to be had; the slot then reports the campaign's public default.
    """

    polled = True
    # Whether a sample may be long in coming; `background` then asks for it in a thread.
    slow = False
    trouble = ""

    def read(self, now: int) -> int | None:
        """One sample, None after the last. Raises OSError or ValueError, whose words become ``trouble``."""
        try:
            sample = self.sample(now)
        except (OSError, ValueError) as error:
            self.trouble = f"no sample: {error}"
            raise
        self.trouble = ""
        return sample

    def sample(self, now: int) -> int | None:
        """What ``read`` gives; a polled source has this. Raises OSError or ValueError."""
        raise NotImplementedError

    def arrived(self) -> list[int]:
        """The samples that arrived since the last call, without waiting."""
        return []

    def close(self) -> None:
        """Release what is open."""


class Plausible(SensorSource):
    """Another source's samples that can be: of ``bounds``, both ends included; if ``twice``, read so twice in a row.

    Where no checksum is, a digit that was damaged on its way is another number: this is as far as it can be seen.
    Whatever a library raises is a sample that cannot be had: one sensor's never ends what serves others. What is said
    of it stands in status and log, and so quotes no reading.
    """

    def __init__(self, source: SensorSource, bounds: tuple[int, int] | None = None, twice: bool = False):
        self.polled = source.polled
        self.slow = source.slow
        self._source = source
        self._bounds = bounds or (-LARGEST, LARGEST)
        self._twice = twice
        self._refused = ""

    def sample(self, now: int) -> int | None:
        """What ``read`` gives. Raises OSError or ValueError, for an implausible one too."""
        sample = self._sample(now)
        if self._twice and self._sample(now) != sample:
            raise ValueError("two reads in a row differ")
        if sample is not None and (why := self._implausible(sample)):
            raise ValueError(why)
        return sample

    def arrived(self) -> list[int]:
        """The plausible ones."""
        plausible: list[int] = []
        if self.polled:
            # What the last read said of it stands until the next one.
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
        """Release what is open."""
        self._source.close()

    def _sample(self, now: int) -> int | None:
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
    # Not what a library says: it may quote what it has read.
    return f"the source failed with {type(error).__name__}"


@dataclass(frozen=True)
class Kind:
    """One kind of source: what opens it from its checked fields, the fields that it needs, and those that it may have.

    Any kind may have ``range``.
    """

    open: Callable[[Fields], SensorSource]
    needed: Checks = field(default_factory=dict)
    optional: Checks = field(default_factory=dict)


def parse_sample(text: str | bytes) -> int:
    """The integer in a line. Raises ValueError for anything else, also for more than 64 characters."""
    if len(text) > LONGEST_LINE:
        raise ValueError(f"a sample has {len(text)} characters")
    try:
        return int(text)
    except ValueError:
        raise ValueError("a sample is no integer") from None
