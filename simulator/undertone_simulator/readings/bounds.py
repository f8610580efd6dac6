"""A public bound for readings without a stated one."""

from undertone_shared.errors import Invalid
from undertone_simulator.readings import populations
from undertone_simulator.readings.options import LARGEST_BOUND, check_bound
from undertone_simulator.readings.readings import Readings


def public_bound(readings: Readings, stated: int | None) -> tuple[int, str]:
    """Return the bound B, ``stated`` or else one that fits the readings, and a warning if it is not public knowledge.

    Raises Invalid for negative or too large readings.
    """
    if stated is not None:
        return check_bound(stated), ""
    values = readings.values[readings.present]
    if values.min() < 0:
        raise Invalid(f"the readings go down to {values.min()}; readings from 0 are expected")
    largest = int(values.max())
    if readings.unit == "Wh" and largest <= populations.BOUND:
        return populations.BOUND, ""
    bound = max(2, 1 << largest.bit_length())
    if bound > LARGEST_BOUND:
        raise Invalid(f"the largest reading is {largest}, expected less than 2^22: choose a coarser unit")
    note = f"bound B = {bound} was taken from the data; a real campaign states one that is public, as --bound does here"
    return bound, note
