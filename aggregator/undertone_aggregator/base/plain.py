"""Values as JSON can carry them."""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

# Significant digits that are the same on every processor.
STEADY = 8


def plain(value: Any, digits: int | None = None) -> Any:
    """Return ``value`` as JSON can carry it.

    A number that is not finite becomes None, a fraction its text, such as "1/3", bytes their hexadecimal digits. Arrays
    and tuples become lists, and numpy's scalars Python's numbers. Raises TypeError for anything else.

    ``digits``: floats are rounded to this number of significant digits; None: they are not rounded. The last digits of
    a sum depend on the processor, so results that somebody wants to compare are rounded.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, digits) for item in value]
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "tolist"):
        # Only arrays and scalars of numpy have a method ``tolist``. Looking for it avoids an import of numpy.
        return plain(value.tolist(), digits)
    raise TypeError(f"{type(value).__name__} is not JSON")
