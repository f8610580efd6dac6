"""The exact sum of a buffer of samples, including ulab's arrays; loaded only if a buffer is used."""

from undertone_shared.checks import SMALL, check_integer
from undertone_shared.errors import Invalid

try:
    from ulab import numpy as _ulab
except ImportError:
    _ulab = None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Number of 16-bit samples that are added at a time: most boards add in single precision, which is exact below 2^24.
_PART = 128


def total(samples: "Sequence[int]") -> int:
    """Return the exact sum of a buffer: integers of 30 bits, or a ulab array of 8 or 16 bits each. Raises Invalid.

    ulab's own ``sum`` is a mean times n, which rounds.
    """
    if _ulab is None or not isinstance(samples, _ulab.ndarray):
        result = 0
        for sample in samples:
            result += check_integer("a sample", sample, 1 - SMALL, SMALL - 1)
        return result
    if samples.dtype not in (_ulab.int8, _ulab.uint8, _ulab.int16, _ulab.uint16) or len(samples.shape) != 1:
        raise Invalid(
            "samples are an array of dtype %r, expected a row of int8, uint8, int16 or uint16" % samples.dtype
        )
    # An array of booleans reports uint8 as its dtype, so its elements are checked.
    if len(samples) and isinstance(samples[0], bool):
        raise Invalid("samples are an array of truth values, expected a row of int8, uint8, int16 or uint16")
    result = 0
    ones = _ulab.ones(min(len(samples), _PART))
    for start in range(0, len(samples), _PART):
        part = samples[start : start + _PART]
        result += int(_ulab.dot(part, ones[: len(part)]))
    return result
