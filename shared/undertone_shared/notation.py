"""Mechanisms as JSON values: the one place that reads and writes them.

``{"kind": "window", "a", "b", "window", "stride", "levels"}``
``{"kind": "square-wave", "a", "b", "window", "edges": [...]}`` (stride 1, one level per bin)
``{"kind": "hybrid", "coin", "rounding": [a, b], "piecewise": [a, b, window, stride, levels]}``
``{"kind": "table", "bits", "shift", "values": [...], "rows": base64}``
"""

import binascii

from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism, check_integer
from undertone_shared.table import TableMechanism

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Mechanism = WindowMechanism | Hybrid | TableMechanism

LARGEST_EDGES = 257
LARGEST_ROWS = 6600
_LARGE = (1 << 30) - 1

_FIELDS = {
    "window": ("a", "b", "window", "stride", "levels"),
    "square-wave": ("a", "b", "window", "edges"),
    "hybrid": ("coin", "rounding", "piecewise"),
    "table": ("bits", "shift", "values", "rows"),
}


def check_object(name: str, value: object, fields: tuple[str, ...]) -> "dict[str, Any]":
    """Return ``value`` if it is an object with exactly these fields. Raises Invalid naming the field otherwise."""
    if not isinstance(value, dict):
        raise Invalid("%s is %r, expected an object" % (name, value))
    for field in fields:
        if field not in value:
            raise Invalid("%s has no field %r" % (name, field))
    for field in value:
        if field not in fields:
            raise Invalid("%s has an unknown field %r" % (name, field))
    return value


def integers(name: str, value: object, least: int, most: int) -> tuple[int, ...]:
    """``value`` as a tuple if it is a list of ``least`` to ``most`` integers of 30 bits. Raises Invalid."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise Invalid("%s is not a list of %d to %d integers" % (name, least, most))
    for i in range(len(value)):
        try:
            check_integer(name, value[i], -_LARGE, _LARGE)
        except Invalid:
            # The element's name only for its error: on a board, 257 of them are 12 KB of garbage.
            check_integer("%s[%d]" % (name, i), value[i], -_LARGE, _LARGE)
    return tuple(value)


def parse_mechanism(name: str, value: object) -> "Mechanism":
    """The mechanism that a JSON value describes. Raises Invalid, the field named below ``name``."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise Invalid("%s has kind %r, expected one of window, square-wave, hybrid, table" % (name, kind))
    fields = check_object(name, value, ("kind",) + _FIELDS[kind])
    if kind == "window":
        return WindowMechanism(fields["a"], fields["b"], fields["window"], fields["stride"], fields["levels"])
    if kind == "square-wave":
        edges = integers(name + ".edges", fields["edges"], 3, LARGEST_EDGES)
        return WindowMechanism(fields["a"], fields["b"], fields["window"], 1, len(edges) - 2, edges)
    if kind == "hybrid":
        a, b = integers(name + ".rounding", fields["rounding"], 2, 2)
        rounding = WindowMechanism(a, b, 1, 1, 1)
        a, b, window, stride, levels = integers(name + ".piecewise", fields["piecewise"], 5, 5)
        return Hybrid(fields["coin"], rounding, WindowMechanism(a, b, window, stride, levels, None, rounding.symbols))
    rows = fields["rows"]
    if not isinstance(rows, str) or not 4 <= len(rows) <= LARGEST_ROWS or len(rows) % 4:
        raise Invalid("%s.rows is not base64 text of at most %d characters" % (name, LARGEST_ROWS))
    encoded = rows.encode()
    try:
        packed = binascii.a2b_base64(encoded)
    except Exception:  # ValueError, but a plain Exception where binascii is written in Python
        packed = b""
    if binascii.b2a_base64(packed).strip() != encoded:
        raise Invalid("%s.rows is not plain base64" % name)
    values = integers(name + ".values", fields["values"], 2, LARGEST_EDGES)
    return TableMechanism(fields["bits"], packed, values, fields["shift"])


def describe_mechanism(mechanism: "Mechanism") -> "dict[str, Any]":
    """The JSON value that ``parse_mechanism`` reads back as the same mechanism."""
    if isinstance(mechanism, Hybrid):
        r = mechanism.rounding
        p = mechanism.piecewise
        return {
            "kind": "hybrid",
            "coin": mechanism.coin,
            "rounding": [r.a, r.b],
            "piecewise": [p.a, p.b, p.window, p.stride, p.levels],
        }
    if isinstance(mechanism, TableMechanism):
        return {
            "kind": "table",
            "bits": mechanism.bits,
            "shift": mechanism.shift,
            "values": list(mechanism.values),
            "rows": binascii.b2a_base64(mechanism.packed).strip().decode(),
        }
    if mechanism.edges is not None:
        return {
            "kind": "square-wave",
            "a": mechanism.a,
            "b": mechanism.b,
            "window": mechanism.window,
            "edges": list(mechanism.edges),
        }
    return {
        "kind": "window",
        "a": mechanism.a,
        "b": mechanism.b,
        "window": mechanism.window,
        "stride": mechanism.stride,
        "levels": mechanism.levels,
    }
