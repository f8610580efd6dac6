"""One small mechanism of every kind in the project, with a theta to try it with: (name, mechanism, theta)."""

from undertone_shared.mechanism import Hybrid, WindowMechanism
from undertone_shared.table import TableMechanism

ROWS = ((96, 64, 48, 32, 16), (56, 72, 64, 40, 24), (24, 40, 64, 72, 56), (16, 32, 48, 64, 96))


def small_table(shift):
    """A table of four rows and five symbols.

    Symbol j decodes to (8j - 10) / 2^shift, and the rows have the means 0, 3, 9 and 12, divided by 2^shift.
    """
    rows = [b"".join(bytes((0, 0, weight)) for weight in row) for row in ROWS]
    return TableMechanism(8, rows, (0, 3, 9, 12), shift, ((-10, -2, 6, 14, 22), 1 << shift))


SMALL = (
    ("stochastic rounding", WindowMechanism(3, 1, 1, 1, 1), 11),
    ("piecewise", WindowMechanism(7, 3, 5, 2, 8), 13),
    ("piecewise, one level", WindowMechanism(5, 2, 4, 9, 1), 7),
    ("piecewise, one wide stride", WindowMechanism(40, 9, 2, 5, 16), 100),
    ("piecewise, numbered from 2", WindowMechanism(41, 15, 39, 4, 16, None, 2), 30),
    ("square wave", WindowMechanism(19, 7, 5, 1, 6, (0, 2, 3, 7, 20, 21, 40, 50)), 0),
    ("k-ary randomised response", WindowMechanism(20, 1, 1, 1, 7, (-4, -1, 0, 3, 4, 5, 6, 9, 30)), 0),
    ("hybrid", Hybrid(25786, WindowMechanism(8, 3, 1, 1, 1), WindowMechanism(8, 3, 6, 2, 4, None, 2)), 10),
    ("hybrid, coin 0", Hybrid(0, WindowMechanism(3, 2, 1, 1, 1), WindowMechanism(3, 2, 3, 1, 3, None, 2)), 9),
    ("table", small_table(0), 12),
    ("table with finer levels", small_table(1), 6),
)
