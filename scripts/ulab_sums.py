"""Find the length from which ulab's exact sum of a buffer is faster than the loop.

    MICROPYPATH=shared:device micropython-ulab scripts/ulab_sums.py

The program prints microseconds per call for a list, an array and a ulab array of several lengths. Only the ratios of
these times say something about a board.
"""

import time
from array import array

from ulab import numpy

from undertone_device.core.buffers import summary

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
ROUNDS = 7


def microseconds(samples):
    """Return the least time of one call, over several rounds."""
    calls = max(1, 20000 // (len(samples) + 20))
    least = None
    for _ in range(ROUNDS):
        begun = time.ticks_us()
        for _ in range(calls):
            summary(samples)
        passed = time.ticks_diff(time.ticks_us(), begun) / calls
        least = passed if least is None else min(least, passed)
    return least


print("samples  list us  array us  ulab us       list/ulab")
for length in LENGTHS:
    values = [7 * n % 30000 for n in range(length)]
    times = [microseconds(samples) for samples in (values, array("i", values), numpy.array(values, dtype=numpy.uint16))]
    print(f"{length:7d} {times[0]:8.1f} {times[1]:9.1f} {times[2]:8.1f} {times[0] / times[2]:15.2f}")
