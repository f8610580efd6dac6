"""Values as JSON can carry them."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any


def plain(value: Any) -> Any:
    """Return ``value`` as JSON can carry it.

    A number that is not finite becomes None, a fraction its text "p/q", bytes their hexadecimal digits; arrays and
    tuples become lists, numpy's scalars Python's numbers. Raises TypeError for anything else.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "tolist"):
        # Only arrays and scalars of numpy have a method ``tolist``. Looking for it avoids an import of numpy.
        return plain(value.tolist())
    raise TypeError(f"{type(value).__name__} is not JSON")
