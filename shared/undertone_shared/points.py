"""Points of a stream's grid, limited to a ball and to a step from the last point.

Their coordinates are integers. `shrink` rounds towards the middle of the ball, `clip` towards the last point.
"""

from undertone_shared.gaussian import root

TYPE_CHECKING = False
if TYPE_CHECKING:
    Point = tuple[int, ...]


def shrink(point: "Point", radius: int) -> "Point":
    """Return the point, or one closer to the middle that is in the ball of this ``radius``."""
    square = _square(point)
    if square <= radius * radius:
        return point
    if len(point) == 1:
        return (radius if point[0] > 0 else -radius,)
    norm = _root_up(square)
    return tuple([_towards_zero(n * radius, norm) for n in point])


def clip(point: "Point", previous: "Point", slew: int, radius: int) -> "Point":
    """Return ``point``, or one between it and ``previous`` that is at most ``slew`` from ``previous`` (Euclidean).

    Both given points must be in the ball of this ``radius`` around 0; the result is in it, too.
    """
    move = tuple([point[i] - previous[i] for i in range(len(point))])
    square = _square(move)
    if square <= slew * slew:
        return point
    norm = _root_up(square)
    while True:
        # Rounding may move the point out of the ball. Then a shorter step is tried; with no step the result is
        # ``previous``, which is in the ball.
        point = tuple([previous[i] + _towards_zero(move[i] * slew, norm) for i in range(len(move))])
        if _square(point) <= radius * radius:
            return point
        slew -= 1


def _square(point: "Point") -> int:
    return sum([n * n for n in point])


def _root_up(n: int) -> int:
    x = root(n)
    return x if x * x == n else x + 1


def _towards_zero(n: int, d: int) -> int:
    return n // d if n >= 0 else -(-n // d)
