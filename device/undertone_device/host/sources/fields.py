"""Checks of a source's fields: each kind of source names the check of each of its fields.

A check takes the field's name, its value, and the folder for relative paths. It returns the value in the form that the
source needs, or raises Invalid with the field's name.
"""

from collections.abc import Callable
from typing import Any

from undertone_device.setup.config import check_text, in_folder
from undertone_shared.checks import check_integer, check_object, integers
from undertone_shared.errors import Invalid

Check = Callable[[str, Any, str], Any]
# Types of two tables: the checks by field name, and the checked values by field name.
Checks = dict[str, Check]
Fields = dict[str, Any]
_LARGEST = (1 << 30) - 1


def parse_object(name: str, value: Any, folder: str, needed: Checks, optional: Checks) -> Fields:
    """Return an object's fields, each as its check returns it.

    Raises Invalid for an unknown, a missing or a wrong field.
    """
    checks = needed | optional
    fields = check_object(name, value, needed, optional)
    return {field: checks[field](f"{name}.{field}", fields[field], folder) for field in fields}


def text(most: int = 255) -> Check:
    """Return a check that the field is text of 1 to ``most`` characters."""
    return lambda name, value, folder: check_text(name, value, most)


def path(name: str, value: Any, folder: str) -> str:
    """Check that the field is a file's path; a relative path starts in the folder of device.json."""
    return in_folder(folder, check_text(name, value))


def integer(low: int, high: int) -> Check:
    """Return a check that the field is an integer from ``low`` to ``high``."""
    return lambda name, value, folder: check_integer(name, value, low, high)


port = integer(1, 65535)


def choice(*words: str) -> Check:
    """Return a check that a field is one of ``words``."""

    def check(name: str, value: Any, folder: str) -> str:
        if value not in words:
            raise Invalid(f"{name} is {value!r}, expected one of {', '.join(words)}")
        return str(value)

    return check


def flag(name: str, value: Any, folder: str) -> bool:
    """Check that a field is true or false."""
    if not isinstance(value, bool):
        raise Invalid(f"{name} is {value!r}, expected true or false")
    return value


def command(name: str, value: Any, folder: str) -> list[str]:
    """Check that the field is a list of words: a program and its arguments."""
    if not isinstance(value, list) or not 1 <= len(value) <= 64:
        raise Invalid(f"{name} is {value!r}, expected a list of 1 to 64 words")
    return [check_text(f"{name}[{i}]", word, 1024) for i, word in enumerate(value)]


def registers(name: str, value: Any, folder: str) -> tuple[str, ...]:
    """Check that the field is a text, the OBIS code of one register, or a list of 1 to 8 whose registers are added.

    The form of a code is not checked.
    """
    codes = [value] if isinstance(value, str) else value
    if not isinstance(codes, list) or not 1 <= len(codes) <= 8:
        raise Invalid(f"{name} is {value!r}, expected a register such as 1-0:1.8.0, or a list of 1 to 8")
    return tuple(check_text(f"{name}[{i}]", code, 32) for i, code in enumerate(codes))


def scale(name: str, value: Any, folder: str) -> tuple[int, int]:
    """Check that the field is the campaign's units per unit of the meter, as a fraction: [1000, 1] for kWh in Wh."""
    top, bottom = integers(name, value, 2, 2)
    return check_integer(f"{name}[0]", top, 1, _LARGEST), check_integer(f"{name}[1]", bottom, 1, _LARGEST)


def interval(name: str, value: Any, folder: str) -> tuple[int, int]:
    """Check that the field is a list of two: the lowest and the highest possible sample."""
    low, high = integers(name, value, 2, 2)
    if not -_LARGEST <= low <= high <= _LARGEST:
        raise Invalid(f"{name} is {value!r}, expected the list [lowest, highest] of samples")
    return low, high
