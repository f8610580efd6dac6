"""The sizes that devices use, under every interpreter.

Both sides of each boundary between outcomes are tried, at the lowest, a middle and the top level.
"""

from proofs import check_boundaries, check_moments, check_rows, parts
from shipped import mechanisms


def test_every_boundary_of_every_shipped_size():
    for name, mechanism, _ in mechanisms():
        levels = {0, mechanism.levels // 2, mechanism.levels}
        try:
            for part in parts(mechanism):
                check_boundaries(part, {level for level in levels if level <= part.levels})
            check_rows(mechanism, levels)
            check_moments(mechanism, 2, {0})
        except AssertionError as error:
            raise AssertionError("%s: %s" % (name, error))
