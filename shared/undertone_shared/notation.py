"""JSON form of mechanisms, and its parser. A mechanism's ``describe`` returns its JSON form.

``{"kind": "window", "a", "b", "window", "stride", "levels"}``
``{"kind": "square-wave", "a", "b", "window", "edges": [...]}`` (stride 1, one level per bin)
``{"kind": "hybrid", "coin", "rounding": [a, b], "piecewise": [a, b, window, stride, levels]}``
``{"kind": "table", "bits", "shift", "values": [...], "rows": [base64, ...]}`` (a row per level, 3 bytes a weight)
"""

from undertone_shared.checks import check_kind, check_object, integers
from undertone_shared.mechanism import Hybrid, WindowMechanism

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from undertone_shared.off_board.contract import Mechanism as Mechanism

_LARGEST_EDGES = 257


def parse_mechanism(name: str, value: object) -> "Mechanism":
    """Return the mechanism that a JSON value describes. Raises Invalid, naming the field as part of ``name``."""
    names, make = KINDS[check_kind(name, value, KINDS)]
    return make(name, check_object(name, value, ("kind",) + names))


def _window(name: str, fields: "dict[str, Any]") -> "Mechanism":
    return WindowMechanism(fields["a"], fields["b"], fields["window"], fields["stride"], fields["levels"])


def _square_wave(name: str, fields: "dict[str, Any]") -> "Mechanism":
    edges = integers(name + ".edges", fields["edges"], 3, _LARGEST_EDGES)
    return WindowMechanism(fields["a"], fields["b"], fields["window"], 1, len(edges) - 2, edges)


def _hybrid(name: str, fields: "dict[str, Any]") -> "Mechanism":
    a, b = integers(name + ".rounding", fields["rounding"], 2, 2)
    rounding = WindowMechanism(a, b, 1, 1, 1)
    a, b, window, stride, levels = integers(name + ".piecewise", fields["piecewise"], 5, 5)
    return Hybrid(fields["coin"], rounding, WindowMechanism(a, b, window, stride, levels, None, rounding.symbols))


def _table(name: str, fields: "dict[str, Any]") -> "Mechanism":
    # The import is inside the function, so that a board without tables never loads the code of tables.
    from undertone_shared.table import parse_table

    return parse_table(name, fields)


# Kind -> the names of its other fields, and the function that makes the mechanism. The function gets the name that
# errors give to the JSON value, and the value's fields.
KINDS: "dict[str, tuple[tuple[str, ...], Callable[[str, dict[str, Any]], Mechanism]]]" = {
    "window": (("a", "b", "window", "stride", "levels"), _window),
    "square-wave": (("a", "b", "window", "edges"), _square_wave),
    "hybrid": (("coin", "rounding", "piecewise"), _hybrid),
    "table": (("bits", "shift", "values", "rows"), _table),
}
