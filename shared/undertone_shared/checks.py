"""Checks of single values; each raises Invalid for a wrong value, with a sentence that names the field."""

from undertone_shared.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Any

# Small integers of a 32-bit MicroPython are below 2^30. The draw of a scalar report computes with small integers only.
SMALL = 1 << 30


def check_integer(name: str, value: int, low: int, high: int) -> int:
    """Return ``value`` if it is an int in [low, high]. Raises Invalid naming the field otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low or value > high:
        raise Invalid("%s is %r, expected an integer from %d to %d" % (name, value, low, high))
    return value


def check_sample(sample: object) -> int:
    """Return the sample. Raises Invalid unless it is an integer of 30 bits and sign."""
    if not isinstance(sample, int) or not -SMALL < sample < SMALL:
        # The sample itself is a reading, which must not be in a sentence that may reach a log.
        raise Invalid("a sample is out of range or no integer, expected an integer from -(2^30-1) to 2^30-1")
    return sample


def check_text(name: str, value: object, most: int) -> str:
    """Return ``value`` if it is text of at most ``most`` characters, all of them visible or spaces.

    Raises Invalid naming the field otherwise. Control characters and direction marks are refused, because with them one
    text can look like another.
    """
    if not isinstance(value, str) or len(value) > most:
        raise Invalid("%s is %r, expected text of at most %d characters" % (name, value, most))
    for character in value:
        code = ord(character)
        # Characters that are invisible or reorder others, such as controls, soft hyphen and marks of direction.
        # Comparisons are used because a board has no memory for a table of them.
        if (
            code < 0x20
            or 0x7F <= code <= 0x9F
            or code in (0xAD, 0x61C, 0xFEFF)
            or 0x200B <= code <= 0x200F
            or 0x2028 <= code <= 0x202E
            or 0x2060 <= code <= 0x206F
            or 0xD800 <= code <= 0xDFFF
            or 0xFFF9 <= code <= 0xFFFB
            or 0xE0000 <= code <= 0xE007F
        ):
            raise Invalid("%s has the character U+%04X, expected visible text" % (name, code))
    return value


def check_cap(cap: tuple[int, int]) -> None:
    """Check that ``cap`` is a pair of integers p >= q >= 1, which stands for the rational p/q. Raises Invalid."""
    if not isinstance(cap, (tuple, list)) or len(cap) != 2:
        raise Invalid("cap is %r, expected a pair of integers [p, q]" % (cap,))
    check_integer("cap's denominator", cap[1], 1, 1 << 62)
    check_integer("cap's numerator", cap[0], cap[1], 1 << 62)


def check_object(
    name: str, value: object, needed: "Iterable[str]", optional: "Container[str]" = ()
) -> "dict[str, Any]":
    """Return ``value`` if it is an object with all ``needed`` fields, and no others but the ``optional`` ones.

    If ``optional`` is ``value`` itself, the object may have any fields. Raises Invalid naming the field otherwise.
    """
    if not isinstance(value, dict):
        raise Invalid("%s is %r, expected an object" % (name, value))
    for field in needed:
        if field not in value:
            raise Invalid("%s has no field %r" % (name, field))
    for field in value:
        if field not in needed and field not in optional:
            raise Invalid("%s has an unknown field %r" % (name, field))
    return value


def check_kind(name: str, value: object, kinds: "Iterable[str]") -> str:
    """Return the field ``kind`` of the object ``value`` if it is one of ``kinds``. Raises Invalid otherwise."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise Invalid("%s has kind %r, expected one of %s" % (name, kind, ", ".join(sorted(kinds))))
    return kind


def integers(name: str, value: object, low: int, high: int) -> tuple[int, ...]:
    """Return ``value`` as a tuple if it is a list of integers below 2^30 in magnitude, ``low`` to ``high`` of them.

    Raises Invalid naming the field otherwise.
    """
    if not isinstance(value, list) or not low <= len(value) <= high:
        raise Invalid("%s is not a list of %s integers" % (name, low if low == high else "%d to %d" % (low, high)))
    for i in range(len(value)):
        try:
            check_integer(name, value[i], 1 - SMALL, SMALL - 1)
        except Invalid:
            # The element's name is made only for an error message, because on a board 257 names are 12 KB of garbage.
            check_integer("%s[%d]" % (name, i), value[i], 1 - SMALL, SMALL - 1)
    return tuple(value)


def parse_json(name: str, data: "bytes | memoryview", most: int) -> "Any":
    """Return the JSON value in ``data``. Raises Invalid for more than ``most`` bytes, and for what is not JSON."""
    if len(data) > most:
        # A file is read only up to one byte above the limit, so the file itself may be longer than ``data``.
        raise Invalid("%s has %d bytes or more, expected at most %d" % (name, len(data), most))
    import json

    try:
        try:
            return json.loads(data)  # type: ignore[arg-type]
        except TypeError:  # CPython's parser accepts no memoryview.
            return json.loads(bytes(data))
    except (ValueError, RuntimeError):
        raise Invalid("%s is not JSON" % name)
