"""ToPL's own rule for the tail of an estimated density, called `sw-w` (CCS 2021, white box)."""

import numpy as np

from undertone_aggregator.threshold.channel import Vector

NEGLIGIBLE = 1e-4
RUN = 5


def white_box(density: Vector) -> Vector:
    """Remove everything from the density's [d] first run of empty bins on.

    Bins below 1e-4 are set to zero, and so is everything from the first run of at least five zero bins on. The removed
    mass is added in equal parts to the remaining bins. Raises ValueError when no bin remains.
    """
    reduced = np.where(density < NEGLIGIBLE, 0.0, density)
    run = 0
    for index, value in enumerate(reduced):
        run = run + 1 if value == 0.0 else 0
        if run == RUN and np.any(reduced[: index - RUN + 1] > 0):
            reduced[index - RUN + 1 :] = 0.0
            break
    alive = reduced > 0
    if not alive.any():
        raise ValueError("no bin holds more than 1e-4: the density is too flat for the white-box rule")
    reduced[alive] += (1.0 - reduced.sum()) / alive.sum()
    return reduced
