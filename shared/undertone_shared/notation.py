"""Mechanisms as JSON values: what they look like, and the reading of them; each describes itself.

``{"kind": "window", "a", "b", "window", "stride", "levels"}``
``{"kind": "square-wave", "a", "b", "window", "edges": [...]}`` (stride 1, one level per bin)
``{"kind": "hybrid", "coin", "rounding": [a, b], "piecewise": [a, b, window, stride, levels]}``
``{"kind": "table", "bits", "shift", "values": [...], "rows": [base64, ...]}`` (one per level, 3 bytes a weight)
"""

from undertone_shared.checks import check_object, integers
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import Hybrid, WindowMechanism

TYPE_CHECKING = False
if TYPE_CHECKING:
    from undertone_shared.table import TableMechanism

    Mechanism = WindowMechanism | Hybrid | TableMechanism

_LARGEST_EDGES = 257

_FIELDS = {
    "window": ("a", "b", "window", "stride", "levels"),
    "square-wave": ("a", "b", "window", "edges"),
    "hybrid": ("coin", "rounding", "piecewise"),
    "table": ("bits", "shift", "values", "rows"),
}


def parse_mechanism(name: str, value: object) -> "Mechanism":
    """The mechanism that a JSON value describes. Raises Invalid, the field named below ``name``."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise Invalid("%s has kind %r, expected one of window, square-wave, hybrid, table" % (name, kind))
    fields = check_object(name, value, ("kind",) + _FIELDS[kind])
    if kind == "window":
        return WindowMechanism(fields["a"], fields["b"], fields["window"], fields["stride"], fields["levels"])
    if kind == "square-wave":
        edges = integers(name + ".edges", fields["edges"], 3, _LARGEST_EDGES)
        return WindowMechanism(fields["a"], fields["b"], fields["window"], 1, len(edges) - 2, edges)
    if kind == "hybrid":
        a, b = integers(name + ".rounding", fields["rounding"], 2, 2)
        rounding = WindowMechanism(a, b, 1, 1, 1)
        a, b, window, stride, levels = integers(name + ".piecewise", fields["piecewise"], 5, 5)
        return Hybrid(fields["coin"], rounding, WindowMechanism(a, b, window, stride, levels, None, rounding.symbols))
    # A board without tables never loads their code.
    from undertone_shared.table import parse_table

    return parse_table(name, fields)
