"""Exact count, sum, largest and last of a buffer of samples, also of ulab's arrays. Loaded only if a buffer is used."""

import array

from undertone_shared.checks import SMALL, check_sample
from undertone_shared.errors import Invalid

try:
    from ulab import numpy as _ulab
except ImportError:
    _ulab = None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Number of 16-bit samples that are added at a time: most boards add in single precision, which is exact below 2^24.
_PART = 128
_KINDS = (bytes, bytearray, memoryview, list, array.array)


def summary(samples: "Sequence[int]") -> "tuple[int, int, int, int]":
    """Return (count, sum, largest, last) of a buffer, exactly; zeros if it is empty. Raises Invalid.

    A buffer is bytes, a list or array of integers of 30 bits and sign, or a row of ulab of 8 or 16 bits each. The
    numbers are the same with ulab and without.
    """
    if _ulab is not None and isinstance(samples, _ulab.ndarray):
        return _of_ulab(samples)
    if not isinstance(samples, _KINDS):
        raise Invalid("a sample is of type %s, expected an integer, a tuple or a buffer" % type(samples).__name__)
    total = last = 0
    largest = -SMALL
    for sample in samples:
        last = check_sample(sample)
        total += last
        largest = max(largest, last)
    return len(samples), total, largest if len(samples) else 0, last


def _of_ulab(samples: "Any") -> "tuple[int, int, int, int]":
    # ulab's own ``sum`` is a mean times n, which rounds; ``dot`` adds, which is exact below 2^24.
    if samples.dtype not in (_ulab.int8, _ulab.uint8, _ulab.int16, _ulab.uint16) or len(samples.shape) != 1:
        raise Invalid(
            "samples are of dtype %r and shape %r, expected one row of int8, uint8, int16 or uint16"
            % (samples.dtype, samples.shape)
        )
    count = len(samples)
    if not count:
        return 0, 0, 0, 0
    # An array of booleans reports uint8 as its dtype, so its elements are checked.
    if isinstance(samples[0], bool):
        raise Invalid("samples are an array of truth values, expected a row of int8, uint8, int16 or uint16")
    total = 0
    ones = _ulab.ones(min(count, _PART))
    for start in range(0, count, _PART):
        part = samples[start : start + _PART]
        total += int(_ulab.dot(part, ones[: len(part)]))
    return count, total, int(_ulab.max(samples)), int(samples[count - 1])


def slot_value(measure: str, samples: "Sequence[int]") -> "int | None":
    """Return the value of a slot all of whose samples are in ``samples``; None if there are none.

    Raises Invalid like `summary`; also for a duration, which needs the time of each sample, and for a counter, which
    needs a reading of the slot before. A device that sleeps between slots has neither.
    """
    count, total, largest, last = summary(samples)
    if measure not in ("sum", "mean", "max", "last"):
        raise Invalid("a sample is a buffer, expected the slot's %s as an integer" % measure)
    if not count:
        return None
    if measure == "sum":
        return total
    if measure == "mean":
        return (2 * total + count) // (2 * count)
    return largest if measure == "max" else last
