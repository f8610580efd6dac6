"""What every source is, and how its fields are checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from undertone_device.sensors.modbus import FORMS
from undertone_device.setup.config import check_text, in_folder, known_fields
from undertone_device.setup.settings import DeviceConfig
from undertone_shared.checks import check_integer, integers
from undertone_shared.errors import Invalid

LONGEST_LINE = 64
_LARGEST = (1 << 30) - 1

Fields = dict[str, Any]


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
        self._bounds = bounds or (-_LARGEST, _LARGEST)
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
    """One kind of source: the fields it needs, those it may have, and what opens it from checked ``Fields``.

    ``range`` any may have.
    """

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    open: Callable[[Fields], SensorSource]


def parse_fields(config: DeviceConfig, kind: Kind) -> Fields:
    """The fields of ``config.source``, each in its form, paths in the configuration's folder. Raises Invalid."""
    others = {name: value for name, value in config.source.items() if name not in ("kind", "seconds")}
    return parse_object("source", others, config.folder, kind.needed, kind.optional + ("range",))


def parse_object(name: str, value: Any, folder: str, needed: tuple[str, ...], optional: tuple[str, ...]) -> Fields:
    """An object's fields, each in its form, paths in ``folder``. Raises Invalid, the field named."""
    fields = known_fields(name, value, needed + optional, needed)
    checked: Fields = {}
    for field in fields:
        check = check_text if field in _TEXTS else _CHECKS[field]
        checked[field] = check(f"{name}.{field}", fields[field])
        if field in _PATHS:
            checked[field] = in_folder(folder, checked[field])
    return checked


def parse_sample(text: str | bytes) -> int:
    """The integer in a line. Raises ValueError for anything else, also for more than 64 characters."""
    if len(text) > LONGEST_LINE:
        raise ValueError(f"a sample has {len(text)} characters")
    try:
        return int(text)
    except ValueError:
        raise ValueError("a sample is no integer") from None


def _integer(low: int, high: int) -> Callable[[str, Any], int]:
    return lambda name, value: check_integer(name, value, low, high)


def _choice(*words: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in words:
            raise Invalid(f"{name} is {value!r}, expected one of {', '.join(words)}")
        return str(value)

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{name} is {value!r}, expected true or false")
    return value


def _command(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not 1 <= len(value) <= 64:
        raise Invalid(f"{name} is {value!r}, expected a list of 1 to 64 words")
    return [check_text(f"{name}[{i}]", word, 1024) for i, word in enumerate(value)]


def _codes(name: str, value: Any) -> tuple[str, ...]:
    """One register's name, or a list of those that are added."""
    codes = [value] if isinstance(value, str) else value
    if not isinstance(codes, list) or not 1 <= len(codes) <= 8:
        raise Invalid(f"{name} is {value!r}, expected a register such as 1-0:1.8.0, or a list of 1 to 8")
    return tuple(check_text(f"{name}[{i}]", code, 32) for i, code in enumerate(codes))


def _scale(name: str, value: Any) -> tuple[int, int]:
    """Campaign units per unit of the meter, as a fraction: [1000, 1] for kWh in Wh."""
    top, bottom = integers(name, value, 2, 2)
    return check_integer(f"{name}[0]", top, 1, _LARGEST), check_integer(f"{name}[1]", bottom, 1, _LARGEST)


def _range(name: str, value: Any) -> tuple[int, int]:
    low, high = integers(name, value, 2, 2)
    if not -_LARGEST <= low <= high <= _LARGEST:
        raise Invalid(f"{name} is {value!r}, expected the lowest and the highest sample that can be")
    return low, high


_PATHS = ("path", "password_file", "token_file", "ca")
_TEXTS = ("port", "host", "topic", "field", "user", "entity", "url", "prefix") + _PATHS
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "value": _integer(-_LARGEST, _LARGEST),
    "command": _command,
    "timeout_seconds": _integer(1, 3600),
    "obis": _codes,
    "unit": lambda name, value: check_text(name, value, 8),
    "scale": _scale,
    "range": _range,
    "twice": _flag,
    "baud": _integer(50, 4000000),
    "tcp_port": _integer(1, 65535),
    "slave": _integer(0, 255),
    "function": _integer(3, 4),
    "address": _integer(0, 65535),
    "registers": _integer(1, 4),
    "form": _choice(*FORMS),
    "swap": _flag,
}
