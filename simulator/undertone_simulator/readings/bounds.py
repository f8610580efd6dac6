"""The public bound for readings, which is chosen here if none is stated."""

import numpy as np

from undertone_shared.errors import Invalid
from undertone_simulator.readings import populations
from undertone_simulator.readings.options import LARGEST_BOUND, check_bound
from undertone_simulator.readings.readings import Readings

# If at least this share of the readings is above the stated bound, the bound is probably in another unit.
_MOST = 0.5


def public_bound(readings: Readings, stated: int | None) -> tuple[int, str]:
    """Return (bound B, warning or ''): B is ``stated``, or else a value that fits the readings.

    The warning says that B was taken from the readings, or that at least half of them are above a stated B. Raises
    Invalid for a stated bound out of range, and without one for readings that are negative or too large.
    """
    values = readings.values[readings.present]
    if stated is not None:
        share = float(np.mean(values > check_bound(stated)))
        if share < _MOST:
            return stated, ""
        what = "every reading is" if share == 1 else f"{share:.0%} of the readings are"
        unit = f", {readings.unit}" if readings.unit else ""
        return stated, f"warning: {what} above the bound {stated}: is the bound in the unit of the readings{unit}?"
    if values.min() < 0:
        raise Invalid(f"the smallest reading is {values.min()}, expected 0 or more without --bound")
    largest = int(values.max())
    if readings.unit == "Wh" and largest <= populations.BOUND:
        return populations.BOUND, ""
    bound = max(2, 1 << largest.bit_length())
    if bound > LARGEST_BOUND:
        raise Invalid(f"the largest reading is {largest}, expected less than 2^21: choose a coarser unit")
    note = f"bound B = {bound} was taken from the data; a real campaign needs a public bound: give it with --bound"
    return bound, note
