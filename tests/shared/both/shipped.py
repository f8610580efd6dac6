"""The integers of the sizes that devices use, as a board gets them.

test_shipped_mechanisms.py compares them with the designer's. Each row has epsilon, a and b of all mechanisms, the
Hybrid's coin, the window of its piecewise part, and the best window of a piecewise mechanism alone.
"""

from undertone_shared.mechanism import Hybrid, WindowMechanism

LEVELS = 256
STRIDE = 4
SHIPPED = (
    ("0.1", 1261, 1141, 0, 974, 999),
    ("0.5", 3093, 1876, 0, 797, 903),
    ("1", 2721, 1001, 25786, 621, 795),
    ("2", 2564, 347, 41426, 377, 606),
    ("4", 3931, 72, 56666, 139, 331),
    ("8", 2980, 1, 64335, 19, 89),
)


def mechanisms():
    """(name, mechanism, a theta whose product with the levels is nearly 2^30), for each size that devices use."""
    shipped = []
    theta = ((1 << 30) - 1) // LEVELS
    for epsilon, a, b, coin, window, best in SHIPPED:
        rounding = WindowMechanism(a, b, 1, 1, 1)
        shipped.append(("stochastic rounding %s" % epsilon, rounding, (1 << 30) - 1))
        shipped.append(("piecewise %s" % epsilon, WindowMechanism(a, b, window, STRIDE, LEVELS), theta))
        shipped.append(("piecewise, best window, %s" % epsilon, WindowMechanism(a, b, best, STRIDE, LEVELS), theta))
        piecewise = WindowMechanism(a, b, window, STRIDE, LEVELS, None, 2)
        shipped.append(("hybrid %s" % epsilon, Hybrid(coin, rounding, piecewise), theta))
    # This mechanism has the largest total that is allowed.
    shipped.append(("largest", WindowMechanism((1 << 30) - 4, 1, 1, 1, 1), (1 << 30) - 1))
    return tuple(shipped)
